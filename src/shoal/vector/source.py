"""What a user may call an environment, turned into factories that a worker can use.

An id, "module:factory", a class, a factory or a list of factories; each environment is made by
`assemble`, which is all that a worker needs to import of this package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from shoal.errors import ConfigError, shown, suggest

Factory = Callable[..., Any]
Wrapper = Callable[[Any], Any]
Source = str | EnvSpec | type | Factory | Sequence[Factory]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Factories, and what is known of them before any has been called."""

    factories: tuple[partial[Any], ...]
    """Each is `assemble` with its three arguments."""
    is_list: bool
    spec: EnvSpec | None
    preload: tuple[str, ...]


def resolve(
    env: Source, env_kwargs: Mapping[str, Any] | None = None, wrappers: Sequence[Wrapper] = ()
) -> Resolved:
    """Turn what the user gave into factories; ConfigError where it can be none."""
    if env_kwargs is not None and not isinstance(env_kwargs, Mapping):
        raise ConfigError(f"env_kwargs is {shown(env_kwargs)}; expected a dict of arguments.")
    if isinstance(wrappers, type) or not isinstance(wrappers, Sequence):
        raise ConfigError(f"wrappers is {shown(wrappers)}; expected a list of callables.")
    for wrapper in wrappers:
        if not callable(wrapper):
            raise ConfigError(f"the wrapper {shown(wrapper)} is not callable: pass its class.")
    is_list = isinstance(env, list | tuple)
    given: Sequence[Any] = env if is_list else [env]  # type: ignore[assignment]
    if not given:
        raise ConfigError("the list of environment factories is empty.")
    makers = [_as_maker(one) for one in given]
    kwargs = dict(env_kwargs or {})
    factories = tuple(partial(assemble, maker, kwargs, tuple(wrappers)) for maker in makers)
    spec = makers[0].args[0] if not is_list and _is_from_spec(makers[0]) else None
    preload = dict.fromkeys(name for name in map(_module_of, [*makers, *wrappers]) if name)
    return Resolved(factories, is_list, spec, tuple(preload))


def own_factory(source: Resolved) -> Factory:
    """What the user gave for the first environment, with its keywords; it may take more of them."""
    maker, kwargs, _ = source.factories[0].args
    return partial(_import_factory(maker) if isinstance(maker, str) else maker, **kwargs)


def _as_maker(env: Any) -> Any:
    """A callable, or 'module:factory' (which workers import for themselves)."""
    if isinstance(env, str):
        if _names_a_factory(env):
            _import_factory(env)  # fail here, not in a worker
            return env
        env = _find_spec(env)
    if isinstance(env, EnvSpec):
        return partial(_make_from_spec, env)
    _check_maker(env)
    return env


def _is_from_spec(maker: Any) -> bool:
    return isinstance(maker, partial) and maker.func is _make_from_spec


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
    module, colon, env_id = name.rpartition(":")
    try:
        if colon:
            importlib.import_module(module)  # which registers the environment
        return gymnasium.spec(env_id)
    except (gymnasium.error.Error, ImportError) as problem:
        raise ConfigError(f"there is no environment {name!r}: {_said(name, problem)}") from problem


def _said(name: str, problem: Exception) -> str:
    """What is wrong with an id, and what to do about it."""
    from shoal.vector.agents.make import advice_on  # which itself needs what is in this file

    advice = advice_on(name)
    if advice:  # then it is no matter of what Gymnasium lacks
        return f"Gymnasium does not know it. {advice}"
    hint = suggest(name, gymnasium.registry)
    if hint.startswith("Did"):
        return f"{str(problem).partition(' Did you mean')[0]} {hint}"  # Gymnasium's has no version
    return f"{problem} gymnasium.pprint_registry() lists those known."


def _check_maker(maker: Any) -> None:
    if isinstance(maker, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        raise ConfigError(
            f"{shown(maker)} is an environment, not a way to make one: each worker builds its own. "
            "Pass its class, or a function that returns a new one, such as `lambda: MyEnv()`."
        )
    if not callable(maker):
        if advice := _advice_on_agents(maker):
            raise ConfigError(f"cannot make environments from {shown(maker)}. {advice}")
        raise ConfigError(
            f"cannot make environments from {shown(maker)} ({type(maker).__name__}). Pass a "
            "Gymnasium id, 'module:factory', an env class, a factory, or a list of factories."
        )


def _advice_on_agents(maker: Any) -> str:
    """Which function is for one of PettingZoo's environments or modules; nothing for others."""
    from shoal.engine.build import of_several

    for name, function in (("parallel_env", "make_team"), ("env", "make_turns")):
        if isinstance(maker, ModuleType) and callable(getattr(maker, name, None)):
            module = maker.__name__.rpartition(".")[2]
            return f"It is a module; several agents are made by shoal.{function}({module}.{name})."
    if not isinstance(maker, ModuleType) and (several := of_several(maker)):
        return (
            f"It is {several[0]} (PettingZoo), and each worker builds its own: pass a function "
            f"that returns a new one to shoal.{several[1]}."
        )
    return ""


def _module_of(maker: Any) -> str | None:
    """The module that workers will need for this, unless it is the user's script itself."""
    if _is_from_spec(maker):
        maker = maker.args[0].entry_point
    if isinstance(maker, str):
        return maker.partition(":")[0]
    while isinstance(maker, partial):
        maker = maker.func
    module = getattr(maker, "__module__", None)
    return module if isinstance(module, str) and module != "__main__" else None
