"""Turn play: policies that decide about agents who take turns, each when it is that agent's.

What an action came to is told when the turn comes round to the same agent again, some steps later.
So steps are written down as they happen, one decision in each environment at a time, and put into
the order of each agent when the rollout is complete (`arrange`). A decision of which nothing was
told by then is left out: its value is what the one before it led to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from shoal.layout import Array, Layout
from shoal.rollout.actor import Actor
from shoal.rollout.draft import Rows
from shoal.rollout.groups import ENDS, Group, Moment
from shoal.rollout.order import Tidings, arrange, in_order
from shoal.rollout.play import Asked, Part
from shoal.rollout.rollout import Rollouts, Stamp
from shoal.rollout.shares import Share
from shoal.vector.agents.cast import CAST, Cast
from shoal.vector.agents.reading import nothing
from shoal.vector.env import VectorEnv

TERMINATED, TRUNCATED = range(2)
"""Rows of `flags`."""


class TurnPlay:
    """Some policies, each of which takes the turns of its share of agents.

    In a part of all environments, `by_chance`, all agents but one act by chance: against nobody but
    themselves, policies may forget how to play against others.
    """

    reads = ENDS

    def __init__(
        self,
        actors: Mapping[str, Actor],
        shares: Mapping[str, Share],
        envs: VectorEnv,
        by_chance: float = 0.0,
    ) -> None:
        self._cast: Cast = envs.metadata[CAST]
        self._layout, self._num_envs = Layout(envs.single_observation_space), envs.num_envs
        self._shares = dict(shares)
        num_seats = self._num_envs * len(self._cast)
        self.parts = {
            name: Part(actors[name], share.layout, self._num_envs, num_seats)
            for name, share in shares.items()
        }
        self.agents = tuple(map(str, self._cast.names))
        self._seats = _seats(self._num_envs, len(self._cast), by_chance)
        self._luck: dict[int, Array] = {}
        self._now: dict[int, dict[str, Any]] = {}
        """What the environments of each group tell."""
        self._noise: dict[tuple[int, str], Any] = {}
        self._tidings = Tidings.blank(0, self._num_envs)
        self._decided: dict[str, Array] = {}

    is_in_place = False

    def begin(self, horizon: int, groups: Sequence[Group], pages: Sequence[Array] | None) -> None:
        self._tidings = Tidings.blank(horizon, self._num_envs)
        for group in groups:
            self._tell(0, group)
            if (self._seats >= 0).any():
                shape = (horizon, len(group.ids))
                self._luck[group.number] = torch.rand(shape, generator=group.random).numpy()
        for name, part in self.parts.items():
            part.begin(horizon)
            self._decided[name] = np.zeros((horizon, self._num_envs), np.bool_)
            for group in groups:
                noise = part.actor.noise(horizon, len(group.ids), group.random)
                self._noise[group.number, name] = noise

    def see(self, group: Group, leaves: list[Array], infos: Mapping[str, Any]) -> None:
        self._now[group.number] = self._layout.assemble(leaves)

    def _tell(self, t: int, group: Group) -> None:
        """Write down whose turn it is, and what that agent is told."""
        told, rows = self._now[group.number], group.rows
        self._tidings.agents[t, rows], self._tidings.rewards[t, rows] = (
            told["agent"],
            told["reward"],
        )
        self._tidings.terminations[t, rows] = told["flags"][:, TERMINATED]
        self._tidings.truncations[t, rows] = told["flags"][:, TRUNCATED]

    def decide(self, t: int, group: Group) -> Any:
        actions = self._room(len(group.ids))
        for name, asked in self._asked(group).items():
            done = self.parts[name].decide(t, asked, self._noise[group.number, name][t])
            self.parts[name].starts[asked.seats] = False
            self._decided[name][t, asked.rows] = True
            if group.number in self._luck:
                self._leave_to_chance(t, group, name, asked, done)
            self._put(actions, asked.places, name, done)
        return actions

    def _leave_to_chance(self, t: int, group: Group, name: str, asked: Asked, done: Array) -> None:
        """Where somebody else than the agent that learns has a turn, nobody decides."""
        agents = self._now[group.number]["agent"][asked.places]
        seats, luck = self._seats[asked.rows], self._luck[group.number][t, asked.places]
        others = np.flatnonzero((seats >= 0) & (seats != agents))
        space = self._shares[name].action_space
        done[others] = [
            _drawn(space, None if asked.masks is None else asked.masks[k], luck[k]) for k in others
        ]
        self._decided[name][t, asked.rows] = (seats < 0) | (seats == agents)

    def _asked(self, group: Group) -> dict[str, Asked]:
        """Who has a turn and lives, by policy."""
        told = self._now[group.number]
        lives = ~told["flags"].astype(np.bool_).any(axis=1)
        found = {}
        for name, share in self._shares.items():
            places = np.flatnonzero(lives & np.isin(told["agent"], share.agents))
            if len(places):
                ids, agents = group.ids[places], told["agent"][places]
                seats = ids * len(self._cast) + agents
                seen = self._seen(told, share, places)
                found[name] = Asked(ids, seats, places, seen, _possible(told, share, places))
        return found

    def _seen(self, told: Mapping[str, Any], share: Share, places: Array) -> list[Array]:
        """What the agents whose turn it is at these places see."""
        if self._cast.sees_alike:
            return [leaf[places] for leaf in share.layout.take_apart(told["observation"])]
        each = {k: share.layout.take_apart(told["observation"][k]) for k in share.agents.tolist()}
        agents = told["agent"][places].tolist()
        rows = [[leaf[at] for leaf in each[k]] for at, k in zip(places, agents, strict=True)]
        return [np.stack(leaf) for leaf in zip(*rows, strict=True)]

    def _room(self, count: int) -> Any:
        """Actions that nobody has decided about yet."""
        spaces = self._cast.action_spaces
        if self._cast.acts_alike:
            return nothing(spaces[0], count)
        return tuple(nothing(space, count) for space in spaces)

    def _put(self, actions: Any, places: Rows, name: str, done: Array) -> None:
        if self._cast.acts_alike:
            actions[places] = done
        else:  # nobody looks at that of an agent whose turn it is not
            for k in self._shares[name].agents:
                actions[k][places] = done

    def take(self, t: int, group: Group, moment: Moment) -> Array:
        self._go_on(group, moment)
        self._tell(t + 1, group)
        self._tidings.begins[t + 1, group.rows] = moment.terminations | moment.truncations
        told = self._now[group.number]
        for name, share in self._shares.items():
            is_own = np.isin(told["agent"], share.agents)
            places = np.flatnonzero(is_own & told["flags"][:, TRUNCATED].astype(np.bool_))
            if len(places):
                ids = group.ids[places]
                seats = ids * len(self._cast) + told["agent"][places]
                seen = self._seen(told, share, places)
                self._tidings.values[t + 1, ids] = self.parts[name].value(seen, seats)
        gains = np.zeros((len(group.ids), len(self._cast)))
        gains[np.arange(len(gains)), told["agent"]] = told["reward"]
        return gains

    def _go_on(self, group: Group, moment: Moment) -> None:
        """See what came of a step; of agents for whom it was the last one nothing is remembered."""
        self.see(group, moment.observations, moment.infos)
        told, count = self._now[group.number], len(self._cast)
        is_over = moment.terminations | moment.truncations
        gone = told["flags"].astype(np.bool_).any(axis=1)
        seats = group.ids[:, None] * count + np.arange(count)
        ended = np.concatenate(
            [seats[is_over].reshape(-1), group.ids[gone] * count + told["agent"][gone]]
        )
        if len(ended):
            for part in self.parts.values():
                part.end(ended, np.ones(len(ended), np.bool_))

    def finished(self, groups: Sequence[Group], stamp: Stamp) -> Rollouts:
        for group in groups:
            for name, asked in self._asked(group).items():
                values = self.parts[name].value(asked.leaves, asked.seats)
                self._tidings.values[-1, asked.rows] = values
        made = {}
        for name, part in self.parts.items():
            decided, agents = self._decided[name], self._shares[name].agents
            order = arrange(decided, agents, part.draft.values, self._tidings)
            rollout = in_order(part.draft, order, part.actor.version, stamp)
            if rollout is not None:  # somebody of that share had a turn
                made[name] = rollout
        num_steps = (len(self._tidings.agents) - 1) * self._num_envs
        return Rollouts(made, num_steps, **stamp._asdict())

    def masks(self) -> Array | None:
        return None  # what is possible is a part of what is observed

    def put_masks(self, masks: Array | None, group: Group) -> None: ...


def _seats(num_envs: int, num_agents: int, by_chance: float) -> Array:
    """The agent of each environment that learns against chance; -1 where all of them learn."""
    ids = np.arange(num_envs)
    return np.where(ids < round(by_chance * num_envs), ids % num_agents, -1)


def _drawn(space: Any, mask: Array | None, luck: float) -> Any:
    """One of the possible actions; `luck` is from 0 to 1."""
    choices = np.arange(space.n) if mask is None else np.flatnonzero(mask)
    return space.start + choices[int(luck * len(choices))]


def _possible(told: Mapping[str, Any], share: Share, places: Array) -> Array | None:
    if "mask" not in told or not share.choices:
        return None
    masks: Array = told["mask"][places, : share.choices].astype(np.bool_)
    return None if masks.all() else masks
