"""What is asked of an environment where it lives: functions that workers call with it.

They import nothing heavy, for whoever is asked must import them. Errors name the function, so these
have the names that users know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium


def as_gymnasium(env: Any) -> gymnasium.Env[Any, Any]:
    """The environment, or an older kind made one of Gymnasium's, as Stable-Baselines3 does it."""
    if isinstance(env, gymnasium.Env):
        return env
    from stable_baselines3.common.vec_env.patch_gym import _patch_env

    return _patch_env(env)


def get_attr(env: Any, name: str) -> Any:
    """An attribute of the environment or any wrapper around it, as it is: nothing is called."""
    return env.get_wrapper_attr(name)


def has_attr(env: Any, name: str) -> bool:
    """Whether there is one, even if it could not travel."""
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def env_method(env: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """What a method of the environment, or of any wrapper around it, returns."""
    return env.get_wrapper_attr(name)(*args, **kwargs)


def env_is_wrapped(env: Any, kind: str) -> bool:
    """Whether there is a wrapper of this class (see `full_name`) around it.

    By its name: a class that nobody has imported here is not imported only to be looked for.
    """
    return any(kind in map(full_name, type(one).__mro__) for one in _wrappers(env))


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _wrappers(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
