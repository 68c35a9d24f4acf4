"""What environments of several agents have in common, seen from the engine."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from shoal.vector.agents.cast import CAST, TAKES_TURNS, Cast


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
        """One of the environment itself, or of this."""
        return getattr(self.env if hasattr(self.env, name) else self, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        setattr(self.env, name, value)
        return True

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self.env, name) or hasattr(self, name)
