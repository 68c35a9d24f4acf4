"""Environments of several agents that are stepped: a team, and a game whose players take turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo.utils.wrappers import BaseWrapper


class AnyMove(BaseWrapper[Any, Any, Any]):
    """Takes any number for a move: so actions can be chosen before it is known what is possible."""

    def step(self, action: Any) -> None:
        if action is not None:
            possible = np.flatnonzero(self.env.observe(self.agent_selection)["action_mask"])
            action = possible[action % len(possible)]
        super().step(action)


def simple_spread() -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env()


def connect_four() -> Any:
    from pettingzoo.classic.connect_four import connect_four

    return AnyMove(connect_four.raw_env())
