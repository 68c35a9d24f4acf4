"""Collector: lets a policy act in all environments together, and writes down what came of it.

One batched forward pass for all environments, one step of all of them, and so on. Environments
reset in the same step (`autoreset="same_step"`), so every row is a real transition; the last
observation of an episode comes beside it, and its value is asked for where it is needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.rollout import standing
from shoal.rollout.actor import Actor, Decision
from shoal.rollout.episodes import Episodes
from shoal.rollout.returns import next_values_of
from shoal.rollout.rollout import Rollout
from shoal.vector.env import VectorEnv

MASK = "action_mask"
"""Under which name an environment's infos, or its Dict observations, say what is possible."""


def mask_in(observation: Any, info: Mapping[str, Any]) -> Any:
    """What is said of possible actions, of one environment or of a batch; None where nothing is."""
    mask = info.get(MASK)
    return observation.get(MASK) if mask is None and isinstance(observation, dict) else mask


@dataclass(frozen=True, slots=True)
class Goal:
    """When there is enough: after so many steps, or so many episodes; whichever comes first."""

    steps: int | None = None
    episodes: int | None = None

    def reached(self, num_steps: int, num_episodes: int) -> float:
        """How much of it that is, 0 to 1."""
        shares = [num_steps / self.steps] if self.steps is not None else []
        if self.episodes is not None:
            shares.append(num_episodes / self.episodes)
        return min(1.0, max(shares, default=0.0))


class Collector:
    """Yields rollouts of `horizon` steps of every environment, until the goal is reached."""

    def __init__(
        self, envs: VectorEnv, actor: Actor, *, horizon: int, seed: int, goal: Goal
    ) -> None:
        self.envs, self.goal = envs, goal
        self.episodes = Episodes(envs.num_envs, goal.episodes)
        self._actor, self._horizon = actor, horizon
        self._layout = Layout(envs.single_observation_space)
        if self._layout.has_objects:
            (odd, *_) = [leaf for leaf in self._layout.leaves if not leaf.is_array]
            raise ConfigError(
                f"{odd.name('observation')} is a {odd.space}, which no network here can read. Wrap "
                "the environment so that it becomes an array."
            )
        self._random = torch.Generator().manual_seed(seed)
        self._seed = seed
        self.step = 0
        """Environment steps so far."""
        self._observations: list[Array] = []
        """What is to be acted on next; nothing before the first reset."""

    def _begin(self) -> None:
        observations, infos = self.envs.reset(seed=self._seed)
        self._observations = self._layout.take_apart(observations)
        self._masks = self._action_masks(observations, infos)
        self._state = self._actor.initial_state(self.envs.num_envs)
        self._starts = np.ones(self.envs.num_envs, dtype=np.bool_)

    def __iter__(self) -> Iterator[Rollout]:
        while not self.is_over:
            yield self.collect()

    @property
    def is_over(self) -> bool:
        """Whether the goal is reached."""
        return self.progress >= 1.0

    @property
    def progress(self) -> float:
        """How much of the way to the goal is behind, 0 to 1."""
        return self.goal.reached(self.step, self.episodes.num_ended)

    def collect(self) -> Rollout:
        """The next rollout."""
        if not self._observations:
            self._begin()
        draft, begun, progress = Draft(self._horizon), time.perf_counter(), self.progress
        for t in range(self._horizon):
            self._advance(draft, t)
        last_values = self._actor.value(tuple(self._observations), self._state)
        self.step += self._horizon * self.envs.num_envs
        taken_s = time.perf_counter() - begun
        stats = self.envs.stats()
        facts = self.episodes.metrics() | {
            "engine/restarts": stats["restarts"],
            "engine/replays": stats["replays"],
            "time/stepping_s": draft.stepping_s,
            "time/inference_s": taken_s - draft.stepping_s,
        }
        return draft.finished(last_values, self.step, self._actor.version, progress, facts)

    def _advance(self, draft: Draft, t: int) -> None:
        seen = draft.see(t, self._observations)
        decision = self._actor.act(seen, self._state, self._masks, self._random)
        draft.decide(t, decision, self._state, self._masks, self._starts)
        begun = time.perf_counter()
        observations, rewards, terminations, truncations, infos = self.envs.step(
            decision.env_actions
        )
        draft.stepping_s += time.perf_counter() - begun
        draft.take(t, rewards, terminations, truncations)
        self._observations = self._layout.take_apart(observations)
        self._masks = self._action_masks(observations, infos)
        self._state = decision.state
        ended = self._starts = terminations | truncations
        lost = infos.get("restarted")
        ids = np.flatnonzero(ended)
        self.episodes.add(rewards, ids, lost)
        if len(ids):
            self._end(draft, t, ids, lost, infos)

    def _end(
        self, draft: Draft, t: int, ids: Array, lost: Array | None, infos: Mapping[str, Any]
    ) -> None:
        """Episodes have ended: the values of their last observations, and nothing remembered."""
        truncated = ids[draft.truncations[t, ids]]
        if lost is not None:
            draft.valid[t] = ~lost
        if len(truncated):
            finals = [self._layout.take_apart(infos["final_obs"][i]) for i in truncated]
            leaves = tuple(np.stack(leaf) for leaf in zip(*finals, strict=True))
            state = None if self._state is None else self._state[truncated]
            draft.final_values[t, truncated] = self._actor.value(leaves, state)
        if self._state is not None:
            self._state = self._state.copy()
            self._state[ids] = 0.0

    # --- to be kept -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Where it and its environments stand: arrays, and what JSON can hold."""
        arrays, envs = standing.pack(self.envs.mementos())
        arrays |= {"random": self._random.get_state().numpy(), "starts": self._starts}
        arrays |= {name: array for name, array in self._kept().items() if array is not None}
        return arrays, {"step": self.step, "episodes": self.episodes.state(), "envs": envs}

    def _kept(self) -> dict[str, Array | None]:
        return {"state": self._state, "masks": self._masks}

    def put_state(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> list[int]:
        """Go on where `state` was taken, with new environments; those whose episodes are lost."""
        mementos = standing.unpack(arrays, about["envs"])
        lost = self.envs.go_on(mementos)
        leaves = zip(*(one.observation for one in mementos), strict=True)
        self._observations = [np.stack(leaf) for leaf in leaves]
        self._random.set_state(torch.from_numpy(arrays["random"].copy()))
        self._starts, self._state = arrays["starts"], arrays.get("state")
        self._masks = arrays.get("masks")
        self.step = about["step"]
        self.episodes.put_state(about["episodes"])
        return lost

    def _action_masks(self, observations: Any, infos: Mapping[str, Any]) -> Array | None:
        masks = mask_in(observations, infos)
        if masks is None:
            return None
        masks = np.asarray(masks).astype(np.bool_)
        present = infos.get(f"_{MASK}")
        return masks if present is None else masks | ~np.asarray(present)[:, None]


class Draft:
    """A rollout in the making."""

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self.stepping_s = 0.0

    def see(self, t: int, observations: list[Array]) -> tuple[Array, ...]:
        """Write down what is seen; where that lies now."""
        if t == 0:
            self._make_room(observations)
        for page, leaf in zip(self.observations, observations, strict=True):
            page[t] = leaf
        return tuple(page[t] for page in self.observations)

    def _make_room(self, observations: list[Array]) -> None:
        self.observations = tuple(self._pages(leaf) for leaf in observations)
        shape = (self._horizon, len(observations[0]))
        self.rewards, self.values, self.log_probs = (np.empty(shape, np.float32) for _ in range(3))
        self.terminations, self.truncations, self.starts = (
            np.empty(shape, np.bool_) for _ in range(3)
        )
        self.valid, self.final_values = np.ones(shape, np.bool_), np.zeros(shape, np.float32)
        self.actions: Array | None = None
        self.states: Array | None = None
        self.masks: Array | None = None

    def _pages(self, first: Array) -> Array:
        return np.empty((self._horizon, *first.shape), first.dtype)

    def decide(
        self, t: int, decision: Decision, state: Array | None, masks: Array | None, starts: Array
    ) -> None:
        """Write down what is done about it, and what the policy remembers."""
        if self.actions is None:
            self.actions = self._pages(decision.actions)
            self.states = None if state is None else self._pages(state)
        self.actions[t] = decision.actions
        self.log_probs[t], self.values[t] = decision.log_probs, decision.values
        self.starts[t] = starts
        if self.states is not None:
            self.states[t] = state
        if masks is not None and self.masks is None:  # all was possible until now
            self.masks = np.ones((self._horizon, *masks.shape), np.bool_)
        if self.masks is not None:
            self.masks[t] = True if masks is None else masks

    def take(self, t: int, rewards: Array, terminations: Array, truncations: Array) -> None:
        """Write down what that came to."""
        self.rewards[t] = rewards
        self.terminations[t], self.truncations[t] = terminations, truncations

    def finished(
        self,
        last_values: Array,
        step: int,
        version: int,
        progress: float,
        facts: Mapping[str, float],
    ) -> Rollout:
        ended = self.terminations | self.truncations
        assert self.actions is not None
        return Rollout(
            observations=self.observations,
            actions=self.actions,
            action_masks=self.masks,
            log_probs=self.log_probs,
            values=self.values,
            next_values=next_values_of(self.values, last_values, self.final_values, ended),
            states=self.states,
            starts=self.starts,
            rewards=self.rewards,
            terminations=self.terminations,
            truncations=self.truncations,
            valid=self.valid,
            step=step,
            version=version,
            progress=progress,
            facts=facts,
        )
