"""Collector: lets policies act in all environments together, and writes down what came of it.

One batched forward pass for all environments, one step of all of them, and so on. Environments
reset in the same step (`autoreset="same_step"`), so every row is a real transition; the last
observation of an episode comes beside it, and its value is asked for where it is needed. Who
decides about what is a matter of the play (`play.py`); when, and how often, is decided here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import torch

from shoal.engine.shelves import is_worth_it
from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.rollout import standing
from shoal.rollout.episodes import Episodes
from shoal.rollout.groups import Group, InTurns, Stepper, Together
from shoal.rollout.play import Made, Play
from shoal.rollout.rollout import Stamp
from shoal.rollout.streams import ACTING, stream
from shoal.vector.env import VectorEnv

log = logging.getLogger("shoal")


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


class Collector(Generic[Made]):
    """Yields rollouts of `horizon` steps of every environment, until the goal is reached.

    `overlap`: one half of the environments steps while policies decide about the other.
    """

    def __init__(
        self,
        envs: VectorEnv,
        play: Play[Made],
        *,
        horizon: int,
        seed: int,
        goal: Goal,
        overlap: bool = False,
    ) -> None:
        self.envs, self.goal = envs, goal
        self.episodes = Episodes(envs.num_envs, goal.episodes, play.agents)
        self._horizon, self._seed = horizon, seed
        self._layout = Layout(envs.single_observation_space)
        self._play = play
        if play.is_in_place and not overlap:
            self._make_pages()
        self._stepper: Stepper = (InTurns if overlap else Together)(envs, self._layout, play.reads)
        ids = np.arange(envs.num_envs)
        self._groups = [
            Group(number, rows, ids[rows], stream(seed, ACTING, number))
            for number, rows in enumerate(self._stepper.rows)
        ]
        self.step = 0
        """Environment steps so far."""
        self._stepping_s = 0.0
        self._has_begun, self._is_whole = False, True
        """Whether environments were reset; whether all that they did since is in some rollout."""

    def _make_pages(self) -> None:
        """Have workers write rollouts where they are read, if there is room and it pays."""
        if not is_worth_it(self._layout, self.envs.num_envs, without=[np.dtype(np.float64)]):
            return  # those are kept in single precision
        try:
            self.envs.make_pages(self._horizon)
        except ConfigError as problem:
            log.info("rollouts are copied, since there is no room for them twice: %s", problem)

    def _begin(self) -> None:
        observations, infos = self.envs.reset(seed=self._seed)
        self._see(self._layout.take_apart(observations), infos)

    def _see(self, leaves: list[Array], infos: Mapping[str, Any]) -> None:
        """What all environments show at first."""
        reads = self._play.reads
        for group in self._groups:
            told = {name: values[group.rows] for name, values in infos.items() if name in reads}
            self._play.see(group, [leaf[group.rows] for leaf in leaves], told)
        self._has_begun = True

    def _get_ready(self) -> None:
        """Begin, or go on after Ctrl-C from where environments are now.

        What they did since the rollout that it broke off belongs to none; of the episodes that run
        returns and lengths are not known any more, and what policies remember may be of others.
        """
        if not self._has_begun:
            self._begin()
        elif not self._is_whole:
            self._stepper.forget()
            observations, infos = self.envs.catch_up()
            self.episodes.doubt()
            for part in self._play.parts.values():
                part.forget()
            self._see(self._layout.take_apart(observations), infos)
            self._is_whole = True

    def __iter__(self) -> Iterator[Made]:
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

    def collect(self) -> Made:
        """The next rollout."""
        self._get_ready()
        self._is_whole = False
        begun, progress = time.perf_counter(), self.progress
        self._stepping_s = 0.0
        self._play.begin(self._horizon, self._groups, self._stepper.pages())
        for group in self._groups:
            self._decide(0, group)
        for t in range(self._horizon):
            for group in self._groups:
                self._take(t, group)
                if t + 1 < self._horizon:
                    self._decide(t + 1, group)
        self._is_whole = True
        self.step += self._horizon * self.envs.num_envs
        facts = self._facts(time.perf_counter() - begun)
        return self._play.finished(self._groups, Stamp(self.step, progress, facts))

    def _facts(self, taken_s: float) -> dict[str, float]:
        stats = self.envs.stats()
        return self.episodes.metrics() | {
            "engine/restarts": stats["restarts"],
            "engine/replays": stats["replays"],
            "time/stepping_s": self._stepping_s,
            "time/inference_s": taken_s - self._stepping_s,
        }

    def _decide(self, t: int, group: Group) -> None:
        """Let policies act in a group, and its environments begin their step."""
        actions = self._play.decide(t, group)
        begun = time.perf_counter()
        self._stepper.begin(group.number, actions, t + 1)
        self._stepping_s += time.perf_counter() - begun

    def _take(self, t: int, group: Group) -> None:
        """Write down what came of it."""
        begun = time.perf_counter()
        moment = self._stepper.finish(group.number)
        self._stepping_s += time.perf_counter() - begun
        gains = self._play.take(t, group, moment)
        ended = np.flatnonzero(moment.terminations | moment.truncations)
        self.episodes.add(group.ids, moment.rewards, ended, moment.infos.get("restarted"), gains)

    # --- to be kept -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Where it and its environments stand: arrays, and what JSON can hold."""
        self._get_ready()
        arrays, envs = standing.pack(self.envs.mementos())
        masks = self._play.masks()
        if masks is not None:
            arrays["masks"] = masks
        for name, part in self._play.parts.items():
            arrays[_named("starts", name)] = part.starts
            if part.state is not None:
                arrays[_named("state", name)] = part.state
        arrays |= {
            _random_of(group.number): group.random.get_state().numpy() for group in self._groups
        }
        return arrays, {"step": self.step, "episodes": self.episodes.state(), "envs": envs}

    def put_state(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> list[int]:
        """Go on where `state` was taken, with new environments; those whose episodes are lost."""
        mementos = standing.unpack(arrays, about["envs"])
        lost = self.envs.go_on(mementos)
        leaves = zip(*(one.observation for one in mementos), strict=True)
        self._see([np.stack(leaf) for leaf in leaves], {})
        for name, part in self._play.parts.items():
            part.starts[:] = arrays[_named("starts", name)]
            if part.state is not None:
                part.state[:] = arrays[_named("state", name)]
        for group in self._groups:
            self._play.put_masks(arrays.get("masks"), group)
            if _random_of(group.number) in arrays:  # not where there were fewer groups
                kept = arrays[_random_of(group.number)]
                group.random.set_state(torch.from_numpy(kept.copy()))
        self.step = about["step"]
        self.episodes.put_state(about["episodes"])
        return lost


def _named(what: str, part: str) -> str:
    return f"{what}.{part}" if part else what


def _random_of(group: int) -> str:
    return "random" if not group else f"random.{group}"
