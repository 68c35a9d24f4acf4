"""Quick steps: steps of all environments in which nothing happens but steps.

There are no flights and there is nothing to settle: one word to each worker and one back, and what
can wait about a step is written down while workers are at the next one. As soon as a worker has
more to say, or nothing, flights are made of it and it is a step like any other. With 60 CartPoles
in 15 workers that made 382,000 steps/s of 210,000 (`python -m benchmarks.stages` shows what is
left).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from shoal.engine.backends import Worker
from shoal.engine.books import Books, Witness
from shoal.engine.commands import Step
from shoal.engine.seat import Flight, Seat


class Quick:
    """Takes quick steps, after it was told that it may."""

    def __init__(self) -> None:
        self.is_ready = False
        """Whether nothing is under way, and there is nothing to do but steps."""
        self.workers: list[Worker] = []
        self._pid = os.getpid()
        self._seats: list[Seat] = []
        self._books: Books
        self._witness: Witness

    def get_ready(self, seats: Sequence[Seat], books: Books, witness: Witness) -> None:
        """From here on these may be stepped; the first one last, for it may be the caller."""
        self._books, self._witness = books, witness
        self._seats = [seat for seat in reversed(seats) if seat.env_ids]
        self.workers = [seat.worker for seat in self._seats]
        self.is_ready = True

    def step(self, actions: Any, page: int | None) -> bool | None:
        """Whether all have taken a step; None where it was not begun. `page`: see `shelves.py`.

        If not, or if Ctrl-C comes meanwhile, there are flights to be landed, and it is not ready
        until it is told so again.
        """
        books, workers = self._books, self.workers
        if os.getpid() != self._pid or not books.actions.write_plain(actions):
            return None
        slot, num_put, any_ended, is_recording = 1 - books.slots.common, 0, False, False
        self.is_ready = False
        try:
            if books.shelves is not None:
                books.shelves.aim(page)
            for worker in workers:
                worker.put_step(slot)
                num_put += 1
            books.catch_up(self._witness)  # with the step before
            for worker in workers:
                has_ended = worker.end_step()
                if has_ended is None:
                    for seat in self._seats:
                        seat.flight = Flight(Step(slot))
                    return False
                any_ended |= has_ended
            is_recording = True
            books.record_all(any_ended, self._witness)
            self.is_ready = True
        except BaseException:  # Ctrl-C: the next call settles it
            self._break_off(Step(slot), num_put, is_recording)
            raise
        return True

    def _break_off(self, step: Step, num_put: int, is_half_recorded: bool) -> None:
        """Make flights of what was begun, also for those who are through with it."""
        for k, seat in enumerate(self._seats):
            if is_half_recorded:
                seat.flight = Flight(step, landed=True, is_half_recorded=True)
            elif seat.worker.break_off() or k < num_put:
                seat.flight = Flight(step)
            else:  # only one was interrupted within its put, and it may be the caller itself
                seat.flight = None
                if k == num_put:
                    self._books.distrust(seat.env_ids)
