"""Reading: what environments of teams have told, by agent, and who is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from shoal.engine.batch import Batch
from shoal.layout import Array, Layout
from shoal.vector.agents.cast import Cast, Space
from shoal.vector.agents.together import ALIVE, PRESENT, TERMINATED, TRUNCATED

ByAgent = dict[Any, Any]


class TeamBatch(NamedTuple):
    """Results of some environments, by agent; row k of everything is `env_ids[k]`."""

    observations: ByAgent
    rewards: ByAgent
    terminations: ByAgent
    truncations: ByAgent
    infos: dict[str, Any]
    env_ids: Array


class Reading:
    """From what the engine hands out to what each agent is told. Masks are `[num_envs, agents]`.

    Each of its arrays is replaced, and never written to, so that whoever has one may keep it.
    """

    alive: Array
    """Who may act in the next step."""
    observed: Array
    """Whose latest observation is its own; others have zeros."""
    rewarded: Array
    """Whose rewards and flags of the latest step are its own."""
    action_masks: Array | None
    """`[num_envs, agents, choices]`: what is possible for each; None without choices."""
    stacked: Any
    """What `see` was last told of, all agents in one; None where they differ."""

    def __init__(self, cast: Cast, num_envs: int) -> None:
        self._cast, self._num_envs = cast, num_envs
        shape = (num_envs, len(cast))
        self.alive, self.observed, self.rewarded = (np.zeros(shape, np.bool_) for _ in range(3))
        self.action_masks = self.stacked = None

    def resize(self, num_envs: int) -> None:
        """There are more environments now, or fewer."""
        self._num_envs = num_envs
        for name in ("alive", "observed", "rewarded", "action_masks"):
            before = getattr(self, name)
            if before is not None:
                after = np.zeros((num_envs, *before.shape[1:]), np.bool_)
                kept = min(num_envs, len(before))
                after[:kept] = before[:kept]
                setattr(self, name, after)

    def branch(self, env_id: int, into_ids: Sequence[int]) -> None:
        """These environments stand where another one does."""
        for name in ("alive", "observed", "rewarded", "action_masks"):
            before = getattr(self, name)
            if before is not None:
                setattr(self, name, _noted(before, into_ids, before[env_id]))

    def see(self, told: Mapping[str, Any], env_ids: Any = None) -> ByAgent:
        """Take note of who is there and what is possible; what each agent sees.

        `env_ids` are those that it is told of; None: all of them, in their order.
        """
        flags = told["flags"]
        self.alive = _noted(self.alive, env_ids, flags[:, ALIVE])
        self.observed = _noted(self.observed, env_ids, flags[:, PRESENT])
        if "masks" in told:
            before = self.action_masks
            if before is None:
                before = np.zeros((self._num_envs, *told["masks"].shape[1:]), np.bool_)
            self.action_masks = _noted(before, env_ids, told["masks"])
        seen, cast = told["observations"], self._cast
        if cast.sees_alike:
            self.stacked = seen
        return {name: cast.part(seen, k, cast.sees_alike) for name, k in cast.number.items()}

    def results(self, batch: Batch) -> TeamBatch:
        """What a step has come to. Rewards and flags are always the caller's own."""
        told, infos = batch.observations, batch.infos
        rows = None if len(batch.env_ids) == self._num_envs else batch.env_ids
        rewards, flags = at_ends(told, infos, self.alive if rows is None else self.alive[rows])
        for row in np.flatnonzero(infos.get("_final_obs", ())):
            infos["final_obs"][row] = self._final(infos["final_obs"][row])
        self.rewarded = _noted(self.rewarded, rows, flags[:, PRESENT])
        observations = self.see(told, rows)
        return TeamBatch(
            observations,
            self.columns(rewards),
            self.columns(flags[:, TERMINATED]),
            self.columns(flags[:, TRUNCATED]),
            infos,
            batch.env_ids,
        )

    def columns(self, values: Array) -> ByAgent:
        """An array `[num_envs, agents]` by agent."""
        return {name: values[:, k] for name, k in self._cast.number.items()}

    def _final(self, final: Mapping[str, Any]) -> ByAgent:
        """What each agent saw last, of one environment."""
        seen, cast = final["observations"], self._cast
        if not cast.sees_alike:
            return dict(zip(cast.names, seen, strict=True))
        return {name: _row(seen, k) for name, k in cast.number.items()}


def _noted(before: Array, rows: Any, values: Array) -> Array:
    """The same with other values in these rows; None: in all."""
    if rows is None:
        return values.astype(np.bool_)
    after = before.copy()
    after[rows] = values
    return after


def at_ends(
    told: Mapping[str, Any], infos: Mapping[str, Any], before: Array
) -> tuple[Array, Array]:
    """Rewards and flags of a batch; where an episode is over, those that were told at its end.

    `before`: who was alive. In an environment that was lost they are truncated, with nothing.
    """
    rewards, flags = told["rewards"].copy(), told["flags"].astype(np.bool_)
    for row, final in enumerate(infos.get("final_obs", ())):
        if final is not None:
            rewards[row], flags[row] = final["rewards"], final["flags"]
    if "restarted" in infos:
        lost = infos["restarted"]
        rewards[lost], flags[lost] = 0.0, False
        flags[lost, TRUNCATED] = flags[lost, PRESENT] = before[lost]
    return rewards, flags


def joined(cast: Cast, actions: Mapping[Any, Any]) -> Any:
    """Batches of actions of every agent, as the engine takes them."""
    ordered = [actions[name] for name in cast.names]
    return _stack(ordered) if cast.acts_alike else tuple(ordered)


def nothing(space: Space, count: int) -> Any:
    """Actions that nobody looks at, and that the space has."""
    empty = create_empty_array(space, count)
    return empty + space.start if hasattr(space, "start") else empty


def batched(space: Space, each: Sequence[Any]) -> Any:
    """A batch of these values of a space; where there is None, of nothing."""
    if isinstance(space, spaces.Dict):
        return {key: batched(one, _members(each, key)) for key, one in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(batched(one, _members(each, k)) for k, one in enumerate(space))
    if not Layout(space).arrays:
        return tuple(each)
    (none,) = nothing(space, 1)
    return np.stack([none if one is None else np.reshape(one, none.shape) for one in each])


def _members(each: Sequence[Any], key: Any) -> list[Any]:
    return [None if one is None else one[key] for one in each]


def _row(values: Any, k: int) -> Any:
    if isinstance(values, dict):
        return {key: _row(one, k) for key, one in values.items()}
    return tuple(_row(one, k) for one in values) if isinstance(values, tuple) else values[k]


def _stack(each: Sequence[Any]) -> Any:
    """Batches of each agent as one batch `[num_envs, num_agents, ...]`."""
    first = each[0]
    if isinstance(first, dict):
        return {key: _stack([one[key] for one in each]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_stack, zip(*each, strict=True)))
    return np.stack(list(map(np.asarray, each)), axis=1)
