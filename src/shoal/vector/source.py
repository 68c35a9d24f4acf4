"""What a user may call an environment, turned into factories that a worker can use.

An id, "module:factory", a class, a factory or a list of factories; each environment is made by
`assemble`, which is all that a worker needs to import of this package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from shoal.engine.commands import Factory
from shoal.errors import ConfigError, shown, suggest

Wrapper = Callable[[Any], Any]
Source = str | EnvSpec | type | Factory | Sequence[Factory]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Factories, and what is known of them before any has been called."""

    factories: tuple[Factory, ...]
    is_list: bool
    spec: EnvSpec | None
    preload: tuple[str, ...]


def resolve(
    env: Source, env_kwargs: Mapping[str, Any] | None = None, wrappers: Sequence[Wrapper] = ()
) -> Resolved:
    """Turn what the user gave into factories; ConfigError where it can be none."""
    kwargs, spec = dict(env_kwargs or {}), None
    is_list = isinstance(env, (list, tuple))
    makers: Sequence[Any] = env if is_list else [env]  # type: ignore[assignment]
    if not makers:
        raise ConfigError("the list of environment factories is empty.")
    if isinstance(env, str) and not _names_a_factory(env):
        env = _find_spec(env)
    elif isinstance(env, str):
        _import_factory(env)  # fail here, not in a worker
    if isinstance(env, EnvSpec):
        spec, makers = env, [partial(_make_from_spec, env)]
    for maker in makers:
        _check_maker(maker)
    factories = tuple(partial(assemble, maker, kwargs, tuple(wrappers)) for maker in makers)
    entry = getattr(spec, "entry_point", None)
    modules = [entry] if isinstance(entry, str) else list(makers)
    preload = dict.fromkeys(name for name in map(_module_of, [*modules, *wrappers]) if name)
    return Resolved(factories, is_list, spec, tuple(preload))


def assemble(maker: Any, kwargs: dict[str, Any], wrappers: Sequence[Wrapper]) -> Any:
    """Make one environment and put its wrappers around it, in order."""
    factory = _import_factory(maker) if isinstance(maker, str) else maker
    env = factory(**kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def _make_from_spec(spec: EnvSpec, **kwargs: Any) -> Any:
    # The engine checks more than Gymnasium's passive checker does, which costs a call per step.
    kwargs.setdefault("disable_env_checker", True)
    return gymnasium.make(spec, **kwargs)


def _names_a_factory(name: str) -> bool:
    """'module:factory', and not Gymnasium's own 'module:EnvId-v0'."""
    _, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in attribute.split("."))


def _import_factory(name: str) -> Factory:
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise ConfigError(f"env {name!r}: {problem}. Is it installed, or on sys.path?") from problem
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [known for known in dir(found) if not known.startswith("_")]
            raise ConfigError(f"env {name!r}: {found!r} has no {part!r}. {suggest(part, known)}")
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _find_spec(name: str) -> EnvSpec:
    try:
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as problem:
        hint = suggest(name, gymnasium.registry)
        hint = hint if hint.startswith("Did") else "gymnasium.pprint_registry() lists those known."
        raise ConfigError(f"there is no environment {name!r}: {problem} {hint}") from problem


def _check_maker(maker: Any) -> None:
    if isinstance(maker, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        raise ConfigError(
            f"{shown(maker)} is an environment, not a way to make one: each worker builds its own. "
            "Pass its class, or a function that returns a new one, such as `lambda: MyEnv()`."
        )
    if not callable(maker) and not isinstance(maker, str):
        raise ConfigError(
            f"cannot make environments from {shown(maker)} ({type(maker).__name__}). Pass a "
            "Gymnasium id, 'module:factory', an env class, a factory, or a list of factories."
        )


def _module_of(maker: Any) -> str | None:
    """The module that workers will need for this, unless it is the user's script itself."""
    if isinstance(maker, str):
        return maker.partition(":")[0]
    while isinstance(maker, partial):
        maker = maker.func
    module = getattr(maker, "__module__", None)
    return module if isinstance(module, str) and module != "__main__" else None
