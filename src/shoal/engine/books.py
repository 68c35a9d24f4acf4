"""The books: rows and everything that the caller keeps about them.

Which slot is whose, what came beside the rows, the journal of running episodes, and who is reset by
its next step. They are brought up to date when flights have landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine import generators
from shoal.engine.actions import ActionWriter, each_action
from shoal.engine.commands import (
    Command,
    Episode,
    PlanReset,
    Recovery,
    Reset,
    ResetArgs,
    SetAttr,
    Step,
)
from shoal.engine.journal import Entry, Journal
from shoal.engine.plan import PoolPlan
from shoal.engine.results import Reader
from shoal.engine.rows import Rows
from shoal.engine.seat import Flight, Seat
from shoal.engine.shelves import Shelves
from shoal.engine.slots import Slots
from shoal.seeding import Seed

_FEW = 16


class Witness(Protocol):
    """Who wants to hear of episodes."""

    def finished(self, env_ids: Sequence[int]) -> None:
        """Episodes have ended."""

    def was_reset(self, env_ids: Sequence[int]) -> None:
        """Environments were reset because the caller said so."""


class Books:
    """What the caller knows of its environments."""

    def __init__(self, plan: PoolPlan, rows: Rows) -> None:
        self.rows, self.mode, self.num_envs = rows, plan.terms.autoreset, plan.num_envs
        self.reader = Reader(rows, plan.copy, plan.infos_apart)
        self.actions = ActionWriter(rows, strict=plan.strict_actions)
        self.slots = Slots(rows)
        self.shelves = Shelves(rows, paged=plan.pages > 0) if rows.shape.blocks else None
        self.journal = Journal(rows, plan.policy.replay_limit_steps)
        self.resets_next: set[int] = set()
        """Whose next step resets, whatever its action."""
        self._rewards = list(rows.rewards)
        self._left: tuple[int, bool] | None = None
        """The slot of a step that is only half written down, and whether an episode ended in it."""
        self._is_half_done = False
        self._doubts: set[int] = set()
        """Whom to distrust when that step is written down."""
        self._astray: set[int] = set()
        """Of whom it is not known whether the step that resets them was taken."""

    def resized(self, plan: PoolPlan, rows: Rows) -> Books:
        """The same books for another number of environments.

        The rows that there were are left as they are: the caller may hold views of them.
        """
        books = Books(plan, rows)
        count = min(self.num_envs, plan.num_envs)
        rows.take_over(self.rows, count)
        books.reader.take_over(self.reader, count)
        books.slots.take_over(self.slots, count)
        books.journal.take_over(self.journal, count)
        books.resets_next = {env_id for env_id in self.resets_next if env_id < count}
        books._astray = {env_id for env_id in self._astray if env_id < count}
        return books

    def go_on(
        self,
        entries: Sequence[Entry],
        episodes: Sequence[Episode | None],
        num_episodes: Sequence[int],
    ) -> None:
        """Environments that were never reset have just been brought into these episodes."""
        self.journal.go_on(entries, episodes)
        self.journal.num_episodes[:] = num_episodes
        if self.mode is AutoresetMode.NEXT_STEP:
            over = (i for i, one in enumerate(episodes) if one is not None and one.is_over)
            self.resets_next.update(over)

    def ask(self, seat: Seat, env_ids: Sequence[int], which: int) -> None:
        """Make a list of those of a worker's environments that a step of some is for."""
        asked, first, last = self.rows.asked_bytes[which], seat.env_ids[0], seat.env_ids[-1]
        if last - first + 1 == len(seat.env_ids):
            asked[first : last + 1] = bytes(last - first + 1)
        else:
            self.rows.asked[which, list(seat.env_ids)] = 0
        if len(env_ids) < _FEW:  # then one by one takes half the time
            self.slots.write_next(env_ids, asked)
        else:
            self.rows.asked[which, env_ids] = 2 - self.slots.of(env_ids)

    def record(self, landed: Sequence[tuple[Seat, Flight]], witness: Witness) -> None:
        """Write down what environments have done, unless it failed."""
        stepped: list[int] = []
        objects: dict[int, Any] = {}
        for seat, flight in landed:
            command, failed = flight.command, flight.failed
            if type(command) is Step:
                ids = flight.sent or seat.env_ids
                stepped += [i for i in ids if i not in failed] if failed else ids
                objects.update(command.objects or {})
            elif type(command) is Reset:
                self._record_reset(command, failed, witness)
            else:
                self._record_wish(command, failed)
        if stepped:
            everyone = len(stepped) == self.num_envs and not landed[0][1].sent
            self._record_step(None if everyone else stepped, objects, witness)

    def record_again(self, landed: Sequence[tuple[Seat, Flight]]) -> None:
        """As `record`, after one that was broken off somewhere in its middle.

        How many steps the journal holds is not known then, so nobody is rebuilt from it.
        """
        for seat, flight in landed:
            command = flight.command
            if type(command) is Step:
                ids = [i for i in flight.sent or seat.env_ids if i not in flight.failed]
                asked = self.rows.asked[command.slot, ids].astype(np.int64) - 1
                self._record_step_again(ids, command.slot if command.everyone else asked)
            elif type(command) is Reset:
                ids = [i for i in command.slots if i not in flight.failed]
                self.slots.put(ids, [command.slots[i] for i in ids])
                self.journal.begin([i for i in command.args if i in ids], command.args)
                self.resets_next.difference_update(ids)
                self.distrust(ids)
            else:
                self._record_wish(command, flight.failed)

    def _record_wish(self, command: Command, failed: set[int]) -> None:
        """What the caller wants of environments; written down twice it is the same."""
        if type(command) is SetAttr:
            values = {i: v for i, v in command.values.items() if i not in failed}
            self.journal.set_attr(command.name, values)
        elif type(command) is PlanReset:
            self.journal.plan({i: a for i, a in command.args.items() if i not in failed})

    def _record_step_again(self, env_ids: Sequence[int], slots: Any) -> None:
        self.slots.put(env_ids, slots)
        journal, ended = self.journal, set(self.rows.ended(slots, env_ids))
        for env_id in env_ids:
            has_ended = env_id in ended
            if self.mode is AutoresetMode.NEXT_STEP:
                (self.resets_next.add if has_ended else self.resets_next.discard)(env_id)
            if self.mode is AutoresetMode.SAME_STEP:
                has_begun = has_ended
            else:
                was_over = journal.is_over[env_id] or journal.entries[env_id].is_fresh
                has_begun = not has_ended and was_over
            if has_begun:  # and that may not have been written down
                journal.begin([env_id])
            else:
                journal.is_over[env_id] = has_ended
        self.distrust(env_ids)

    def distrust(self, env_ids: Sequence[int]) -> None:
        """What these have done is not on record, or not as it was."""
        if self._left is not None:  # it is what comes after that step which is in doubt
            self._doubts.update(env_ids)
            return
        self.journal.distrust(env_ids)
        self._astray.update(self.resets_next.intersection(env_ids))

    def resets_of_doubtful(self) -> dict[int, tuple[Seed, dict[str, Any] | None]]:
        """How to reset those that may have taken a step of which nothing is known."""
        entries = self.journal.entries
        planned = {
            i: one.planned or ResetArgs() for i, one in enumerate(entries) if one.is_doubtful
        }
        return {i: (args.seed, args.options) for i, args in planned.items()}

    def _record_reset(self, command: Reset, failed: set[int], witness: Witness) -> None:
        done = [env_id for env_id in command.args if env_id not in failed]
        if len(done) == self.num_envs:
            self.slots.turn_all()
        else:
            self.slots.turn([env_id for env_id in command.slots if env_id not in failed])
        self.journal.begin(done, command.args)
        self.resets_next.difference_update(done)
        witness.was_reset(done)

    def record_all(self, any_ended: bool, witness: Witness) -> None:
        """All environments have taken the step whose actions are in the rows.

        What can wait is done by `catch_up`, while workers are at the next step.
        """
        self.slots.turn_all()
        self.journal.add(None)
        self._left = self.slots.common, any_ended
        if any_ended and self.mode is AutoresetMode.SAME_STEP:
            self.catch_up(witness)  # the next step may note other states of generators

    def catch_up(self, witness: Witness) -> None:
        """Do what was left to do about the latest step of all."""
        if self._left is None:
            return
        slot, any_ended = self._left
        if self._is_half_done:  # Ctrl-C
            self._record_step_again(range(self.num_envs), slot)
        else:
            self._is_half_done = True
            self.journal.add_rewards(None, self._rewards[slot])
            if any_ended or self.resets_next:
                self._record_ends(None, slot, witness)
        self._left, self._is_half_done = None, False
        if self._doubts:
            self.distrust(sorted(self._doubts))
            self._doubts.clear()

    def _record_step(
        self, env_ids: Sequence[int] | None, objects: dict[int, Any], witness: Witness
    ) -> None:
        slots, ids = self.slots.turned(env_ids), slice(None) if env_ids is None else env_ids
        if objects:
            self.journal.add_objects(objects)
        self.journal.add(env_ids)
        self.journal.add_rewards(env_ids, self.rows.rewards[slots, ids])
        self._record_ends(env_ids, slots, witness)

    def _record_ends(self, env_ids: Sequence[int] | None, slots: Any, witness: Witness) -> None:
        """Which episodes have ended, and which have begun, in the step that was added last."""
        journal, resets_next = self.journal, self.resets_next
        ended = self.rows.ended(slots, env_ids)
        begun = [i for i in env_ids if i in resets_next] if env_ids else list(resets_next)
        if ended:
            self.reader.tally.add(journal.ended(ended))
        if begun:
            journal.begin(begun)
            resets_next.difference_update(begun)
            if self._astray:
                again = self._astray.intersection(begun)
                self._astray -= again
                journal.distrust(sorted(again))  # they may have begun a step before
        if ended:
            if self.mode is AutoresetMode.SAME_STEP:
                journal.begin(ended)
            else:
                journal.end(ended)
            if self.mode is AutoresetMode.NEXT_STEP:
                resets_next.update(ended)
            witness.finished(ended)

    def replay_of(self, env_id: int) -> Recovery | None:
        """How to bring an environment to where it is; None where that is not known."""
        return self.journal.replay(
            env_id, self.slots.of_one(env_id), self.reader.objects_of(env_id)
        )

    def restart_of(self, env_id: int) -> Recovery:
        """How to let an environment begin anew."""
        return self.journal.restart(
            env_id, self.slots.of_one(env_id), self.reader.objects_of(env_id)
        )

    def branch(
        self, env_id: int, into_ids: Sequence[int], attributes: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Other environments are now where this one is; their episodes began with these."""
        if not into_ids:
            return
        self.slots.turn(into_ids)
        self.journal.branch(env_id, into_ids, attributes)
        self.reader.branch(env_id, into_ids)
        is_resetting = env_id in self.resets_next
        (self.resets_next.update if is_resetting else self.resets_next.difference_update)(into_ids)

    def action_of(self, env_id: int, command: Step) -> Any:
        """The action of a step that is under way, just as its environment was given it."""
        arrays = [array[env_id : env_id + 1].copy() for array in self.rows.actions]
        objects = None if command.objects is None else [command.objects.get(env_id)]
        return each_action(self.rows.shape.action, arrays, objects)[0]

    def generator_of(self, env_id: int) -> Any:
        """The state that was noted before the latest reset, be it completed or not."""
        return generators.state_of(self.rows.generators[env_id].tobytes(), None)

    def standing_of(self, env_id: int) -> Recovery:
        """How an environment that is between two episodes goes on elsewhere."""
        return self.journal.standing(
            env_id, self.slots.of_one(env_id), self.reader.objects_of(env_id)
        )

    def is_over(self, env_id: int) -> bool:
        """Whether no episode is running."""
        return self.journal.is_over[env_id] or not self.journal.num_episodes[env_id]

    def is_between_episodes(self, env_id: int) -> bool:
        """Whether nothing would be lost if this environment were another one from here on."""
        return self.is_over(env_id) or not self.journal.length(env_id)
