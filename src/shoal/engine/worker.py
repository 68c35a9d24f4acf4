"""The worker: one function that executes commands on its share, and the one loop around it.

    caller                                worker
      │  put(command) ──────────────────►  channel.get()
      │                                      execute(command, share)
      │  wait() ◄───────────────────────   channel.answer(reply)

A step usually carries no message either way: its actions, results and infos are in the rows, and
`answer(None)` says only "done". Whatever else there is to say travels in a `Reply`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from shoal.engine.actions import Loose
from shoal.engine.cells import BatchedCell, Cell, Desk, Outcome
from shoal.engine.commands import (
    MARK_ENV,
    MARK_PHASE,
    MARK_SINCE_NS,
    PHASES,
    Call,
    Command,
    Failure,
    PlanReset,
    Reply,
    Reset,
    SetAttr,
    Step,
    failure_of,
)
from shoal.engine.infos import Columns, InfoWriter
from shoal.engine.rows import Rows
from shoal.errors import ContractError, shown

REFUSED_CALLS = frozenset({"reset", "step", "close", "_setattr", "_check_spaces"})
_CALL_DIRECTLY = "Trying to call function `{0}` with `call`, use `{0}` directly instead."


class Channel(Protocol):
    """The worker's end: commands come out, replies go in. `get` gives None when all is over."""

    def get(self) -> Command | None: ...

    def answer(self, reply: Reply | None) -> None: ...


class Share:
    """The environments of one worker."""

    def __init__(
        self,
        cells: list[Cell] | list[BatchedCell],
        catch: type[BaseException],
        mark: memoryview,
        timed: bool = False,
    ) -> None:
        self.cells = cells
        self.mark, self._timed = mark, timed
        self.env_ids = [env_id for cell in cells for env_id in cell.env_ids]
        self._catch = (catch, SystemExit)
        self._cell_of = {env_id: cell for cell in cells for env_id in cell.env_ids}
        self._reply: Reply | None = None
        self._noted: set[str] = set()
        self.busy_ns = 0

    def attach(self, rows: Rows, mode: AutoresetMode, check_finite: bool) -> None:
        """Give every cell its row. From here on commands can be executed."""
        self.rows = rows
        self._first, self._end = self.env_ids[0], self.env_ids[-1] + 1
        self._all: Any = slice(self._first, self._end)
        self._infos = InfoWriter(Columns(rows), self._first, len(self.env_ids))
        self._desk = Desk(rows, self._infos, self._note, mode, check_finite, {})
        for cell in self.cells:
            cell.attach(self._desk)

    @property
    def reply(self) -> Reply:
        """The reply being filled; made on first use, so that a quiet step makes none."""
        if self._reply is None:
            self._reply = Reply()
        return self._reply

    def begin(self) -> None:
        """Forget what a command that was interrupted may have left."""
        self._reply = None
        self._infos.odd = []

    def take_reply(self) -> Reply | None:
        """What has gathered since the last command; None if nothing did."""
        if self._infos.odd:
            self.reply.odd_infos, self._infos.odd = self._infos.odd, []
        if self.rows.shape.observation.has_objects:
            for cell in self.cells:
                self.reply.objects.update(cell.objects)
                self.reply.final_objects.update(cell.final_objects)
                cell.objects, cell.final_objects = {}, {}
        if self._desk.final_scalars:
            self.reply.final_scalars.update(self._desk.final_scalars)
            self._desk.final_scalars.clear()
        reply, self._reply = self._reply, None
        return reply

    def step(self, command: Step) -> None:
        """Step environments and write rewards and flags once for all of them."""
        for spec in command.columns:
            self._infos.columns.add(spec)
        cells: Sequence[Any]
        if command.everyone:
            cells, where = self.cells, self._all
            self._infos.clear()
        else:
            cells, where = self._asked_cells()
            self._infos.clear(where)
        outcomes = self._step_cells(cells, command, where)
        rewards, terminations, truncations = zip(*outcomes, strict=True)
        rows, slot = self.rows, command.slot
        rows.rewards[slot, where] = rewards
        rows.terminations[slot, where] = terminations
        rows.truncations[slot, where] = truncations

    def _step_cells(self, cells: Sequence[Any], command: Step, where: Any) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if isinstance(self.cells[0], BatchedCell):
            for cell in cells:
                outcomes += self._guarded(
                    cell, "step", cell.step, command.slot, self._joint_action(cell, command)
                )
            return outcomes
        slot, catch, append = command.slot, self._catch, outcomes.append
        mark, timed = self.mark, self._timed
        for cell, action in zip(cells, self._actions(command, where), strict=True):
            mark[MARK_ENV] = cell.env_ids[0]
            if timed:
                mark[MARK_SINCE_NS] = time.monotonic_ns()
            try:
                append(cell.step(slot, action))
            except catch as error:
                self._fail(cell, "step", error, action)
                append((0.0, False, False))
        return outcomes

    def _asked_cells(self) -> tuple[list[Any], list[int]]:
        asked = self.rows.asked[self._first : self._end].nonzero()[0] + self._first
        env_ids = asked.tolist()
        cells = dict.fromkeys(self._cell_of[env_id] for env_id in env_ids)
        return list(cells), env_ids

    def _actions(self, command: Step, where: Any) -> list[Any]:
        """One action per environment, each its own: nothing the caller may still overwrite."""
        layout = self.rows.shape.action
        columns: list[list[Any]] = []
        env_ids = self.env_ids if command.everyone else where
        arrays, objects = iter(self.rows.actions), 0
        for leaf in layout.leaves:
            if not leaf.is_array:
                assert command.objects is not None
                columns.append([command.objects[env_id][objects] for env_id in env_ids])
                objects += 1
                continue
            # NumPy scalars and arrays, as Gymnasium's vector environments give them: environments
            # may use .item() or .dtype, and Discrete.contains is 0.6 us faster on them than on int.
            columns.append(list(next(arrays)[where].copy()))
        if layout.is_plain:
            actions = columns[0]
        else:
            actions = [layout.assemble(parts) for parts in zip(*columns, strict=True)]
        for k, env_id in enumerate(env_ids if command.objects else ()):
            loose = command.objects.get(env_id)  # type: ignore[union-attr]
            if isinstance(loose, Loose):
                actions[k] = loose.action
        return actions

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
        """Reset environments; a row's flags and reward are those of a fresh start."""
        env_ids = sorted(command.args)
        self._infos.clear(env_ids)
        for cell in dict.fromkeys(self._cell_of[env_id] for env_id in env_ids):
            args = [command.args.get(env_id) for env_id in cell.env_ids]
            self._guarded(cell, "reset", cell.reset, command.slot, args)

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
        """Run every `env.close()`, whatever the others do."""
        self.mark[MARK_PHASE] = PHASES.index("close")
        for cell in self.cells:
            self._guarded(cell, "close", cell.env.close)
        failures, self._reply = self.reply.failures, None
        return failures

    def _guarded(self, cell: Any, phase: str, function: Callable[..., Any], *args: Any) -> Any:
        self.mark[MARK_ENV] = cell.env_ids[0]
        self.mark[MARK_SINCE_NS] = time.monotonic_ns()
        try:
            return function(*args)
        except self._catch as error:
            self._fail(cell, phase, error)
            return [(0.0, False, False)] * len(cell.env_ids)

    def _fail(
        self,
        cell: Any,
        phase: str,
        error: BaseException,
        action: Any = None,
        env_ids: tuple[int, ...] | None = None,
    ) -> None:
        failure = failure_of(error, env_ids or cell.env_ids, phase)
        failure.seed, failure.episode, failure.length = cell.seed, cell.episode, cell.length
        failure.action = "" if action is None else shown(action)
        self.reply.failures.append(failure)

    def _note(self, key: str, text: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.reply.notes[key] = text


_EXECUTE: dict[type, tuple[int, Callable[[Share, Any], None]]] = {
    Step: (PHASES.index("step"), Share.step),
    Reset: (PHASES.index("reset"), Share.reset),
    PlanReset: (PHASES.index("set_next_reset"), Share.plan_reset),
    Call: (PHASES.index("call"), Share.call),
    SetAttr: (PHASES.index("set_attr"), Share.set_attr),
}


def execute(command: Command, share: Share) -> Reply | None:
    """Carry out one command. What an environment raises does not get out: it is in the reply."""
    begun = time.perf_counter_ns()
    phase, carry_out = _EXECUTE[type(command)]
    share.mark[MARK_SINCE_NS] = time.monotonic_ns()  # before the phase: whoever watches reads both
    share.mark[MARK_PHASE] = phase
    share.begin()
    carry_out(share, command)
    reply = share.take_reply()
    share.mark[MARK_PHASE] = 0
    share.busy_ns += time.perf_counter_ns() - begun
    return reply


def serve(channel: Channel, share: Share) -> None:
    """Execute commands until there are no more."""
    while (command := channel.get()) is not None:
        channel.answer(execute(command, share))
