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
from gymnasium import spaces

from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.rollout import standing
from shoal.rollout.actor import Actor
from shoal.rollout.draft import Draft
from shoal.rollout.episodes import Episodes
from shoal.rollout.groups import MASK, InTurns, Moment, Stepper, Together
from shoal.rollout.rollout import Rollout
from shoal.rollout.streams import ACTING, stream
from shoal.vector.env import VectorEnv


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


@dataclass(slots=True)
class Group:
    """Environments that are decided about together, and how far they have come."""

    rows: slice
    ids: Array
    random: torch.Generator
    observations: list[Array]
    """What is to be acted on next."""
    masks: Array | None
    state: Array | None
    """What the policy remembers."""
    starts: Array
    noise: Any = None
    """The chance in what is decided during this rollout."""


class Collector:
    """Yields rollouts of `horizon` steps of every environment, until the goal is reached.

    `overlap`: one half of the environments steps while the policy decides about the other.
    """

    def __init__(
        self,
        envs: VectorEnv,
        actor: Actor,
        *,
        horizon: int,
        seed: int,
        goal: Goal,
        overlap: bool = False,
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
        space = envs.single_observation_space
        self._has_masks = isinstance(space, spaces.Dict) and MASK in space.spaces
        self._stepper: Stepper = (InTurns if overlap else Together)(envs, self._layout)
        self._seed = seed
        self.step = 0
        """Environment steps so far."""
        self._groups: list[Group] = []
        """None before the first reset."""

    def _begin(self) -> None:
        observations, infos = self.envs.reset(seed=self._seed)
        num_envs = self.envs.num_envs
        self._groups = self._in_groups(
            self._layout.take_apart(observations),
            self._action_masks(mask_in(observations, infos), infos),
            self._actor.initial_state(num_envs),
            np.ones(num_envs, dtype=np.bool_),
        )

    def _in_groups(
        self, leaves: list[Array], masks: Array | None, state: Array | None, starts: Array
    ) -> list[Group]:
        """What is said of all, said of each group."""
        ids = np.arange(len(starts))
        return [
            Group(
                rows,
                ids[rows],
                stream(self._seed, ACTING, number),
                [leaf[rows] for leaf in leaves],
                None if masks is None else masks[rows],
                None if state is None else state[rows],
                starts[rows],
            )
            for number, rows in enumerate(self._stepper.rows)
        ]

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
        if not self._groups:
            self._begin()
        for number, moment in self._stepper.settle().items():
            self._see(self._groups[number], moment)
        begun, progress = time.perf_counter(), self.progress
        draft = Draft(self._horizon, self.envs.num_envs, self._actor.room)
        for group in self._groups:
            group.noise = self._actor.noise(self._horizon, len(group.ids), group.random)
        for number in range(len(self._groups)):
            self._decide(draft, 0, number)
        for t in range(self._horizon):
            for number in range(len(self._groups)):
                self._take(draft, t, number)
                if t + 1 < self._horizon:
                    self._decide(draft, t + 1, number)
        last_values = np.empty(self.envs.num_envs, np.float32)
        for group in self._groups:
            last_values[group.rows] = self._actor.value(tuple(group.observations), group.state)
        self.step += self._horizon * self.envs.num_envs
        facts = self._facts(time.perf_counter() - begun, draft.stepping_s)
        return draft.finished(last_values, self.step, self._actor.version, progress, facts)

    def _facts(self, taken_s: float, stepping_s: float) -> dict[str, float]:
        stats = self.envs.stats()
        return self.episodes.metrics() | {
            "engine/restarts": stats["restarts"],
            "engine/replays": stats["replays"],
            "time/stepping_s": stepping_s,
            "time/inference_s": taken_s - stepping_s,
        }

    def _decide(self, draft: Draft, t: int, number: int) -> None:
        """Let the policy act in a group, and its environments begin their step."""
        group = self._groups[number]
        seen = draft.see(t, group.rows, group.observations)
        decision = self._actor.act(seen, group.state, group.masks, group.noise[t])
        draft.decide(t, group.rows, decision, group.state, group.masks, group.starts)
        group.state = decision.state
        begun = time.perf_counter()
        self._stepper.begin(number, decision.env_actions)
        draft.stepping_s += time.perf_counter() - begun

    def _take(self, draft: Draft, t: int, number: int) -> None:
        """Write down what came of it."""
        group, begun = self._groups[number], time.perf_counter()
        moment = self._stepper.finish(number)
        _, rewards, terminations, truncations, infos = moment
        draft.stepping_s += time.perf_counter() - begun
        draft.take(t, group.rows, rewards, terminations, truncations)
        self._see(group, moment)
        lost = infos.get("restarted")
        places = np.flatnonzero(group.starts)
        self.episodes.add(group.ids, rewards, places, lost)
        if len(places):
            self._end(draft, t, group, places, lost, infos)

    def _see(self, group: Group, moment: Moment) -> None:
        """What is to be acted on next."""
        group.observations = moment.observations
        group.masks = self._masks_in(moment.observations, moment.infos)
        group.starts = moment.terminations | moment.truncations

    def _end(
        self,
        draft: Draft,
        t: int,
        group: Group,
        places: Array,
        lost: Array | None,
        infos: Mapping[str, Any],
    ) -> None:
        """Episodes have ended: the values of their last observations, and nothing remembered."""
        truncated = places[draft.truncations[t, group.ids[places]]]
        if lost is not None:
            draft.valid[t, group.rows] = ~lost
        if len(truncated):
            finals = [self._layout.take_apart(infos["final_obs"][i]) for i in truncated]
            leaves = tuple(np.stack(leaf) for leaf in zip(*finals, strict=True))
            state = None if group.state is None else group.state[truncated]
            draft.final_values[t, group.ids[truncated]] = self._actor.value(leaves, state)
        if group.state is not None:
            group.state = group.state.copy()
            group.state[places] = 0.0

    def _masks_in(self, leaves: list[Array], infos: Mapping[str, Any]) -> Array | None:
        if MASK not in infos and not self._has_masks:
            return None
        observation = self._layout.assemble(leaves) if self._has_masks else None
        return self._action_masks(mask_in(observation, infos), infos)

    def _action_masks(self, masks: Any, infos: Mapping[str, Any]) -> Array | None:
        if masks is None:
            return None
        possible, present = np.asarray(masks), infos.get(f"_{MASK}")
        if possible.dtype == object:  # lists, or tuples of one for each choice
            said = [one for one in possible if one is not None]
            if not said:
                return None
            possible = _stacked(possible, said[0])
        possible = possible.astype(np.bool_)
        return possible if present is None else possible | ~np.asarray(present)[:, None]

    # --- to be kept -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Where it and its environments stand: arrays, and what JSON can hold."""
        if not self._groups:
            self._begin()
        arrays, envs = standing.pack(self.envs.mementos())
        for name in ("state", "masks", "starts"):
            whole = self._whole(name)
            if whole is not None:
                arrays[name] = whole
        arrays |= {
            _random_of(number): group.random.get_state().numpy()
            for number, group in enumerate(self._groups)
        }
        return arrays, {"step": self.step, "episodes": self.episodes.state(), "envs": envs}

    def _whole(self, name: str) -> Array | None:
        """What is known of each group, of all environments; where nothing is, all is possible."""
        parts = [(group.rows, getattr(group, name)) for group in self._groups]
        known = [part for _, part in parts if part is not None]
        if not known:
            return None
        whole: Array = np.ones((self.envs.num_envs, *known[0].shape[1:]), known[0].dtype)
        for rows, part in parts:
            if part is not None:
                whole[rows] = part
        return whole

    def put_state(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> list[int]:
        """Go on where `state` was taken, with new environments; those whose episodes are lost."""
        mementos = standing.unpack(arrays, about["envs"])
        lost = self.envs.go_on(mementos)
        leaves = zip(*(one.observation for one in mementos), strict=True)
        observations = [np.stack(leaf) for leaf in leaves]
        masks, state = arrays.get("masks"), arrays.get("state")
        self._groups = self._in_groups(observations, masks, state, arrays["starts"])
        for number, group in enumerate(self._groups):
            if _random_of(number) in arrays:  # not where there were fewer groups
                group.random.set_state(torch.from_numpy(arrays[_random_of(number)].copy()))
        self.step = about["step"]
        self.episodes.put_state(about["episodes"])
        return lost


def _stacked(masks: Array, like: Any) -> Array:
    """Those of all environments, as numbers; one who has said nothing forbids nothing."""
    free = np.ones_like(_flat(like))
    return np.stack([free if one is None else _flat(one) for one in masks])


def _flat(mask: Any) -> Array:
    return np.hstack([np.asarray(part) for part in mask])


def _random_of(group: int) -> str:
    return "random" if not group else f"random.{group}"
