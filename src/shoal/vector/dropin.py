"""What drop-ins for other libraries' vector environments share: how they open a pool, and whose
exceptions they raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from shoal.errors import EnvRaised, RemoteTraceback
from shoal.vector.checks import choose
from shoal.vector.make import BACKENDS, ON_FAILURE, Faults, make_pool, make_terms
from shoal.vector.source import Factory, Wrapper, resolve

if TYPE_CHECKING:
    from shoal.engine.compare import SameSpace
    from shoal.engine.pool import Pool


@dataclass(frozen=True, slots=True)
class Extras:
    """What Shoal can be told beyond the arguments of the original."""

    backend: str = "serial"
    num_workers: int | None = None
    start_method: str | None = None
    step_timeout_s: float | None = None
    on_failure: str = "raise"
    faults: Faults | None = None

    def __post_init__(self) -> None:
        choose("backend", self.backend, BACKENDS[1:])
        choose("on_failure", self.on_failure, ON_FAILURE)


def open_pool(
    env_fns: Sequence[Factory],
    autoreset: AutoresetMode,
    extras: Extras,
    *,
    copy: bool = True,
    wrappers: Sequence[Wrapper] = (),
    same_observation_space: SameSpace | None = None,
    infos_apart: bool = False,
) -> Pool:
    """A pool with an environment of each function. What a constructor raises gets out as it is.

    Actions reach environments as they are, whatever their space says.
    """
    source, faults = resolve(env_fns, wrappers=wrappers), extras.faults or Faults()
    terms = make_terms(
        source, extras.backend, autoreset, faults, extras.step_timeout_s, extras.start_method
    )
    return as_raised(  # type: ignore[no-any-return]
        make_pool,
        source,
        extras.backend,
        len(env_fns),
        extras.num_workers,
        terms,
        copy=copy,
        strict_actions=False,
        same_observation_space=same_observation_space,
        policy=faults.policy(extras.on_failure),
        infos_apart=infos_apart,
    )


def as_raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call, and let an environment's own exception out as it is."""
    try:
        return function(*args, **kwargs)
    except EnvRaised as error:
        raise (original(error) or error) from None


def original(error: EnvRaised) -> BaseException | None:
    """The environment's own exception, if it could travel."""
    cause = error.__cause__
    return None if isinstance(cause, RemoteTraceback) else cause
