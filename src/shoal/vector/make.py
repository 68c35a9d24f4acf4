"""`shoal.make`: check what was asked for, choose where it runs, build the pool."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from shoal.engine.machine import usable_cores
from shoal.errors import ConfigError, shown
from shoal.seeding import seeds_of
from shoal.vector.checks import above_zero, as_count, as_whole, choose
from shoal.vector.env import VectorEnv
from shoal.vector.source import Resolved, Source, Wrapper, resolve

if TYPE_CHECKING:  # the engine itself is imported on use: `import shoal` stays light
    from shoal.engine.backends import Backend, Terms
    from shoal.engine.compare import SameSpace
    from shoal.engine.plan import Policy
    from shoal.engine.pool import Pool

AUTORESET = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
BACKENDS = ("auto", "serial", "thread", "process", "hybrid")
START_METHODS = ("forkserver", "spawn", "fork")
ON_FAILURE = ("restart", "replay", "raise")


class _Default(int):
    """A default that can be told from the same number given by the user."""


DEFAULT_NUM_ENVS = _Default(8)


@dataclass(frozen=True, slots=True)
class Faults:
    """What is done about environments and workers that misbehave."""

    on_error: str = "raise"
    """An environment's own exception: "raise" it, or "restart" the environment."""
    max_restarts: int = 10
    """How often in a row an environment may fail without finishing an episode."""
    start_timeout_s: float = 120.0
    """How long a worker may take to build its environments."""
    max_worker_rss_mb: float | None = None
    """Memory (resident, MB) above which a worker is replaced, between episodes."""
    replay_limit_steps: int = 100_000
    """How many steps of an episode are recorded; 0 for none. Longer ones cannot be replayed."""
    check_finite: bool = False
    """Whether NaN and Inf in observations are errors."""

    def __post_init__(self) -> None:
        choose("faults.on_error", self.on_error, ("raise", "restart"))
        above_zero("faults.start_timeout_s", self.start_timeout_s)
        for name in ("max_restarts", "replay_limit_steps"):
            if as_whole(f"faults.{name}", getattr(self, name)) < 0:
                raise ConfigError(f"faults.{name} must not be negative, got {getattr(self, name)}.")
        if self.max_worker_rss_mb is not None:
            above_zero("faults.max_worker_rss_mb", self.max_worker_rss_mb)

    def policy(self, on_failure: str) -> Policy:
        """What the engine must know of this."""
        from shoal.engine.plan import Policy

        return Policy(
            on_failure,
            self.on_error,
            self.max_restarts,
            self.replay_limit_steps,
            self.max_worker_rss_mb,
        )


def make(
    env: Source,
    num_envs: int = DEFAULT_NUM_ENVS,
    *,
    backend: str = "auto",
    num_workers: int | None = None,
    start_method: str | None = None,
    autoreset: str | AutoresetMode = "next_step",
    batch_size: int | None = None,
    copy: bool = True,
    seed: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    on_failure: str = "restart",
    step_timeout_s: float | None = None,
    faults: Faults | None = None,
) -> VectorEnv:
    """Run `num_envs` environments at once.

    `env` is a Gymnasium id, "module:factory", an env class, a zero-argument factory, or a list of
    factories (then there are as many environments as factories). Lambdas, closures and functions
    of a script or notebook work, and no main guard is needed. `num_workers` is at most the cores
    that may be used, unless you say more. Everything is checked before anything starts.

    `backend="auto"` builds one environment more, in a process of its own, steps it for a moment and
    closes it, unless this kind has been measured before; name a backend where that must not be.
    """
    source = resolve(env, env_kwargs, wrappers)
    count = _count_envs(source, num_envs)
    choose("on_failure", on_failure, ON_FAILURE)
    faults = Faults() if faults is None else faults
    if not isinstance(faults, Faults):
        raise ConfigError(
            f"faults is {shown(faults)}; expected shoal.Faults, such as "
            'shoal.Faults(on_error="restart").'
        )
    is_auto = choose("backend", backend, BACKENDS) == "auto"
    if batch_size is not None and as_count("batch_size", batch_size) > count:
        raise ConfigError(f"batch_size is {batch_size}, but there are only {count} environments.")
    if num_workers is not None:
        num_workers = as_count("num_workers", num_workers)
    if seed is not None:
        seeds_of(seed, count)
    where = "process" if is_auto else backend  # which auto chooses if there is any limit to keep
    terms = make_terms(source, where, as_mode(autoreset), faults, step_timeout_s, start_method)
    policy = faults.policy(on_failure)
    reason = "as asked"
    with contextlib.ExitStack() as until_made:
        default_workers = None
        if is_auto:
            from shoal.vector.auto import decide

            needs_process = (step_timeout_s, batch_size, faults.max_worker_rss_mb)
            isolated = on_failure == "replay" or any(one is not None for one in needs_process)
            choice = decide(source, count, num_workers, isolated, terms, until_made)
            backend, default_workers, reason = choice.backend, choice.num_workers, choice.reason
        pool = make_pool(
            source,
            backend,
            count,
            num_workers,
            terms,
            copy=copy,
            policy=policy,
            default_workers=default_workers,
        )
    return VectorEnv(pool, spec=source.spec, seed=seed, batch_size=batch_size, reason=reason)


def make_terms(
    source: Resolved,
    backend: str,
    autoreset: AutoresetMode,
    faults: Faults,
    step_timeout_s: float | None,
    start_method: str | None,
) -> Terms:
    """What every worker must know, if this backend can keep to it."""
    from shoal.engine.backends import Terms

    _check_limits(step_timeout_s, faults.max_worker_rss_mb, backend)
    return Terms(
        autoreset=autoreset,
        check_finite=faults.check_finite,
        start_timeout_s=faults.start_timeout_s,
        step_timeout_s=step_timeout_s,
        start_method=None
        if start_method is None
        else choose("start_method", start_method, START_METHODS),
        preload=("numpy", "gymnasium", "shoal.engine.backends.process.inside", *source.preload),
        watches_memory=faults.max_worker_rss_mb is not None,
    )


def make_pool(
    source: Resolved,
    backend: str,
    num_envs: int,
    num_workers: int | None,
    terms: Terms,
    *,
    copy: bool = True,
    strict_actions: bool = True,
    infos_apart: bool = False,
    same_observation_space: SameSpace | None = None,
    policy: Policy | None = None,
    default_workers: int | None = None,
) -> Pool:
    """A pool on a named backend; where nobody says how many workers, as many as cores."""
    from shoal.engine.build import TooManyWorkers
    from shoal.engine.plan import Policy, PoolPlan
    from shoal.engine.pool import Pool

    asked = num_workers is not None
    if num_workers is None:
        num_workers = default_workers or usable_cores()
    elif as_count("num_workers", num_workers) > num_envs:
        num_workers = num_envs
    plan = PoolPlan(
        factories=source.factories,
        one_each=source.is_list,
        num_envs=num_envs,
        num_workers=1 if backend == "serial" else min(num_workers, num_envs),
        terms=terms,
        copy=copy,
        strict_actions=strict_actions,
        infos_apart=infos_apart,
        policy=policy or Policy(),
        same_observation_space=same_observation_space or operator.eq,
    )
    try:
        return Pool(plan, _backend_named(backend))
    except TooManyWorkers as problem:
        # How wide a vector environment is shows only when one has been built.
        if asked:
            raise
        return Pool(replace(plan, num_workers=problem.fits), _backend_named(backend))


def _backend_named(name: str) -> Callable[[Terms], Backend]:
    # Imported on use: only the process backend needs what processes need.
    if name == "serial":
        from shoal.engine.backends.serial import SerialBackend

        return SerialBackend
    if name == "thread":
        from shoal.engine.backends.thread import ThreadBackend

        return ThreadBackend
    if name == "hybrid":
        from shoal.engine.backends.hybrid import HybridBackend

        return HybridBackend
    from shoal.engine.backends.process import ProcessBackend

    return ProcessBackend


def _count_envs(source: Resolved, num_envs: int) -> int:
    count = as_count("num_envs", num_envs)
    if not source.is_list:
        return count
    given = len(source.factories)
    if num_envs is not DEFAULT_NUM_ENVS and count != given:
        raise ConfigError(
            f"num_envs is {count}, but the list holds {given} factories, one for each environment. "
            "Leave num_envs out."
        )
    return given


def _check_limits(step_timeout_s: Any, max_worker_rss_mb: float | None, backend: str) -> None:
    if max_worker_rss_mb is not None and backend != "process":
        raise ConfigError(
            "max_worker_rss_mb needs workers with memory of their own: backend='process', not "
            f"{backend!r}."
        )
    if step_timeout_s is None:
        return
    above_zero("step_timeout_s", step_timeout_s, " of seconds")
    if backend != "process":
        raise ConfigError(
            f"step_timeout_s needs workers that can be ended: backend='process', not {backend!r}."
        )


def as_mode(autoreset: str | AutoresetMode) -> AutoresetMode:
    """The autoreset mode, by Shoal's name, Gymnasium's name, or itself."""
    if isinstance(autoreset, AutoresetMode):
        return autoreset
    by_value = {mode.value: mode for mode in AutoresetMode}
    if autoreset in by_value:
        return by_value[autoreset]
    return AUTORESET[choose("autoreset", autoreset, AUTORESET)]
