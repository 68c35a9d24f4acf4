"""A whole team as one Gymnasium environment that controls every agent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from shoal.engine.masks import MASK, mask_in
from shoal.envs.conversions.joint import join
from shoal.envs.conversions.team import as_parallel
from shoal.errors import ConfigError, ContractError, shown

Floats = npt.NDArray[np.float32]


class FlattenMultiAgentWrapper(gymnasium.Env[Floats, Any]):
    """A PettingZoo environment (AEC or parallel) as one agent, for whoever knows only one.

    Args:
        env: what is wrapped; it must name its `possible_agents`. Of an AEC environment, one step
            is a full cycle: every living agent acts once, in turn (see `as_parallel`).
        flatten_actions: one `Discrete` over all combinations of actions, or one `Box` with all
            numbers in a row, instead of a `MultiDiscrete` or a `Tuple`. Actions of agents that do
            not live are ignored.

    The observation is a row of float32: those of all `possible_agents`, flattened as Gymnasium
    flattens them, in that order; then for each of them 1 if its part is filled, else 0. Parts of
    agents that do not live are zeros. An agent that terminates is gone at once; one that is
    truncated shows its last observation once more, so that its value can still be estimated.

    The reward is the sum over agents. The episode ends with its last agent: truncated if any agent
    was (in this step or before), else terminated.

    Infos hold, by agent: `rewards`; `alive`, whether it acts in the next step; `infos`, those that
    say anything. Where agents have action masks (in info or observation), `action_mask` joins them:
    the choices of one after those of the other, or of all combinations.

    `team` is the `ParallelEnv` inside, with its `possible_agents`.
    """

    def __init__(self, env: Any, flatten_actions: bool = False) -> None:
        self.env = env
        self.team = as_parallel(env)
        self._names = _names(self.team)
        self.metadata = self.team.metadata
        self.render_mode = getattr(self.team, "render_mode", None)
        self._spaces = {name: self.team.observation_space(name) for name in self._names}
        flat = {name: _flat_box(name, space) for name, space in self._spaces.items()}
        ends = np.cumsum([0, *(box.shape[0] for box in flat.values())]).tolist()
        self._parts = dict(zip(flat, (slice(*pair) for pair in pairwise(ends)), strict=True))
        self.observation_space: spaces.Box = _row_of(list(flat.values()))  # type: ignore[assignment]
        self._joint = join([self.team.action_space(name) for name in self._names], flatten_actions)
        self.action_space = self._joint.space
        self._was_cut = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        super().reset(seed=seed)
        self._was_cut = False
        observations, infos = self.team.reset(seed=seed, options=options)
        return self._flatten(observations), self._info(observations, {}, infos)

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        if not self.team.agents:
            raise ContractError("step was called while no agent is left: call reset first.")
        chosen = dict(zip(self._names, self._joint.split(action), strict=True))
        acting = {name: chosen[name] for name in self.team.agents}
        observations, rewards, terminations, truncations, infos = self.team.step(acting)
        shown_ones = {
            name: observation
            for name, observation in observations.items()
            if not terminations.get(name)
        }
        self._was_cut |= any(
            truncated and not terminations.get(name) for name, truncated in truncations.items()
        )
        is_over = not self.team.agents
        return (
            self._flatten(shown_ones),
            float(sum(rewards.values())),
            is_over and not self._was_cut,
            is_over and self._was_cut,
            self._info(observations, rewards, infos),
        )

    def render(self) -> Any:
        return self.team.render()

    def close(self) -> None:
        self.team.close()

    @property
    def np_random(self) -> np.random.Generator:
        """The wrapped environment's own, where it has one by this name: it decides what happens."""
        inner = getattr(self.env.unwrapped, "np_random", None)
        return super().np_random if inner is None else inner

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self._np_random = value
        if getattr(self.env.unwrapped, "np_random", None) is not None:
            self.env.unwrapped.np_random = value

    def _flatten(self, observations: Mapping[Any, Any]) -> Floats:
        row = np.zeros(self.observation_space.shape, np.float32)
        filled = row[len(row) - len(self._names) :]
        for index, name in enumerate(self._names):
            if name in observations:
                part: Any = spaces.flatten(self._spaces[name], observations[name])
                row[self._parts[name]] = part
                filled[index] = 1
        return row

    def _info(
        self, observations: Mapping[Any, Any], rewards: Mapping[Any, Any], infos: Mapping[Any, Any]
    ) -> dict[str, Any]:
        names, alive = self._names, set(self.team.agents)
        info: dict[str, Any] = {
            "rewards": {name: float(rewards.get(name, 0)) for name in names},
            "alive": {name: name in alive for name in names},
            "infos": {name: dict(infos[name]) for name in names if infos.get(name)},
        }
        masks = [
            mask_in(observations.get(name), infos.get(name)) if name in alive else None
            for name in names
        ]
        mask = self._joint.mask(masks)
        if mask is not None:
            info[MASK] = mask
        return info


def _names(team: Any) -> list[Any]:
    names = list(getattr(team, "possible_agents", None) or ())
    if not names:
        raise ConfigError(
            f"{team} does not say who its possible_agents are, so its observations and actions "
            "have no fixed size. Give it that attribute: all agents that may ever appear."
        )
    return names


def _flat_box(name: Any, space: spaces.Space[Any]) -> spaces.Box:
    flat = spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box):
        raise ConfigError(
            f"the observation space of {name!r} is {shown(space)}, which has no fixed size; "
            "expected one that Gymnasium flattens into a Box."
        )
    return flat


def _row_of(boxes: list[spaces.Box]) -> spaces.Box:
    """With room for the zeros of those who do not live, and for who does."""
    ones = np.ones(len(boxes), np.float32)
    low = np.concatenate([*(np.minimum(box.low, 0) for box in boxes), 0 * ones])
    high = np.concatenate([*(np.maximum(box.high, 0) for box in boxes), ones])
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
