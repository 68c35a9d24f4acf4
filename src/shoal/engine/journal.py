"""The journal: what the caller remembers of each environment, so that it can be rebuilt.

Of every environment its attributes, seeds and planned reset; of its running episode how it began
and every action since. All of that is the journal's own: what becomes later of the options, values
and actions that were given changes nothing here. The actions of one step are one row of a ring as
long as the longest running episode, so that recording a step of all environments is a single copy.

What an environment is called, here and wherever it is brought back:

    over       its episode has ended, and its reset is still to come
    fresh      rebuilt as if it were new, and not reset since
    lost       fresh, and its next step is still to report the episode that it lost
    whole      every step of its episode is on record, so it can be replayed
    doubtful   it may have taken a step that is not on record, or is there twice
    astray     doubtful, and that step was one that resets              (`books.py`)
    failed     the command under way came to nothing for it             (`seat.py`)
    mending    it raised, and is being rebuilt beside its mates         (`supervisor.py`)
    doomed     it failed twice at one step: restarted, not replayed     (`supervisor.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.engine import generators
from shoal.engine.commands import Episode, Recovery, ResetArgs
from shoal.engine.keep import kept_each
from shoal.engine.rows import Rows
from shoal.layout import Array
from shoal.seeding import Seed, env_seed

_FIRST_CAPACITY = 64
_AS_IT_LIKES = ResetArgs()


@dataclass(slots=True)
class Entry:
    """What is remembered of one environment, and is not the same for nearly all of them."""

    args: ResetArgs = _AS_IT_LIKES
    """How its running episode was begun."""
    odd_generator: Any = None
    """A state that did not fit into a row; set before the episode that it belongs to begins."""
    planned: ResetArgs | None = None
    """What the caller wants its next automatic reset to use."""
    seed: Seed = None
    """The last one that an explicit reset gave it."""
    num_restarts: int = 0
    is_fresh: bool = False
    """Whether it was restarted and not reset since."""
    is_doubtful: bool = False
    """Whether the record of the running episode may lack a step, by Ctrl-C or an exception."""
    attributes: dict[str, Any] = field(default_factory=dict)
    changes: list[tuple[int, str, Any]] = field(default_factory=list)
    objects: dict[int, Any] = field(default_factory=dict)


class Journal:
    """Records steps and resets as they are completed. `limit_steps` bounds an episode's record."""

    def __init__(self, rows: Rows, limit_steps: int) -> None:
        self._rows, self._limit = rows, limit_steps
        num_envs = rows.shape.num_envs
        self.entries = [Entry() for _ in range(num_envs)]
        self._capacity = min(_FIRST_CAPACITY, limit_steps or _FIRST_CAPACITY)
        self._use(self._rings_of(self._capacity), self._capacity)
        self._time = 0
        """Steps so far, as long as all environments have taken equally many."""
        self._times: Array | None = None
        """Steps of each environment, once they differ."""
        self._starts = [0] * num_envs
        self._is_whole = [limit_steps > 0] * num_envs
        self._room = self._capacity
        """How many more steps surely find room in the ring."""
        self._returns = np.zeros(num_envs)
        self._generators = [b""] * num_envs
        """The states with which the running episodes began."""
        self.num_episodes = [0] * num_envs
        self.is_over = [False] * num_envs
        self._special: set[int] = set()
        """Environments for whose entries there is something to do when an episode begins."""

    def _rings_of(self, capacity: int) -> list[Array]:
        return [np.empty((capacity, *one.shape), one.dtype) for one in self._rows.actions]

    def _use(self, rings: list[Array], capacity: int) -> None:
        recorded = list(zip(rings, self._rows.actions, strict=True))
        self._rings, self._recorded, self._capacity = rings, recorded, capacity  # all, or none

    def take_over(self, other: Journal, count: int) -> None:
        """Go on where a journal of other rows was, for its first environments."""
        self.entries[:count] = other.entries[:count]
        self._capacity, self._time = other._capacity, other._time
        self._times = np.full(len(self.entries), other._time)
        self._times[:count] = other._all_times()[:count]
        self._starts, self._room = self._times.tolist(), 0
        for mine, theirs in zip(self._of_each(), other._of_each(), strict=True):
            mine[:count] = theirs[:count]
        self._special = {env_id for env_id in other._special if env_id < count}
        self._use(self._rings_of(self._capacity), self._capacity)
        for ring, old in zip(self._rings, other._rings, strict=True):
            ring[:, :count] = old[:, :count]

    def go_on(self, entries: Sequence[Entry], episodes: Sequence[Episode | None]) -> None:
        """Be the journal of environments that have just been brought into these episodes.

        It has recorded nothing before. An episode that is None, or longer than may be recorded, is
        not on record.
        """
        lengths = [0 if one is None else one.length for one in episodes]
        self.entries, self._time = list(entries), max(lengths)
        while self._capacity <= self._time and self._capacity < self._limit:
            self._grow(self._all_times())
        for env_id, episode in enumerate(episodes):
            self._starts[env_id] = self._time - lengths[env_id]
            self._is_whole[env_id] = episode is not None and lengths[env_id] < self._capacity
            if episode is not None:
                self._put_episode(env_id, episode)
        self._special, self._room = set(range(len(entries))), 0

    def _put_episode(self, env_id: int, episode: Episode) -> None:
        self._returns[env_id] = episode.episode_return
        self.is_over[env_id] = episode.is_over
        row = bytearray(len(self._rows.generators[env_id]))
        self.entries[env_id].odd_generator = generators.write(episode.generator, memoryview(row))
        self._generators[env_id] = bytes(row)
        if self._is_whole[env_id]:
            moments = np.arange(self._starts[env_id], self._time) % self._capacity
            for ring, actions in zip(self._rings, episode.actions, strict=True):
                ring[moments, env_id] = actions

    def _of_each(self) -> tuple[Any, ...]:
        """What is kept of the episode of every environment, times aside."""
        episodes = (self._starts, self._is_whole, self._returns, self._generators)
        return (*episodes, self.num_episodes, self.is_over)

    # --- recording --------------------------------------------------------------------------

    def add(self, env_ids: Sequence[int] | None) -> None:
        """Environments (None: all) have taken the step whose actions are in the rows."""
        if not self._room:
            self._make_room()
        self._room -= 1
        if env_ids is None and self._times is None:
            at, self._time = self._time % self._capacity, self._time + 1
            for ring, actions in self._recorded:
                ring[at] = actions
        else:
            self._add_some(range(len(self.entries)) if env_ids is None else env_ids)

    def _add_some(self, env_ids: Sequence[int]) -> None:
        ids = np.asarray(env_ids)
        if self._times is None:
            self._times = np.full(len(self.entries), self._time)
        at = self._times[ids] % self._capacity
        for ring, actions in self._recorded:
            ring[at, ids] = actions[ids]
        self._times[ids] += 1

    def add_rewards(self, env_ids: Sequence[int] | None, rewards: Array) -> None:
        """What the step that was added last has brought them."""
        if env_ids is None:
            np.add(self._returns, rewards, self._returns)
        else:
            self._returns[env_ids] += rewards

    def add_objects(self, objects: Mapping[int, Any]) -> None:
        """Parts of actions that have no row, of a step that is about to be added."""
        self._special.update(objects)
        for env_id, parts in objects.items():
            self.entries[env_id].objects[self.length(env_id)] = parts

    def begin(self, env_ids: Iterable[int], args: dict[int, ResetArgs] | None = None) -> None:
        """Episodes have begun: as the caller said, or (None) by automatic resets."""
        now, times, states = self._time, self._times, self._rows.generators
        given = None if args is None else own_args(args)
        for env_id in env_ids:
            self._starts[env_id] = now if times is None else int(times[env_id])
            self._is_whole[env_id] = self._limit > 0
            self._returns[env_id] = 0.0
            self._generators[env_id] = states[env_id].tobytes()
            self.num_episodes[env_id] += 1
            self.is_over[env_id] = False
            if given is not None:
                self._begin_special(env_id, given[env_id])
            elif env_id in self._special:
                self._begin_special(env_id, self._next_reset(env_id) or _AS_IT_LIKES)

    def _begin_special(self, env_id: int, args: ResetArgs) -> None:
        entry = self.entries[env_id]
        entry.args, entry.planned = args, None
        entry.is_fresh = entry.is_doubtful = False
        if entry.objects:
            entry.objects = {}
        if entry.changes:
            entry.attributes = self.attributes_of(env_id)
            entry.changes = []
        (self._special.discard if args == _AS_IT_LIKES else self._special.add)(env_id)

    def note_seeds(self, plan: Mapping[int, tuple[Seed, Any]]) -> None:
        """An explicit reset has given seeds: what later restarts derive theirs from."""
        for env_id, (seed, _) in plan.items():
            if seed is not None:
                self.entries[env_id].seed = seed

    def plan(self, args: dict[int, ResetArgs]) -> None:
        """What the next automatic resets use."""
        self._special.update(args)
        for env_id, one in own_args(args).items():
            self.entries[env_id].planned = one

    def branch(
        self, env_id: int, into_ids: Sequence[int], attributes: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Other environments have taken the steps of this one's episode, with these attributes."""
        origin = self.entries[env_id]
        for target in into_ids:
            entry, num_episodes = self.entries[target], self.num_episodes[target]
            self.entries[target] = replace(
                origin,
                planned=entry.planned,
                seed=entry.seed,
                num_restarts=entry.num_restarts,
                attributes=dict(attributes[target]),
                changes=list(origin.changes),
                objects=dict(origin.objects),
            )
            for ring in self._rings:
                ring[:, target] = ring[:, env_id]
            for array in self._of_each():
                array[target] = array[env_id]
            if self._times is not None:
                self._times[target] = self._times[env_id]
            self.num_episodes[target] = num_episodes + 1
        self._special.update(into_ids)

    def attributes_of(self, env_id: int) -> dict[str, Any]:
        """What the caller has set, as it is now, in the order in which it was set last."""
        entry = self.entries[env_id]
        attributes = dict(entry.attributes)
        for _, name, value in entry.changes:
            _set_last(attributes, name, value)
        return attributes

    def explicit(self, env_id: int, args: ResetArgs) -> ResetArgs:
        """What an explicit reset comes to: a restarted environment gets a seed of its own."""
        entry = self.entries[env_id]
        if entry.is_fresh and (args.seed is None or args.is_derived):
            return args._replace(seed=self._fresh_seed(env_id), is_derived=True)
        return args

    def end(self, env_ids: Iterable[int]) -> None:
        """Episodes are over, and the resets are still to come."""
        for env_id in env_ids:
            self.is_over[env_id] = True

    def ended(self, env_ids: Iterable[int]) -> list[tuple[float, int]]:
        """Returns and lengths of episodes of which the last step was just added.

        Those of which a step may be missing are left out; and in a vector environment that
        was lost those that were over already, which end once more, with the others. A step that
        tells a loss is not one of the episode.
        """
        episodes = []
        for env_id in env_ids:
            length = self.length(env_id)
            if env_id in self._special:
                entry = self.entries[env_id]
                if entry.is_doubtful or (entry.is_fresh and self.is_over[env_id]):
                    continue
                length -= entry.is_fresh
            episodes.append((self._returns.item(env_id), length))
        return episodes

    def set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        """An environment in this process has the value itself, and so has one that replaces it."""
        if self._rows.memory is not None:
            values = kept_each(values)
        for env_id, value in values.items():
            entry = self.entries[env_id]
            if self.num_episodes[env_id]:
                self._special.add(env_id)
                entry.changes.append((self.length(env_id), name, value))
            else:
                _set_last(entry.attributes, name, value)

    def distrust(self, env_ids: Sequence[int]) -> None:
        """Steps of these may be missing here, or be here twice: until their next episodes begin
        they cannot be rebuilt from this."""
        self._special.update(env_ids)
        for env_id in env_ids:
            self.entries[env_id].is_doubtful = True
            self._is_whole[env_id] = False

    def _make_room(self) -> None:
        """Lengthen the ring, or, where it is as long as it may be, give up what is too long."""
        times = self._all_times()
        lengths, is_whole = times - np.array(self._starts), np.array(self._is_whole)
        if 2 * lengths[is_whole].max(initial=0) > self._capacity < self._limit:
            self._grow(times)
        is_whole &= lengths < self._capacity
        self._is_whole = is_whole.tolist()
        self._room = self._capacity - int(lengths[is_whole].max(initial=0))

    def _grow(self, times: Array) -> None:
        old, capacity = self._capacity, min(2 * self._capacity, self._limit)
        rings = self._rings_of(capacity)
        moments = times + np.arange(-old, 0)[:, None]  # [old, num_envs]
        envs = np.arange(len(times))
        for ring, grown in zip(self._rings, rings, strict=True):
            grown[moments % capacity, envs] = ring[moments % old, envs]
        self._use(rings, capacity)

    # --- reading ----------------------------------------------------------------------------

    def _all_times(self) -> Array:
        return np.full(len(self.entries), self._time) if self._times is None else self._times

    def length(self, env_id: int) -> int:
        """Steps of the running episode."""
        now = self._time if self._times is None else self._times[env_id]
        return int(now - self._starts[env_id])

    def episode(self, env_id: int) -> Episode | None:
        """All about the running (or just ended) episode; None where its record is not complete."""
        entry = self.entries[env_id]
        if not self.num_episodes[env_id] or not self._is_whole[env_id]:
            return None
        length, first = self.length(env_id), self._starts[env_id]
        moments = np.arange(first, first + length) % self._capacity
        return Episode(
            args=entry.args,
            generator=generators.state_of(self._generators[env_id], entry.odd_generator),
            actions=[ring[moments, env_id] for ring in self._rings],
            objects=dict(entry.objects),
            changes=list(entry.changes),
            length=length,
            episode_return=float(self._returns[env_id]),
            is_over=self.is_over[env_id],
        )

    def replay(self, env_id: int, slot: int, objects: tuple[Any, ...]) -> Recovery | None:
        """How to bring an environment to where it is; None where that is not known.

        Nor is one brought back whose episode was given up already, told or not.
        """
        entry, episode = self.entries[env_id], self.episode(env_id)
        if entry.is_fresh or (episode is None and self.num_episodes[env_id]):
            return None
        recovery = self.standing(env_id, slot, objects)
        return replace(recovery, attributes=dict(entry.attributes), episode=episode)

    def restart(self, env_id: int, slot: int, objects: tuple[Any, ...]) -> Recovery:
        """How to let an environment begin anew, its running episode being lost."""
        entry = self.entries[env_id]
        entry.num_restarts += 1
        entry.is_fresh = True
        self._special.add(env_id)
        recovery = self.standing(env_id, slot, objects)
        is_lost = self.num_episodes[env_id] > 0 and not self.is_over[env_id]
        return replace(recovery, is_lost=is_lost)

    def standing(self, env_id: int, slot: int, objects: tuple[Any, ...]) -> Recovery:
        """What an environment keeps from one episode to the next."""
        entry = self.entries[env_id]
        return Recovery(
            slot=slot,
            attributes=self.attributes_of(env_id),
            next_reset=self._next_reset(env_id),
            num_episodes=self.num_episodes[env_id],
            seed=entry.seed,
            objects=objects,
        )

    def _next_reset(self, env_id: int) -> ResetArgs | None:
        """What the next automatic reset uses, where that is not left to the environment."""
        entry = self.entries[env_id]
        return (
            self.explicit(env_id, entry.planned or _AS_IT_LIKES)
            if entry.is_fresh
            else entry.planned
        )

    def _fresh_seed(self, env_id: int) -> Seed:
        """The seed of an environment after its latest restart; None if it never had one."""
        entry = self.entries[env_id]
        if entry.seed is None:
            return None
        run_seed = entry.seed - env_id if entry.seed >= env_id else entry.seed
        return env_seed(run_seed, env_id, entry.num_restarts)


def _set_last(attributes: dict[str, Any], name: str, value: Any) -> None:
    """Set one after all others: setting one may change another."""
    attributes.pop(name, None)
    attributes[name] = value


def own_args(args: dict[int, ResetArgs]) -> dict[int, ResetArgs]:
    """The same, with options that are nobody else's."""
    options = {i: one.options for i, one in args.items() if one.options is not None}
    if not options:
        return args
    own = kept_each(options)
    return {i: one._replace(options=own.get(i)) for i, one in args.items()}
