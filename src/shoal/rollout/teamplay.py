"""Team play: policies that decide about the agents of teams, all of them at every step.

Each agent is a row of its policy's rollout. An agent that is dead, or not born yet, is decided
about too, in the same forward pass; nobody looks at that action, and nothing is learnt from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.layout import Array, Layout
from shoal.rollout.actor import Actor
from shoal.rollout.groups import ENDS, Group, Moment
from shoal.rollout.play import Asked, Part
from shoal.rollout.rollout import Rollouts, Stamp
from shoal.rollout.shares import Share, joined
from shoal.vector.agents.cast import CAST, Cast
from shoal.vector.agents.reading import at_ends
from shoal.vector.agents.together import ALIVE, TERMINATED, TRUNCATED
from shoal.vector.env import VectorEnv


class TeamPlay:
    """Some policies, each of which plays its share of every team."""

    reads = ENDS

    def __init__(
        self, actors: Mapping[str, Actor], shares: Mapping[str, Share], envs: VectorEnv
    ) -> None:
        self._cast: Cast = envs.metadata[CAST]
        self._layout, num_envs = Layout(envs.single_observation_space), envs.num_envs
        self._shares = dict(shares)
        self.parts = {
            name: Part(actors[name], share.layout, len(share) * num_envs, len(share) * num_envs)
            for name, share in shares.items()
        }
        self.agents = tuple(map(str, self._cast.names))
        self._alive = np.zeros((num_envs, len(self._cast)), np.bool_)
        self._asked: dict[tuple[int, str], Asked] = {}
        self._noise: dict[tuple[int, str], Any] = {}
        self._num_steps = 0

    is_in_place = False

    def begin(self, horizon: int, groups: Sequence[Group], pages: Sequence[Array] | None) -> None:
        self._num_steps = horizon * len(self._alive)
        for name, part in self.parts.items():
            part.begin(horizon)
            for group in groups:
                count = len(group.ids) * len(self._shares[name])
                self._noise[group.number, name] = part.actor.noise(horizon, count, group.random)

    def see(self, group: Group, leaves: list[Array], infos: Mapping[str, Any]) -> None:
        told = self._layout.assemble(leaves)
        alive = self._alive[group.rows] = told["flags"][:, ALIVE].astype(np.bool_)
        for name, share in self._shares.items():
            rows = _rows_of(group, len(share))
            masks = share.possible(told.get("masks"), alive)
            seen = share.seen_at_once(told["observations"])
            self._asked[group.number, name] = Asked(rows, rows, slice(None), seen, masks)

    def decide(self, t: int, group: Group) -> Any:
        actions = [
            part.decide(t, self._asked[group.number, name], self._noise[group.number, name][t])
            for name, part in self.parts.items()
        ]
        return joined(self._cast, list(self._shares.values()), actions)

    def take(self, t: int, group: Group, moment: Moment) -> Array:
        told, infos = self._layout.assemble(moment.observations), moment.infos
        before = self._alive[group.rows].copy()
        rewards, flags = at_ends(told, infos, before)
        terminated, truncated = self._ended(moment, flags, before)
        lost = infos.get("restarted", np.zeros(len(before), np.bool_))
        for name, share in self._shares.items():
            part, rows = self.parts[name], _rows_of(group, len(share))
            part.draft.take(
                t, rows, share.column(rewards), share.column(terminated), share.column(truncated)
            )
            part.draft.valid[t, rows] = share.column(before & ~lost[:, None])
            self._finals(t, group, name, told, infos, share.column(truncated & before))
            part.end(rows, share.column(terminated | truncated | ~before))
        self.see(group, moment.observations, infos)
        return rewards

    def _ended(self, moment: Moment, flags: Array, before: Array) -> tuple[Array, Array]:
        """For whom this was the last step: also who has gone without a word has ended."""
        terminated, truncated = flags[:, TERMINATED], flags[:, TRUNCATED]
        is_over = moment.terminations | moment.truncations
        gone = before & (is_over[:, None] | ~flags[:, ALIVE]) & ~truncated
        return (terminated | gone) & before, truncated & before

    def _finals(
        self,
        t: int,
        group: Group,
        name: str,
        told: Mapping[str, Any],
        infos: Mapping[str, Any],
        truncated: Array,
    ) -> None:
        """The values of what truncated agents saw last."""
        places = np.flatnonzero(truncated)
        if not len(places):
            return
        share, part = self._shares[name], self.parts[name]
        seen = share.seen_at_once(_last_seen(told, infos))
        rows = np.arange(len(part.starts))[_rows_of(group, len(share))][places]
        part.draft.final_values[t, rows] = part.value([leaf[places] for leaf in seen], rows)

    def finished(self, groups: Sequence[Group], stamp: Stamp) -> Rollouts:
        made = {}
        for name, part in self.parts.items():
            last_values = np.empty(len(part.starts), np.float32)
            for group in groups:
                asked = self._asked[group.number, name]
                last_values[asked.rows] = part.value(asked.leaves, asked.seats)
            made[name] = part.finished(last_values, stamp)
        return Rollouts(made, self._num_steps, **stamp._asdict())

    def masks(self) -> Array | None:
        return None  # what is possible is a part of what is observed

    def put_masks(self, masks: Array | None, group: Group) -> None: ...


def _rows_of(group: Group, width: int) -> slice | Array:
    """Rows of the agents of a group, environment by environment."""
    if group.rows == slice(None):
        return slice(None)
    rows: Array = (group.ids[:, None] * width + np.arange(width)).reshape(-1)
    return rows


def _last_seen(told: Mapping[str, Any], infos: Mapping[str, Any]) -> Any:
    """What agents saw last: where an episode is over, that is not what they see now."""
    finals = infos.get("final_obs")
    if finals is None:
        return told["observations"]
    return _replaced(
        told["observations"],
        [(at, one["observations"]) for at, one in enumerate(finals) if one is not None],
    )


def _replaced(now: Any, finals: Sequence[tuple[int, Any]]) -> Any:
    if isinstance(now, dict):
        return {key: _replaced(one, [(at, f[key]) for at, f in finals]) for key, one in now.items()}
    if isinstance(now, tuple):
        return tuple(_replaced(one, [(at, f[k]) for at, f in finals]) for k, one in enumerate(now))
    then = now.copy()
    for at, final in finals:
        then[at] = final
    return then
