"""The supervisor: what becomes of environments whose worker died or hung, or that raised.

    raise      the error goes to the caller
    restart    rebuilt; a running episode is reported as truncated at its last known observation
    replay     rebuilt, and brought by its recorded actions to where it was, so that the step that
               died is simply taken again; where that fails, restarted

A recovery is a generator: it goes on a little whenever the pool waits for the worker concerned, so
that nobody else has to wait for it. It ends with the interrupted command put to the new worker.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from shoal.engine.books import Books
from shoal.engine.cells import EpisodeOver
from shoal.engine.commands import (
    NOBODY,
    Attach,
    Build,
    Built,
    Call,
    Command,
    Failure,
    Place,
    PlanReset,
    Recovery,
    Reply,
    Reset,
    Restore,
    Step,
    failure_of,
)
from shoal.engine.crew import Crew
from shoal.engine.incident import Incident, leave_capsule, point_to
from shoal.engine.plan import PoolPlan
from shoal.engine.seat import Flight, Seat
from shoal.errors import (
    ConfigError,
    ContractError,
    EnvRaised,
    ShoalError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)

log = logging.getLogger("shoal")

T = TypeVar("T")
Recovering = Generator[None, None, T]

Check = Callable[[Built], None]
"""Raises where rebuilt environments have other spaces than their pool."""

_INCIDENTS_KEPT = 100
_STEPPING = ("reset", "step", "replay")
"""What the actions of an episode can make an environment fail in."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_MOST_DOUBLINGS = 32  # more would overflow


class Supervisor:
    """Watches over all seats of a pool."""

    def __init__(self, plan: PoolPlan, crew: Crew, books: Books, check: Check) -> None:
        self.plan, self.books = plan, books
        self._crew, self._check = crew, check
        self.incidents: deque[Incident] = deque(maxlen=_INCIDENTS_KEPT)
        self.num_incidents = self.num_restarts = self.num_replays = self.num_timeouts = 0
        self._strikes: dict[int, int] = {}
        """Failures of each environment since it last finished an episode."""
        self._places: dict[int, tuple[int, int]] = {}
        """Episode and step at which each environment failed last."""
        self._lost: set[int] = set()
        """Environments whose loss is still to be reported."""
        self._has_warned = False

    # --- a worker is gone -------------------------------------------------------------------

    def recover(
        self, seat: Seat, error: WorkerError, *, is_again: bool = False
    ) -> Recovering[None]:
        """Replace a worker that has died or hung, and let it carry on with its command.

        `is_again` says that Ctrl-C broke off a recovery: nobody has failed since.
        """
        if seat.given_up is not None:
            raise seat.given_up
        flight, place = seat.flight, seat.worker.at()
        assert flight is not None
        if not is_again:
            flight.incidents.append(self._note(seat, error, place))
        if not self._replaces_workers:
            seat.given_up = self._final(error)
            raise seat.given_up
        begun = time.perf_counter()
        doomed = set() if is_again else self._count(seat, place, error, flight.incidents[-1])
        while True:
            try:
                yield from self._pause(seat, place)
                yield from self._replace(seat)
                replayed = yield from self._restore(seat, seat.env_ids, doomed)
                break
            except WorkerError as again:
                error, place = again, _place(seat, again)
                flight.incidents.append(self._note(seat, error, place))
                doomed = self._count(seat, place, error, flight.incidents[-1])
        outcome, took_s = "replayed" if replayed else "restarted", time.perf_counter() - begun
        if self._is_for_the_caller(flight, place):
            last = flight.incidents[-1]
            _settle(flight, outcome, took_s)
            last.outcome = "raised"
            raise error  # what it returned is lost, and it may do the same again
        self._reissue(seat)
        _settle(flight, outcome, took_s)

    def _count(self, seat: Seat, place: Place, error: WorkerError, incident: Incident) -> set[int]:
        """Count a lost worker, and give its seat up if it was one too many."""
        seat.failures += 1
        try:
            return self._charge(seat, place, error, incident)
        except WorkerError as final:
            seat.given_up = final
            raise

    def _replace(self, seat: Seat) -> Recovering[None]:
        seat.spent_ns += seat.worker.busy_ns()
        self._crew.dismiss(seat.worker)
        (seat.worker,) = self._crew.launch([Build(self.plan.assign(seat.index, seat.env_ids))])
        built = (yield from _answer(seat)).built
        if built is not None:
            self._check(built)
        seat.worker.put(Attach(self.books.rows, self.books.reader.columns()))
        seat.news.clear()
        yield from _answer(seat)

    def _is_for_the_caller(self, flight: Flight, place: Place) -> bool:
        """Whether a worker died in a call that is not made again; after Ctrl-C nobody waits."""
        if not isinstance(flight.command, Call) or place.phase != "call" or not flight.incidents:
            return False
        is_final = flight.was_retried or self.plan.policy.on_failure != "replay"
        flight.was_retried = True
        return is_final

    def _reissue(self, seat: Seat) -> None:
        """Put the command that was interrupted once more."""
        flight = seat.flight
        assert flight is not None
        command = flight.command
        flight.command = self._again(command)
        if isinstance(command, Step) and not command.everyone:
            self.books.ask(seat, flight.sent, command.slot)
        seat.worker.put(flight.command)

    def _again(self, command: Command) -> Command:
        if isinstance(command, Step):
            return replace(command, columns=())
        if isinstance(command, Reset | PlanReset):
            args = {i: self.books.journal.explicit(i, a) for i, a in command.args.items()}
            return replace(command, args=args)
        return command

    # --- an environment raised --------------------------------------------------------------

    def mend(self, seat: Seat, reply: Reply) -> Recovering[None] | None:
        """How to restart the environments that raised; None where that is for the caller."""
        if self.plan.policy.on_error != "restart":
            return None
        failures = [failure for failure in reply.failures if self._is_mendable(failure)]
        if not failures:
            return None
        assert seat.flight is not None
        seat.flight.mending = sorted({i for one in failures for i in one.env_ids})
        return self._mend(seat, failures)

    def _is_mendable(self, failure: Failure) -> bool:
        num_episodes = self.books.journal.num_episodes
        return has_acted(failure) and all(num_episodes[env_id] for env_id in failure.env_ids)

    def _mend(self, seat: Seat, failures: Sequence[Failure]) -> Recovering[None]:
        flight = seat.flight
        assert flight is not None
        _take_up(flight)
        for failure in failures:
            error = self._as_error(seat, failure)
            place = Place(failure.env_ids[0], failure.phase, failure.length)
            flight.incidents.append(self._note(seat, error, place, failure))
            self._charge(seat, place, error, flight.incidents[-1])
        yield from self._rebuild(seat, flight, place)

    def mend_again(self, seat: Seat, flight: Flight) -> Recovering[None]:
        """Go on after Ctrl-C has broken off a mending."""
        _take_up(flight)
        try:
            if seat.worker.break_off():
                with contextlib.suppress(EnvRaised, ContractError, ConfigError):
                    yield from _answer(seat)  # to whatever it was told last
        except WorkerError as gone:
            yield from self._recover_instead(seat, flight, gone)
            return
        yield from self._rebuild(seat, flight, seat.worker.at())

    def _rebuild(self, seat: Seat, flight: Flight, place: Place) -> Recovering[None]:
        """Build environments that raised anew, and put the command once more for them."""
        begun, env_ids = time.perf_counter(), flight.mending
        while True:
            try:
                yield from self._pause(seat, place)
                seat.worker.put(Build(self.plan.assign(seat.index, env_ids)))
                built = (yield from _answer(seat)).built
                assert built is not None
                self._check(built)
                yield from self._restore(seat, env_ids, set(env_ids))
                break
            except EnvRaised as again:
                place = _place(seat, again)
                incident = self._note(
                    seat, again, place, failure_of(again, tuple(env_ids), place.phase)
                )
                self._charge(seat, place, again, incident)
            except WorkerError as gone:
                yield from self._recover_instead(seat, flight, gone)
                return
        self._reissue_for(seat, env_ids)
        flight.failed.difference_update(env_ids)
        _settle(flight, "restarted", time.perf_counter() - begun)

    def _recover_instead(self, seat: Seat, flight: Flight, gone: WorkerError) -> Recovering[None]:
        """Its worker has died of a mending: its mates will take this step again."""
        flight.start_over()
        flight.cause = gone
        yield from self.recover(seat, gone)

    def _reissue_for(self, seat: Seat, env_ids: Sequence[int]) -> None:
        """Put the command once more, for these environments only."""
        flight = seat.flight
        assert flight is not None
        command = flight.command
        if isinstance(command, Reset):
            args = {i: command.args[i] for i in env_ids if i in command.args}
            again = self._again(Reset(args, command.slots))
            assert isinstance(again, Reset)
            command.args.update(again.args)
            seat.worker.put(again)
            return
        assert isinstance(command, Step)
        again = Step(1 - command.slot, everyone=False, objects=command.objects)  # the other list
        self.books.ask(seat, env_ids, again.slot)
        seat.worker.put(again)

    # --- both -------------------------------------------------------------------------------

    def _restore(self, seat: Seat, env_ids: Sequence[int], doomed: set[int]) -> Recovering[bool]:
        """Bring rebuilt environments to where they were, or else let them report their loss.

        Returns whether nothing was lost.
        """
        how: dict[int, Recovery] = {}
        for env_id in env_ids:
            again = None if env_id in doomed else self._replay_of(env_id)
            how[env_id] = again or self.restart_of(env_id)
        replayed = [env_id for env_id, one in how.items() if one.episode is not None]
        seat.worker.put(Restore(how))
        problems = (yield from _answer(seat)).results
        differing = {i: problems[i] for i in replayed if problems[i]}
        if differing:
            self._warn(differing)
            seat.worker.put(Restore({env_id: self.restart_of(env_id) for env_id in differing}))
            yield from _answer(seat)
        self.num_replays += len(replayed) - len(differing)
        is_any_lost = any(one.is_lost for one in how.values())
        return self.plan.policy.on_failure == "replay" and not differing and not is_any_lost

    def _replay_of(self, env_id: int) -> Recovery | None:
        if self.plan.policy.on_failure != "replay":
            return None
        how = self.books.replay_of(env_id)
        if how is None and not self.books.journal.entries[env_id].is_fresh:
            limit = self.plan.policy.replay_limit_steps
            is_long = self.books.journal.length(env_id) >= limit
            why = f"is longer than replay_limit_steps ({limit})" if is_long else "was interrupted"
            self._warn({env_id: f"its episode {why}"})
        return how

    def restart_of(self, env_id: int) -> Recovery:
        """How to let an environment begin anew; the loss of its episode is still to be reported."""
        how = self.books.restart_of(env_id)
        self.num_restarts += 1
        if how.is_lost:
            self._lost.add(env_id)
        return how

    def forget_from(self, num_envs: int) -> None:
        """There are no environments from this number on; later ones begin with a clean sheet."""
        self._strikes = {i: count for i, count in self._strikes.items() if i < num_envs}
        self._places = {i: place for i, place in self._places.items() if i < num_envs}
        self._lost = {i for i in self._lost if i < num_envs}

    def was_reset(self, env_ids: Sequence[int]) -> None:
        """Explicit resets: a loss that was not told until now never will be."""
        self._lost.difference_update(env_ids)

    def finished(self, env_ids: Sequence[int]) -> None:
        """Episodes have ended: their environments start with a clean sheet."""
        if not self._strikes and not self._lost:
            return
        for env_id in env_ids:
            if env_id in self._lost:
                self._lost.discard(env_id)
            else:
                self._strikes.pop(env_id, None)
                self._places.pop(env_id, None)

    def _charge(self, seat: Seat, place: Place, error: Exception, incident: Incident) -> set[int]:
        """Count a failure; raises when there were too many. Returns whom not to replay."""
        env_id, strikes = incident.env_id, seat.failures
        doomed: set[int] = set()
        if env_id is not None:
            self._strikes[env_id] = self._strikes.get(env_id, 0) + 1
            strikes = self._strikes[env_id]  # its mates, who may have died too, have their own
            if place.phase in _STEPPING and self._was_there_before(env_id, place):
                doomed.add(env_id)
        if strikes > self.plan.policy.max_restarts:
            who = f"env {env_id}" if env_id is not None else f"worker {seat.index}"
            error.add_note(
                f"{who} failed {strikes} times without a finished episode, and max_restarts is "
                f"{self.plan.policy.max_restarts}."
            )
            raise error
        return doomed

    def _was_there_before(self, env_id: int, place: Place) -> bool:
        """Whether an environment has failed at just the step where it failed the last time."""
        journal = self.books.journal
        step = place.step if place.phase == "replay" else journal.length(env_id)
        where = (journal.num_episodes[env_id], step)
        before, self._places[env_id] = self._places.get(env_id), where
        return before == where

    def _pause(self, seat: Seat, place: Place) -> Recovering[None]:
        """Longer after each failure, and not at all after the first."""
        strikes = 0 if _is_nobodys(place) else self._strikes.get(place.env_id, 0)
        count = max(strikes, seat.failures)
        if count < 2:
            return
        doublings = min(count - 2, _MOST_DOUBLINGS)
        until = time.monotonic() + min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, seat.patience_s))
            yield

    def _note(
        self, seat: Seat, error: Exception, place: Place, failure: Failure | None = None
    ) -> Incident:
        """Log an incident, and leave a capsule of it."""
        kind = "raised" if failure is not None or isinstance(error, EnvRaised) else "died"
        kind = "hung" if isinstance(error, WorkerTimeout) else kind
        incident = Incident(
            time=time.time(),
            kind=kind,
            worker=seat.index,
            env_ids=tuple(seat.env_ids) if failure is None else failure.env_ids,
            env_id=None if _is_nobodys(place) else place.env_id,
            phase=place.phase,
            cause=str(error),
        )
        self.num_incidents += 1
        self.num_timeouts += kind == "hung"
        self.incidents.append(incident)
        if incident.env_id is not None and seat.flight is not None:
            trace = "" if failure is None else failure.trace
            incident.capsule = leave_capsule(
                self.plan, self.books, incident, seat.flight.command, trace
            )
        point_to(incident.capsule, error)
        return incident

    def _as_error(self, seat: Seat, failure: Failure) -> ShoalError:
        lengths = [self.books.journal.length(env_id) for env_id in failure.env_ids]
        failure.length = max(lengths)  # how far it had come before
        return failure.as_error(seat.index, seat.worker.pid)

    def error_of(self, seat: Seat, failure: Failure) -> Exception:
        """The exception that the caller gets for a failure that is not mended."""
        error = self._as_error(seat, failure)
        if has_acted(failure):
            self._note(seat, error, Place(failure.env_ids[0], failure.phase, 0), failure)
        return error

    def is_lost(self, seat: Seat, flight: Flight) -> bool:
        """Whether it is for good that a worker could not answer."""
        return isinstance(flight.trouble, WorkerDied | WorkerTimeout) and (
            seat.given_up is not None or not self._replaces_workers
        )

    @property
    def _replaces_workers(self) -> bool:
        return self.plan.policy.on_failure != "raise" and self._crew.loses_workers

    def note_growth(self, seat: Seat, text: str) -> None:
        """A worker has grown too large and is being replaced."""
        self.num_incidents += 1
        self.incidents.append(
            Incident(
                time=time.time(),
                kind="grown",
                worker=seat.index,
                env_ids=tuple(seat.env_ids),
                env_id=None,
                phase="step",
                cause=text,
                outcome="recycled",
            )
        )

    def _final(self, error: WorkerError) -> WorkerError:
        """The error as the caller gets it, with what to do next."""
        if self._crew.loses_workers:
            hint = "Close these environments and make new ones, or let them be rebuilt: "
            error.args = (f"{error} {hint}on_failure='restart' or 'replay'.",)
        return error

    def _warn(self, differing: dict[int, str]) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        env_id, problem = next(iter(differing.items()))
        log.warning(
            "env %d could not be replayed: %s. Environments whose episodes are too long, or do not "
            "follow from their generator, options and actions alone, are restarted instead.",
            env_id,
            problem,
        )

    def describe(self) -> dict[str, Any]:
        """The entries of `stats()`."""
        return {
            "restarts": self.num_restarts,
            "replays": self.num_replays,
            "timeouts": self.num_timeouts,
            "num_incidents": self.num_incidents,
            "incidents": [asdict(incident) for incident in self.incidents],
        }


def _settle(flight: Flight, outcome: str, took_s: float) -> None:
    """Everything is back: write down how, and tell it once.

    Ctrl-C may come after it, and before what was recovered goes on: then there is nothing to tell.
    """
    incidents, flight.incidents = flight.incidents, []
    if not incidents:
        return
    for incident in incidents:
        incident.outcome, incident.took_s = outcome, took_s
    others = f" (and {len(incidents) - 1} more)" if len(incidents) > 1 else ""
    cause = incidents[0].cause.splitlines()[0].rstrip(".")
    log.warning("%s%s. %s within %.2f s.", cause, others, outcome.capitalize(), took_s)


def _take_up(flight: Flight) -> None:
    """Failures that are being mended are none, unless they are given up; others have done theirs.

    Safe to do again where Ctrl-C breaks it off.
    """
    mended = set(flight.mending)
    flight.failed.update(mended)
    for reply in flight.replies:
        left = [one for one in reply.failures if not mended.issuperset(one.env_ids)]
        reply.failures = left


def has_acted(failure: Failure) -> bool:
    """Whether an environment raised in its own step or reset, and may have changed before that."""
    is_own = not isinstance(failure.error, EpisodeOver | ConfigError)
    return is_own and failure.phase in ("step", "reset")


def _is_nobodys(place: Place) -> bool:
    """Whether a worker was at nothing that one of its environments does; who closes has left."""
    return place.phase in ("idle", "start", "close") or place.env_id == NOBODY


def _place(seat: Seat, error: WorkerError) -> Place:
    """What a worker was at when it, or an environment that it was building, failed."""
    if isinstance(error, EnvRaised):
        return Place(error.env_ids[0], error.phase, 0)
    return seat.worker.at()


def _answer(seat: Seat) -> Recovering[Reply]:
    """Wait for a worker's answer to what a recovery asked of it; raises what it failed with."""
    while not seat.worker.wait(seat.patience_s):
        yield
    reply = seat.worker.take() or Reply()
    for failure in reply.failures:
        raise failure.as_error(seat.index, seat.worker.pid)
    return reply
