"""What environments of several agents have in common, seen from the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from shoal.vector.agents.cast import CAST, TAKES_TURNS, Cast

_INSIDE = ("env", "aec_env", "par_env")
"""Where wrappers and conversions of PettingZoo's kind keep what they are around."""


class Inner(gymnasium.Env[Any, Any]):
    """A PettingZoo environment inside one that the engine steps; `cast` is None if unknown."""

    takes_turns = False

    def __init__(self, env: Any, cast: Cast | None) -> None:
        self.env = env
        self.metadata = {**env.metadata, CAST: cast, TAKES_TURNS: self.takes_turns}
        self.render_mode = getattr(env, "render_mode", None)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    @property
    def np_random(self) -> Any:
        """The generator of the environment itself, which goes on from one episode to the next."""
        found = getattr(self.env.unwrapped, "np_random", None)
        return found if isinstance(found, np.random.Generator) else None

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self.env.unwrapped.np_random = value

    def get_wrapper_attr(self, name: str) -> Any:
        """One of the environment itself, of the outermost layer that has it, or of this."""
        for layer in (*layers(self.env), self):
            if hasattr(layer, name):
                return getattr(layer, name)
        raise AttributeError(f"{self.env} has no attribute {name!r}, nor has anything inside it.")

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set it where it is; one that is new, on the outermost layer."""
        its_own = (layer for layer in layers(self.env) if _owns(layer, name))
        setattr(next(its_own, self.env), name, value)
        return True

    def has_wrapper_attr(self, name: str) -> bool:
        return any(hasattr(layer, name) for layer in (*layers(self.env), self))


class Roll:
    """Who of a team may act next. Whoever has ended, and is not spoken of again, stays so.

    So environments that never take anybody off their list are understood, too: there an episode is
    over when all on it have ended.
    """

    def __init__(self) -> None:
        self._ended = set[Any]()

    def begin(self) -> None:
        """A new episode."""
        self._ended.clear()

    def living(
        self, listed: list[Any], terminations: Mapping[Any, Any], truncations: Mapping[Any, Any]
    ) -> list[Any]:
        """Those of `env.agents` who have not ended, in this step or before."""
        ended = self._ended
        if ended:
            ended.difference_update(terminations)
        for flags in (terminations, truncations):
            if any(flags.values()):  # a fourth of the time of looking at each here
                ended.update(name for name, is_so in flags.items() if is_so)
        return [name for name in listed if name not in ended] if ended else listed


def layers(env: Any) -> Iterator[Any]:
    """An environment and all that it is around, from outside to inside."""
    innermost = env.unwrapped
    while env is not innermost:
        yield env
        kept = _kept(env)
        env = next((kept[name] for name in _INSIDE if name in kept), innermost)
    yield innermost


def _owns(layer: Any, name: str) -> bool:
    """Whether an attribute is kept here. Wrappers also show, and cannot set, those inside them."""
    if name in _kept(layer):
        return True
    of_class = getattr(type(layer), name, None)
    is_shown = isinstance(of_class, property) and of_class.fset is None
    return hasattr(type(layer), name) and not is_shown


def _kept(layer: Any) -> dict[str, Any]:
    return getattr(layer, "__dict__", {})
