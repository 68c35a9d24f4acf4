"""Episodes as they end, counted by when they began.

Where a number of episodes is asked for, it is the first so many that *began*: of those that happen
to end first, short ones would be too many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.layout import Array

LATEST = 100
"""How many episodes a mean is of."""


class Episodes:
    """Returns and lengths of the episodes of some environments. `limit`: count only so many.

    Where there are several `agents`, a return is that of all of them, and theirs are known, too.
    """

    def __init__(self, num_envs: int, limit: int | None = None, agents: Sequence[str] = ()) -> None:
        self.limit, self._agents = limit, tuple(agents)
        self._by_agent = np.zeros((num_envs, len(agents)))
        self._latest_by_agent: deque[list[float]] = deque(maxlen=LATEST)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._numbers = np.arange(num_envs)
        """When each running episode began, among all."""
        self._is_doubtful = np.zeros(num_envs, np.bool_)
        """Of which running episodes return and length are not known."""
        self._num_begun = num_envs
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)

    @property
    def num_ended(self) -> int:
        """Those within the limit that have begun and do not run any more."""
        limit = self._num_begun if self.limit is None else self.limit
        return min(limit, self._num_begun) - int(np.count_nonzero(self._numbers < limit))

    @property
    def is_over(self) -> bool:
        """Whether all that were asked for have ended."""
        return self.limit is not None and self.num_ended >= self.limit

    def add(
        self,
        ids: Array,
        rewards: Array,
        ended: Array,
        lost: Array | None,
        by_agent: Array | None = None,
    ) -> None:
        """A step of these environments: what it brought, and whose episodes (places) have ended.

        Episodes that were `lost` end here and count for nothing, except as begun.
        """
        self._returns[ids] += rewards
        self._lengths[ids] += 1
        if by_agent is not None:
            self._by_agent[ids] += by_agent
        for place in ended.tolist():
            is_lost = lost is not None and bool(lost[place])
            self._end(int(ids[place]), is_lost)

    def doubt(self) -> None:
        """Steps are missing here: the episodes that run now count for nothing, except as begun."""
        self._is_doubtful[:] = True

    def _end(self, env_id: int, is_lost: bool) -> None:
        counts = self.limit is None or self._numbers[env_id] < self.limit
        if counts and not is_lost and not self._is_doubtful[env_id]:
            self._latest.append((float(self._returns[env_id]), int(self._lengths[env_id])))
            self._latest_by_agent.append(self._by_agent[env_id].tolist())
        self._returns[env_id], self._is_doubtful[env_id] = 0.0, False
        self._by_agent[env_id] = 0.0
        self._lengths[env_id] = 0
        self._numbers[env_id] = self._num_begun
        self._num_begun += 1

    def metrics(self) -> dict[str, float]:
        """Of the latest one, ten and hundred; nothing before the first has ended."""
        told: dict[str, float] = {"run/episodes": self.num_ended}
        if self._latest:
            returns, lengths = zip(*self._latest, strict=True)
            told |= {
                "episode/return": returns[-1],
                "episode/length": lengths[-1],
                "episode/return_mean": float(np.mean(returns)),
                "episode/return_mean_10": float(np.mean(returns[-10:])),
                "episode/length_mean": float(np.mean(lengths)),
            }
            means = np.mean(self._latest_by_agent, axis=0).tolist()
            told |= {
                f"episode/{name}/return_mean": mean
                for name, mean in zip(self._agents, means, strict=True)
            }
        return told

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "numbers": self._numbers.tolist(),
            "num_begun": self._num_begun,
            "doubtful": np.flatnonzero(self._is_doubtful).tolist(),
            "latest": [list(one) for one in self._latest],
            "by_agent": self._by_agent.tolist(),
            "latest_by_agent": list(self._latest_by_agent),
        }

    def put_state(self, state: Mapping[str, Any]) -> None:
        """Count on from there, up to the limit that is set here."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._numbers[:] = state["numbers"]
        self._num_begun = state["num_begun"]
        self._is_doubtful[state.get("doubtful", [])] = True
        self._latest.clear()
        self._latest.extend((one[0], one[1]) for one in state["latest"])
        self._latest_by_agent.clear()
        self._latest_by_agent.extend(state.get("latest_by_agent", [[]] * len(self._latest)))
        if self._agents:
            self._by_agent[:] = state["by_agent"]
