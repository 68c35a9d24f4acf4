"""Traffic: one command at a time per worker, from put to landed, whatever happens on the way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shoal.engine.commands import Command, Step
from shoal.engine.seat import Flight, Seat
from shoal.engine.supervisor import Supervisor
from shoal.errors import WorkerError

LOOK_AROUND_S = 0.02
"""How long to wait for one worker before looking after the others."""


class Traffic:
    """Launches flights and waits for them; what can be done about a failure is done meanwhile."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def launch(self, seat: Seat, command: Command, sent: Sequence[int] = ()) -> None:
        """Hand a command to a worker that has none. Nothing is under way if that is refused."""
        try:
            seat.flight = Flight(command, sent)
            seat.worker.put(command)
        except Exception:
            seat.flight = None
            raise
        except BaseException:  # Ctrl-C: the next call waits for what may be under way
            if not seat.worker.break_off():
                seat.flight = None
                if seat.worker.local_envs():  # then one of them may have been in a step
                    self._supervisor.books.distrust(seat.env_ids)
            raise

    def launch_ahead(self, seat: Seat, command: Step, sent: Sequence[int]) -> None:
        """Hand a worker a step of some that follows its flight."""
        try:
            seat.ahead = Flight(command, sent)
            seat.worker.put_ahead(command)
        except BaseException:
            if not seat.worker.is_put_ahead():
                seat.ahead = None
            raise

    def await_all(self, seats: Sequence[Seat]) -> None:
        """Wait for all of these, looking after each of them all the time."""
        for k, seat in enumerate(seats):
            while not self.has_answered(seat, LOOK_AROUND_S):
                for other in seats[k + 1 :]:
                    self.has_answered(other, 0.0)

    def land_quietly(self, seat: Seat) -> bool:
        """Whether a flight can be landed without more ado: it is done and there is no reply."""
        flight = seat.flight
        if flight is None or flight.landed or flight.recovery is not None:
            return False
        flight.landed = seat.worker.take_quietly()
        return flight.landed

    def has_news(self, seat: Seat) -> bool:
        """Whether a flight, or what was put ahead of it, is over now; costs next to nothing."""
        flight = seat.flight
        if flight is None or flight.landed:
            return seat.ahead is not None and seat.worker.is_idle()
        if flight.recovery is not None:
            return self.has_answered(seat, 0.0)
        return seat.worker.has_answered()

    def has_answered(self, seat: Seat, timeout_s: float | None) -> bool:
        """Whether a worker has answered, or never will: then, too, its flight can be landed."""
        flight = seat.flight
        assert flight is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not flight.landed:
            if flight.recovery is None:
                if not self._look(seat, flight, timeout_s):
                    return False
                continue
            seat.patience_s = LOOK_AROUND_S if timeout_s is None else min(timeout_s, LOOK_AROUND_S)
            self._carry_on(seat, flight)
            if deadline is not None and time.monotonic() >= deadline:
                return flight.landed
        return True

    def _look(self, seat: Seat, flight: Flight, timeout_s: float | None) -> bool:
        """Wait for a worker's answer and take it."""
        try:
            if not seat.worker.wait(timeout_s):
                return False
            reply = seat.worker.take()
            if reply is not None:
                seat.call_back()
        except WorkerError as death:
            seat.call_back()
            flight.start_over()
            flight.recovery, flight.cause = self._supervisor.recover(seat, death), death
            return True
        except Exception as trouble:
            seat.call_back()
            flight.trouble, flight.landed = trouble, True
            return True
        if reply is not None:
            if not any(reply is known for known in flight.replies):  # Ctrl-C may have come since
                flight.replies.append(reply)
            if reply.failures:
                flight.recovery = self._supervisor.mend(seat, reply)
        flight.landed = flight.recovery is None
        return True

    def _carry_on(self, seat: Seat, flight: Flight) -> None:
        """Let a recovery go on for a while."""
        assert flight.recovery is not None
        try:
            next(flight.recovery)
        except StopIteration:
            flight.recovery = None
        except Exception as trouble:
            flight.trouble, flight.landed = trouble, True
        except BaseException:  # Ctrl-C: what is half rebuilt is rebuilt once more
            if flight.cause is None:
                flight.recovery = self._supervisor.mend_again(seat, flight)
            else:
                flight.start_over()
                flight.recovery = self._supervisor.recover(seat, flight.cause, is_again=True)
            raise
