"""The worker: one function that executes commands on its share, and the one loop around it.

    caller                                worker
      │  put(command) ──────────────────►  channel.get()
      │                                      execute(command, share)
      │  wait() ◄───────────────────────   channel.answer(reply)

A step usually carries no message either way: its actions, results and infos are in the rows, and
`answer(None)` says only "done". Whatever else there is to say travels in a `Reply`.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine.actions import Numbers, each_action
from shoal.engine.build import build, describe
from shoal.engine.cells import BatchedCell, Desk, Lane
from shoal.engine.commands import (
    MARK_ENV,
    MARK_PHASE,
    MARK_SINCE_NS,
    MARK_STEP,
    NOBODY,
    PHASES,
    Attach,
    Build,
    Call,
    Command,
    Failure,
    PlanReset,
    Release,
    Reply,
    Reset,
    Restore,
    SetAttr,
    Snapshot,
    Step,
    failure_of,
    private_mark,
    text_of,
)
from shoal.engine.infos import Columns, InfoWriter
from shoal.engine.retrace import number
from shoal.engine.rows import Rows
from shoal.engine.shelves import is_worth_it_singly
from shoal.errors import ConfigError, ContractError, shown
from shoal.layout import NO_SUCH_ROW, Array

REFUSED_CALLS = frozenset({"reset", "step", "close", "_setattr", "_check_spaces"})
_MOST_PARTIES = 64
_CALL_DIRECTLY = "Trying to call function `{0}` with `call`, use `{0}` directly instead."


class Channel(Protocol):
    """The worker's end: commands come out, replies go in. `get` gives None when all is over."""

    def get(self) -> Command | None: ...

    def answer(self, reply: Reply | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Manner:
    """How a share works."""

    mode: AutoresetMode
    check_finite: bool = False
    catch: type[BaseException] = BaseException
    """What an environment raises and is caught. Where it runs in the caller's own thread Ctrl-C is
    the user's, not the environment's."""
    timed: bool = False
    """Whether the mark says when each step began."""


class Party(NamedTuple):
    """Environments of a share that are stepped together, and where their results go."""

    cells: list[Any]
    lanes: list[Lane]
    where: Any
    """Their rows: a slice, or an array of numbers."""
    slots: Any
    """One for all, or an array."""
    slot_of: dict[int, int]
    numbers: Numbers | None
    """Their actions, if these are single numbers that lie together."""


class Share:
    """The environments of one worker: none at first."""

    def __init__(self, manner: Manner, mark: memoryview | None = None) -> None:
        self.cells: list[Any] = []
        self.env_ids: list[int] = []
        self.mark = private_mark() if mark is None else mark
        self.busy_ns = 0
        self._manner = manner
        self._catch = (manner.catch, SystemExit)
        self._cell_of: dict[int, Any] = {}
        self._reply: Reply | None = None
        self._noted: set[str] = set()
        self._rows: Rows | None = None
        self._desk: Desk | None = None
        self._lanes: list[list[Lane]] = []
        self._laying: dict[tuple[int, int], tuple[list[Array], list[Lane]]] = {}
        """By slot and shelf, lanes that lay there what they write, and what the shelf was then."""
        self._aside: list[int] = []
        """Whose observations were not written by their lanes, in the latest step."""
        self._parties: dict[bytes, Party] = {}
        """Some of those who were asked for together, by what the list says."""
        self._flagged: set[int] = set()
        """The slots in which flags of these environments may be set."""
        self.has_ended = False
        """Whether an episode has ended in the latest step of all."""
        self.num_stepped = 0
        """How many environments the latest step of some was for."""
        self._infos: InfoWriter

    def build(self, command: Build) -> None:
        """Make environments, and let them take the place of any that have their numbers."""
        closed = self._close_those(command.assignment.env_ids or ())
        try:
            cells = build(command.assignment, self.mark)
        except self._catch as error:
            self.reply.failures.append(failure_of(error))
            for cell in closed:
                cell.shut()
            self._lanes, self._laying, self._parties = [], {}, {}
            return
        for cell in cells:
            self._cell_of.update(dict.fromkeys(cell.env_ids, cell))
        self._arrange()
        self.reply.built = describe(cells) if cells else None
        if self._desk is not None:
            for cell in cells:
                cell.attach(self._desk)

    def _close_those(self, env_ids: Iterable[int]) -> list[Any]:
        closed = list(dict.fromkeys(self._cell_of[i] for i in env_ids if i in self._cell_of))
        for cell in closed:
            with contextlib.suppress(*self._catch):  # it has failed already
                cell.env.close()
        return closed

    def _arrange(self) -> None:
        self.env_ids = sorted(self._cell_of)
        self.cells = list(dict.fromkeys(self._cell_of[env_id] for env_id in self.env_ids))
        self._ids = np.array(self.env_ids, dtype=np.int64)
        first, last = (self.env_ids[0], self.env_ids[-1]) if self.env_ids else (0, -1)
        is_block = last - first + 1 == len(self.env_ids)
        self._all: Any = slice(first, last + 1) if is_block else self._ids
        self._is_batched = any(isinstance(cell, BatchedCell) for cell in self.cells)
        if self._rows is not None:
            self._infos.take_over(self._all)
            self._mark_out()

    def _mark_out(self) -> None:
        """Where actions and rewards of all environments of this share lie together, if they do."""
        rows, where = self.rows, self._all
        self._flagged.update(range(rows.shape.slots))  # others may have left something
        self._lanes, self._laying, self._parties = [], {}, {}
        is_large = is_worth_it_singly(rows.shape.observation, len(self.env_ids))
        self._lays_singly = is_large and not self._is_batched
        self._put_rewards: list[Callable[..., None]] = []
        self._numbers: Numbers | None = None
        if self.env_ids and isinstance(where, slice):
            # As bytes: for a few numbers that takes half the time that NumPy takes.
            pack = struct.Struct(f"{len(self.env_ids)}d").pack_into
            places = [rows.rewards[slot, where].data.cast("B") for slot in range(rows.shape.slots)]
            self._put_rewards = [functools.partial(pack, place, 0) for place in places]
            self._numbers = self._numbers_of(where)

    def _numbers_of(self, where: slice) -> Numbers | None:
        layout, actions = self.rows.shape.action, self.rows.actions
        if layout.is_plain and actions and actions[0].ndim == 1:
            return Numbers(layout.arrays[0], actions[0][where])
        return None

    def attach(self, command: Attach) -> None:
        """Give every cell its row. From here on environments can be stepped."""
        self._rows = rows = command.rows
        self._shelf_word = rows.shelf_word
        self._mark_out()
        columns = Columns(rows)
        for spec in command.columns:
            columns.add(spec)
        self._infos = InfoWriter(columns, self._all)
        manner = self._manner
        desk = Desk(
            rows=rows,
            infos=self._infos,
            note=self._note,
            stamp=self._stamp,
            mode=manner.mode,
            check_finite=manner.check_finite,
            flagged=self._flagged,
            final_scalars={},
            generators={},
        )
        self._desk, self._has_objects = desk, rows.shape.observation.has_objects
        for cell in self.cells:
            try:
                cell.attach(desk)
            except ConfigError as error:
                self.reply.failures.append(failure_of(error, cell.env_ids, "start"))

    @property
    def rows(self) -> Rows:
        assert self._rows is not None
        return self._rows

    def restore(self, command: Restore) -> None:
        """Bring rebuilt environments to where they were; the results say why one could not be."""
        for env_id, how in command.how.items():
            cell = self._cell_of[env_id]
            self.mark[MARK_ENV], self.mark[MARK_STEP] = env_id, 0
            self._stamp()
            try:
                problem = cell.restore(env_id, how, self._watch)
            except self._catch as error:
                problem = f"{type(error).__name__} was raised: {text_of(error)}"
            self.reply.results[env_id] = problem

    def snapshot(self, command: Snapshot) -> None:
        for env_id in command.env_ids:
            cell = self._cell_of[env_id]
            self.reply.results[env_id] = self._guarded(cell, "call", cell.snapshot)

    def release(self, command: Release) -> None:
        """Let go of environments; of those that are here, at least."""
        here, told = set(self._cell_of), set(command.env_ids)
        leaving = here - told if command.others else here & told
        for cell in dict.fromkeys(self._cell_of[env_id] for env_id in sorted(leaving)):
            self._guarded(cell, "close", cell.env.close)
            for env_id in cell.env_ids:
                del self._cell_of[env_id]
        self._arrange()

    def _watch(self, step: int) -> None:
        self.mark[MARK_STEP] = step
        self._stamp()

    def _stamp(self) -> None:
        """The mark says that a step, or a reset, begins."""
        self.mark[MARK_SINCE_NS] = time.monotonic_ns()

    @property
    def reply(self) -> Reply:
        """The reply being filled; made on first use, so that a quiet step makes none."""
        if self._reply is None:
            self._reply = Reply()
        return self._reply

    def begin(self) -> None:
        """Forget what a command that was interrupted may have left."""
        self._reply = None
        if self._desk is not None and self._infos.odd:
            self._infos.odd = []

    def rest(self) -> None:
        """The answer is made: until the next command this worker is idle."""
        self.mark[MARK_PHASE], self.mark[MARK_ENV] = 0, NOBODY

    def take_reply(self) -> Reply | None:
        """What has gathered since the last command; None if nothing did."""
        if self._desk is not None:
            self._gather(self._desk)
        reply, self._reply = self._reply, None
        return reply

    def _gather(self, desk: Desk) -> None:
        if self._infos.odd:
            self.reply.odd_infos, self._infos.odd = self._infos.odd, []
        if self._has_objects:
            for cell in self.cells:
                self.reply.objects.update(cell.objects)
                self.reply.final_objects.update(cell.final_objects)
                cell.objects, cell.final_objects = {}, {}
        if desk.final_scalars:
            self.reply.final_scalars.update(desk.final_scalars)
            desk.final_scalars.clear()
        if desk.generators:
            self.reply.generators.update(desk.generators)
            desk.generators.clear()

    def step(self, command: Step) -> None:
        """Step environments; flags are taken back before it, rewards written once after it."""
        for spec in command.columns:
            self._infos.columns.add(spec)
        if command.everyone:
            self._step_all(command)
        else:
            self._step_some(command)

    def _step_all(self, command: Step) -> None:
        slot, shelf = command.slot, self._shelf_word[0]
        self._infos.clear()
        if slot in self._flagged:
            self._take_back_flags(slot, self._all)
            self._flagged.discard(slot)
        if self._is_batched:
            rewards = self._step_batched(self.cells, command, {})
        else:
            lanes = (self._lanes or self._lay_lanes())[slot]
            if shelf and self._lays_singly:
                lanes = self._lanes_onto(slot, shelf)
            actions = self._actions(command, self._all, self._numbers, self.env_ids)
            rewards = self._step_each(lanes, actions)
        self.has_ended = slot in self._flagged
        if self._put_rewards:
            self._put_rewards[slot](*rewards)
        else:
            self.rows.rewards[slot, self._all] = rewards
        if shelf:
            for where in self._aside if self._lays_singly else (self._all,):
                self._lay_on_shelf(slot, shelf, where)

    def _lay_on_shelf(self, slot: int, shelf: int, where: Any) -> None:
        rows = self.rows
        for ring, place in zip(rows.rings, rows.shelves[shelf - 1], strict=True):
            place[where] = ring[slot, where]

    def _lay_lanes(self) -> list[list[Lane]]:
        """The lanes of all, by slot: as soon as every environment has its row."""
        slots = range(self.rows.shape.slots)
        self._lanes = [[cell.lane(slot) for cell in self.cells] for slot in slots]
        return self._lanes

    def _lanes_onto(self, slot: int, shelf: int) -> list[Lane]:
        """Those that lay what they write on a shelf, too; another one, if that was mapped anew."""
        places = self.rows.shelves[shelf - 1]
        known = self._laying.get((slot, shelf))
        if known is None or known[0] is not places:
            known = self._laying[slot, shelf] = places, [c.lane(slot, places) for c in self.cells]
        return known[1]

    def _step_some(self, command: Step) -> None:
        party, rows = self._asked(command.slot), self.rows
        where, slots = party.where, party.slots
        self.num_stepped = len(party.slot_of)
        self._infos.clear(where)
        self._take_back_flags(slots, where)
        if self._is_batched:
            rewards = self._step_batched(party.cells, command, party.slot_of)
        else:
            stamps: list[int] = []
            actions = self._actions(command, where, party.numbers, party.slot_of)
            rewards = self._step_each(party.lanes, _stamping(actions, stamps))
            stamps.append(time.monotonic_ns())
            times_ns = np.array(stamps)
            rows.step_ns[where] = times_ns[1:] - times_ns[:-1]
        rows.rewards[slots, where] = rewards

    def _take_back_flags(self, slots: Any, where: Any) -> None:
        self.rows.terminations[slots, where] = self.rows.truncations[slots, where] = False

    def _step_each(self, lanes: Sequence[Lane], actions: Iterable[Any]) -> list[float]:
        """One environment after another: all that a step of a worker consists of.

        What usually happens, a step that ends nothing, is written out here: 0.2 us less than
        `cell.step`.
        """
        rewards: list[float] = []
        catch, append, mark, put_info = self._catch, rewards.append, self.mark, self._infos.put
        self._aside = aside = []
        if self._manner.timed:
            actions = self._timing(actions)
        for lane, action in zip(lanes, actions):  # noqa: B905 (0.1 us)
            cell, step, row, write, env_id, slot = lane
            mark[MARK_ENV] = env_id
            try:
                if cell.over:
                    aside.append(env_id)
                    append(cell.after_end(slot))
                    continue
                if write is None:  # then nothing is laid on shelves
                    append(cell.step(slot, action))
                    continue
                observation, reward, terminated, truncated, info = step(action)
                if terminated or truncated:
                    aside.append(env_id)
                    append(cell.take(slot, observation, reward, terminated, truncated, info))
                    continue
                if not isinstance(reward, float):
                    reward = number(reward)
                try:
                    if row is not None:
                        row[:] = observation
                    else:
                        write(observation)
                except NO_SUCH_ROW:
                    write(observation)
                if info:
                    put_info(env_id, info)
                append(reward)
            except catch as error:
                self._fail(cell, "step", error, action)
                append(0.0)
        return rewards

    def _timing(self, actions: Iterable[Any]) -> Iterator[Any]:
        """The actions; each is stamped as it is taken."""
        for action in actions:
            self._stamp()
            yield action

    def _step_batched(
        self, cells: Sequence[BatchedCell], command: Step, slots: dict[int, int]
    ) -> list[float]:
        """The same for vector environments; `slots` says where those of some go."""
        rewards: list[float] = []
        for cell in cells:
            slot = slots.get(cell.env_ids[0], command.slot)
            action = self._joint_action(cell, command)
            done = self._guarded(cell, "step", cell.step, slot, action)
            rewards += [0.0] * len(cell.env_ids) if done is None else done
        return rewards

    def _asked(self, which: int) -> Party:
        """Those that are on this list. Often they are the same again: then nothing is made anew."""
        asked = self.rows.asked[which, self._all]
        party = self._parties.get(said := asked.tobytes())
        if party is None:
            if len(self._parties) == _MOST_PARTIES:
                self._parties.clear()
            party = self._parties[said] = self._gather_party(asked)
        return party

    def _gather_party(self, asked: Array) -> Party:
        (positions,) = asked.nonzero()
        where: Any = self._ids[positions]
        slots: Any = asked[positions] - np.uint8(1)
        slot_of = dict(zip(where.tolist(), slots.tolist(), strict=True))
        cells = list(dict.fromkeys(self._cell_of[env_id] for env_id in slot_of))
        lanes = [] if self._is_batched else [cell.lane(slot_of[cell.env_ids[0]]) for cell in cells]
        numbers = None
        if where[-1] - where[0] + 1 == len(where) and len({*slot_of.values()}) == 1:
            where, slots = slice(where[0], where[-1] + 1), int(slots[0])
            numbers = self._numbers_of(where)
        return Party(cells, lanes, where, slots, slot_of, numbers)

    def _actions(
        self, command: Step, where: Any, numbers: Numbers | None, env_ids: Iterable[int]
    ) -> list[Any]:
        """One action per environment, each its own: nothing the caller may still overwrite."""
        if numbers is not None and command.objects is None:
            return numbers.each()
        arrays = [array[where].copy() for array in self.rows.actions]
        objects = None
        if command.objects is not None:
            objects = [command.objects.get(env_id) for env_id in env_ids]
        return each_action(self.rows.shape.action, arrays, objects)

    def _joint_action(self, cell: BatchedCell, command: Step) -> Any:
        layout = self.rows.shape.action
        ids = slice(cell.env_ids[0], cell.env_ids[-1] + 1)
        arrays, objects, parts = iter(self.rows.actions), 0, []
        for leaf in layout.leaves:
            if leaf.is_array:
                parts.append(next(arrays)[ids].copy())
            else:
                assert command.objects is not None
                values = [command.objects[env_id][objects] for env_id in cell.env_ids]
                parts.append(layout.batch_objects(leaf, values))
                objects += 1
        return layout.assemble(parts)

    def reset(self, command: Reset) -> None:
        """Reset environments, each with its own seed and options."""
        env_ids = sorted(command.args)
        self._infos.clear(env_ids)
        for cell in dict.fromkeys(self._cell_of[env_id] for env_id in env_ids):
            args = [command.args.get(env_id) for env_id in cell.env_ids]
            slot = next(command.slots[i] for i in cell.env_ids if i in command.slots)
            self._guarded(cell, "reset", cell.reset, slot, args)

    def plan_reset(self, command: PlanReset) -> None:
        for env_id, args in command.args.items():
            cell = self._cell_of[env_id]
            self._guarded(cell, "set_next_reset", cell.plan_reset, env_id, args)

    def call(self, command: Call) -> None:
        for cell, env_ids in self._by_cell(command.env_ids).items():
            self.mark[MARK_ENV] = env_ids[0]
            try:
                if command.name in REFUSED_CALLS:
                    raise ContractError(_CALL_DIRECTLY.format(command.name))
                results = cell.call(env_ids, command.name, command.args, command.kwargs)
                self.reply.results.update(zip(env_ids, results, strict=True))
            except self._catch as error:
                self._fail(cell, "call", error, env_ids=tuple(env_ids))

    def set_attr(self, command: SetAttr) -> None:
        for cell, env_ids in self._by_cell(command.values).items():
            values = {env_id: command.values[env_id] for env_id in env_ids}
            self._guarded(cell, "set_attr", cell.set_attr, command.name, values)

    def _by_cell(self, env_ids: Iterable[int]) -> dict[Any, list[int]]:
        grouped: dict[Any, list[int]] = {}
        for env_id in env_ids:
            grouped.setdefault(self._cell_of[env_id], []).append(env_id)
        return grouped

    def close(self) -> list[Failure]:
        """Run every `env.close()`, whatever the others do. After Ctrl-C it can be gone on with."""
        self.mark[MARK_PHASE] = PHASES.index("close")
        while self.cells:
            cell = self.cells.pop(0)
            self._guarded(cell, "close", cell.env.close)
        failures, self._reply = self.reply.failures, None
        return failures

    def _guarded(self, cell: Any, phase: str, function: Callable[..., Any], *args: Any) -> Any:
        self.mark[MARK_ENV] = cell.env_ids[0]
        self._stamp()
        try:
            return function(*args)
        except self._catch as error:
            self._fail(cell, phase, error)
            return None

    def _fail(
        self,
        cell: Any,
        phase: str,
        error: BaseException,
        action: Any = None,
        env_ids: tuple[int, ...] | None = None,
    ) -> None:
        failure = failure_of(error, env_ids or cell.env_ids, phase)
        failure.seed, failure.episode = cell.seed, cell.episode
        failure.action = "" if action is None else shown(action)
        self.reply.failures.append(failure)

    def _note(self, key: str, text: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.reply.notes[key] = text


def _stamping(actions: Iterable[Any], stamps: list[int]) -> Iterator[Any]:
    """The actions; the times at which each is taken are noted."""
    for action in actions:
        stamps.append(time.monotonic_ns())
        yield action


_EXECUTE: dict[type, tuple[int, Callable[[Share, Any], None]]] = {
    Build: (PHASES.index("construct"), Share.build),
    Attach: (PHASES.index("start"), Share.attach),
    Restore: (PHASES.index("replay"), Share.restore),
    Snapshot: (PHASES.index("call"), Share.snapshot),
    Release: (PHASES.index("close"), Share.release),
    Step: (PHASES.index("step"), Share.step),
    Reset: (PHASES.index("reset"), Share.reset),
    PlanReset: (PHASES.index("set_next_reset"), Share.plan_reset),
    Call: (PHASES.index("call"), Share.call),
    SetAttr: (PHASES.index("set_attr"), Share.set_attr),
}


_PREPARING = tuple(map(PHASES.index, ("construct", "start")))


def execute(command: Command, share: Share) -> Reply | None:
    """Carry out one command. What an environment raises does not get out: it is in the reply.

    The share is at it until `rest` is called: making bytes of the reply is part of the command.
    """
    begun = time.monotonic_ns()
    phase, carry_out = _EXECUTE[type(command)]
    share.mark[MARK_SINCE_NS] = begun  # before the phase: whoever watches reads both
    share.mark[MARK_PHASE] = phase
    share.begin()
    carry_out(share, command)
    reply = share.take_reply()
    if phase not in _PREPARING:
        share.busy_ns += time.monotonic_ns() - begun
    return reply


def serve(channel: Channel, share: Share) -> None:
    """Execute commands until there are no more."""
    while (command := channel.get()) is not None:
        channel.answer(execute(command, share))
