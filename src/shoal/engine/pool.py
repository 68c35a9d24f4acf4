"""Pool: routes actions to workers and hands back batches. One class, whatever the backend.

Every vector environment that users hold is a thin presentation of a pool. A worker has one command
at a time; what is sent to a busy one waits here until it has answered. An environment is *sent*
from `send` until `recv` hands out its result, and nothing else may be asked of it in between.
"""

from __future__ import annotations

import logging
import operator
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine.actions import ActionWriter
from shoal.engine.backends import Backend, Terms
from shoal.engine.commands import (
    Assignment,
    Built,
    Call,
    Command,
    Factory,
    Failure,
    PlanReset,
    Reply,
    Reset,
    ResetArgs,
    SetAttr,
    Step,
)
from shoal.engine.compare import SameSpace, compare
from shoal.engine.crew import CLOSE_TIMEOUT_S, Crew
from shoal.engine.infos import ColumnSpec
from shoal.engine.results import Reader, Results
from shoal.engine.rows import RowShape
from shoal.errors import ClosedError, ContractError, ShoalError
from shoal.layout import Array, Layout
from shoal.seeding import Seed

log = logging.getLogger("shoal")

ResetPlan = Mapping[int, tuple[Seed, dict[str, Any] | None]]
"""Seed and options for the reset of each of some environments."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What a pool is made of."""

    factories: Sequence[Factory]
    """One for each environment, or a single one for all."""
    num_envs: int
    num_workers: int
    terms: Terms
    copy: bool = True
    strict_actions: bool = True
    """Whether actions must fit their space; if not, they reach the environments as they are."""
    same_observation_space: SameSpace = operator.eq

    def assignments(self) -> list[Assignment]:
        """Contiguous blocks, as even as possible."""
        empty = [
            Assignment(k, self.num_workers, self.num_envs, ()) for k in range(self.num_workers)
        ]
        if len(self.factories) == 1:
            return [replace(one, factories=self.factories) for one in empty]
        return [
            replace(one, factories=self.factories[one.block().start : one.block().stop])
            for one in empty
        ]


class Pool:
    """Environments, their workers and their rows."""

    def __init__(self, plan: PoolPlan, make_backend: Callable[[Terms], Backend]) -> None:
        begun = time.perf_counter()
        self.plan, self.num_envs = plan, plan.num_envs
        self.backend = make_backend(plan.terms)
        crew = Crew(self.backend)
        self._crew, self._finalizer = crew, weakref.finalize(self, crew.close)
        try:
            self.workers = crew.start(plan.assignments())
            self._meet([worker.built() for worker in self.workers])
        except BaseException:
            self._finalizer()
            raise
        self._prepare()
        self.opened = time.perf_counter()
        self.start_s = self.opened - begun

    def _meet(self, built: Sequence[Built]) -> None:
        """Learn the spaces from the workers' environments and give everyone rows."""
        self.first, self._together = built[0], max(max(one.widths) for one in built)
        self._blocks = [one.block for one in built]
        self.observation_spaces = [pair[0] for one in built for pair in one.spaces]
        self.single_observation_space, self.single_action_space = built[0].spaces[0]
        env_id = 0
        for one in built:
            for (observation, action), width in zip(one.spaces, one.widths, strict=True):
                same = self.plan.same_observation_space
                compare("observation", self.single_observation_space, observation, env_id, same)
                compare("action", self.single_action_space, action, env_id, operator.eq)
                env_id += width
        shape = RowShape(
            num_envs=self.num_envs,
            slots=1 if self.plan.copy else 2,
            observation=Layout(self.single_observation_space),
            action=Layout(self.single_action_space),
            keeps_finals=self.plan.terms.autoreset is AutoresetMode.SAME_STEP,
        )
        self.rows = self.backend.make_rows(shape)

    def _prepare(self) -> None:
        workers = range(len(self._blocks))
        self._owner = np.repeat(workers, [len(block) for block in self._blocks])
        self._reader = Reader(self.rows, self.plan.copy)
        self.tally, self.wait_s = self._reader.tally, 0.0
        self._actions = ActionWriter(self.rows, strict=self.plan.strict_actions)
        self._action_objects: dict[int, Any] = {}
        self._slot, self._exposed = 0, False
        self._steps = [Step(slot) for slot in range(self.rows.shape.slots)]
        self._resets_next = np.zeros(self.num_envs, dtype=np.bool_)
        self._reset_ids: list[int] | None = None
        self._news: list[list[ColumnSpec]] = [[] for _ in workers]
        self._started: list[int] = []
        self._answered: list[int] = []
        self._begun = 0.0
        self._running: list[Sequence[int] | None] = [None for _ in workers]
        self._queued: list[list[int]] = [[] for _ in workers]
        self._sent = np.zeros(self.num_envs, dtype=np.bool_)
        self._ready = np.zeros(self.num_envs, dtype=np.bool_)
        self._num_sent = 0
        self._failures: list[tuple[int, Failure]] = []
        self._noted: set[str] = set()

    # --- all together: start, finish, read --------------------------------------------------

    def step(self, actions: Any) -> Results:
        """One step of every environment."""
        self.start_step(actions)
        self.finish_started()
        return self.step_results()

    def start_step(self, actions: Any) -> None:
        """Begin a step of every environment; `finish_started`, then `step_results`, end it."""
        self._check_idle(None, "step")
        objects = self._actions.write(None, actions, self._resets_next)
        self._turn_slot()
        self._start({k: self._step_command(k, None, objects) for k in range(len(self.workers))})

    def step_results(self, env_ids: Sequence[int] | None = None) -> Results:
        """What the step that was finished last has come to."""
        self._exposed = env_ids is None
        results = self._reader.collect(self._slot, env_ids)
        if self.plan.terms.autoreset is AutoresetMode.NEXT_STEP:
            ended = results.terminations | results.truncations
            self._resets_next[slice(None) if env_ids is None else env_ids] = ended
        return results

    def reset(self, plan: ResetPlan) -> None:
        """Reset these environments now; `reset_results` tells what they, or all, look like."""
        self.start_reset(plan)
        self.finish_started()

    def start_reset(self, plan: ResetPlan) -> None:
        """Begin to reset these environments; `finish_started` ends it."""
        ids = list(plan)
        self._check_idle(ids, "reset")
        self._turn_slot(keep=len(ids) < self.num_envs)
        for array in (self.rows.rewards, self.rows.terminations, self.rows.truncations):
            array[self._slot, ids] = 0
        self._resets_next[ids] = False
        self._reset_ids = ids if len(ids) < self.num_envs else None
        parts = self._by_worker({i: ResetArgs(*how) for i, how in plan.items()})
        self._start({index: Reset(self._slot, part) for index, part in parts.items()})

    def reset_results(self, env_ids: Sequence[int] | None = None) -> tuple[Any, dict[str, Any]]:
        """What the reset that was finished last has come to.

        Observations of all environments and infos of those that were reset; or observations and
        infos of these environments, in this order.
        """
        self._exposed = self._exposed or env_ids is None
        only = self._reset_ids if env_ids is None else None
        return self._reader.observe(self._slot, env_ids), self._reader.infos(env_ids, only)

    def plan_reset(self, plan: ResetPlan) -> None:
        """What the next automatic reset of these environments uses, once."""
        self._check_idle(list(plan), "set_next_reset")
        parts = self._by_worker({i: ResetArgs(*how) for i, how in plan.items()})
        self._start({index: PlanReset(part) for index, part in parts.items()})
        self.finish_started()

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of each of these environments."""
        self.start_call(name, args, kwargs, env_ids)
        results = self.finish_started()
        return tuple(results[env_id] for env_id in env_ids)

    def start_call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> None:
        """Begin a call; `finish_started` gives its results by env id."""
        self._check_idle(env_ids, name)
        parts = self._by_worker(dict.fromkeys(env_ids))
        self._start({i: Call(name, args, kwargs, list(part)) for i, part in parts.items()})

    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute of environments, each to its own value."""
        self._check_idle(list(values), "set_attr")
        self._start({i: SetAttr(name, part) for i, part in self._by_worker(values).items()})
        self.finish_started()

    def _start(self, commands: dict[int, Command]) -> None:
        """Hand commands to workers, after what these are at."""
        if self._num_sent:
            for index in commands:
                if self._running[index] is not None:
                    self.workers[index].wait()
                    self._complete(index)
        self._begun = time.perf_counter()
        self._started = list(commands)
        for index, command in commands.items():
            self.workers[index].put(command)

    def await_started(self, timeout_s: float | None) -> bool:
        """Whether all workers have answered, waiting at most so long."""
        deadline = None if timeout_s is None else time.perf_counter() + timeout_s
        while self._started:
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self.workers[self._started[0]].wait(left):
                return False
            self._answered.append(self._started.pop(0))
        return True

    def finish_started(self) -> dict[int, Any]:
        """Wait for the answers and take them; raises what went wrong. The results of calls."""
        deaths: list[ShoalError] = []
        while self._started:
            try:
                self.await_started(None)
            except ShoalError as death:
                deaths.append(death)
                self._started.pop(0)
        answered, self._answered = self._answered, []
        results: dict[int, Any] = {}
        for index in answered:
            reply = self.workers[index].take()
            if reply is not None:
                self._absorb(index, reply)
                results.update(reply.results)
            if self._queued[index]:
                self._dispatch(index)
        self.wait_s += time.perf_counter() - self._begun
        if deaths:
            raise deaths[0]
        if self._failures:
            self._raise_failures()
        return results

    # --- first come, first served -----------------------------------------------------------

    def send(self, env_ids: Sequence[int], actions: Any) -> None:
        """Start steps of these environments; those of a busy worker follow when it is free."""
        self._check_idle(env_ids, "send")
        if self._together > 1:
            self._check_together(env_ids)
        objects = self._actions.write(env_ids, actions, self._resets_next)
        self._action_objects.update(objects or {})
        if not self._num_sent:
            self._turn_slot(keep=True)
        self._sent[list(env_ids)] = True
        self._num_sent += len(env_ids)
        for index, ids in self._by_worker(dict.fromkeys(env_ids)).items():
            self._queued[index].extend(ids)
            if self._running[index] is None:
                self._dispatch(index)

    def recv(self, min_envs: int, timeout_s: float | None) -> Results:
        """Everything that is ready, once at least `min_envs` are; TimeoutError loses nothing."""
        self._check_open("recv")
        if self._num_sent == 0:
            raise ContractError("recv: nothing was sent. Call send(actions, env_ids) first.")
        if not 1 <= min_envs <= self._num_sent:
            raise ContractError(
                f"recv: waiting for {min_envs} environments, but {self._num_sent} are outstanding. "
                f"Ask for 1 to {self._num_sent}."
            )
        begun = time.perf_counter()
        try:
            self._await_ready(min_envs, None if timeout_s is None else begun + timeout_s)
        finally:
            self.wait_s += time.perf_counter() - begun
        ids = np.flatnonzero(self._ready)
        self._ready[ids] = self._sent[ids] = False
        self._num_sent -= len(ids)
        return self.step_results(ids.tolist())

    def outstanding(self) -> Array:
        """Ids of the environments that were sent and not received."""
        return np.flatnonzero(self._sent)

    def _await_ready(self, min_envs: int, deadline: float | None) -> None:
        while True:
            for index, running in enumerate(self._running):
                if running is not None and self._has_answered(index):
                    self._complete(index)
                    self._dispatch(index)
            self._raise_failures()
            if (ready := int(self._ready.sum())) >= min_envs:
                return
            left = 1.0 if deadline is None else deadline - time.perf_counter()
            if left <= 0:
                raise TimeoutError(
                    f"recv: {ready} of {min_envs} environments were ready in time. "
                    "Nothing is lost: call recv again."
                )
            self.backend.listen(left)

    def _has_answered(self, index: int) -> bool:
        """Whether this worker is done; if it never will be, its environments are given up."""
        try:
            return self.workers[index].wait(0.0)
        except ShoalError:
            block = self._blocks[index]
            self._num_sent -= int(self._sent[block.start : block.stop].sum())
            self._sent[block.start : block.stop] = self._ready[block.start : block.stop] = False
            self._running[index], self._queued[index] = None, []
            raise

    def _dispatch(self, index: int) -> None:
        """Let an idle worker step whatever waits for it."""
        ids, block = self._queued[index], self._blocks[index]
        if not ids:
            return
        self._queued[index] = []
        self.rows.asked[block.start : block.stop] = False
        self.rows.asked[ids] = True
        waiting = self._action_objects
        objects = {i: waiting.pop(i) for i in ids if i in waiting} if waiting else None
        self._running[index] = ids
        everyone = len(ids) == len(block)
        self.workers[index].put(self._step_command(index, None if everyone else ids, objects))

    def _complete(self, index: int) -> None:
        """A worker has answered to a send: its environments are ready, unless they failed."""
        running, self._running[index] = self._running[index], None
        reply = self.workers[index].take()
        failed: set[int] = set()
        if reply is not None:
            self._absorb(index, reply)
            failed = {env_id for failure in reply.failures for env_id in failure.env_ids}
        self._ready[[env_id for env_id in running or () if env_id not in failed]] = True
        self._sent[list(failed)] = False
        self._num_sent -= len(failed)

    # --- inside -----------------------------------------------------------------------------

    def _turn_slot(self, *, keep: bool = False) -> None:
        """The next results go elsewhere, if the caller has views of the last ones.

        `keep` takes the rows along, where not all of them will be written anew.
        """
        if not self._exposed or self.rows.shape.slots == 1:
            return
        old, new = self._slot, (self._slot + 1) % self.rows.shape.slots
        self._slot, self._exposed = new, False
        if keep:
            flags = (self.rows.rewards, self.rows.terminations, self.rows.truncations)
            for array in flags:
                array[new] = array[old]
            rings = zip(self.rows.observations[old], self.rows.observations[new], strict=True)
            for source, target in rings:
                target[...] = source

    def _step_command(
        self, index: int, env_ids: Sequence[int] | None, objects: dict[int, Any] | None
    ) -> Step:
        news = self._news[index]
        if env_ids is None and not news and objects is None:
            return self._steps[self._slot]
        self._news[index] = []
        if objects is not None:
            objects = {i: objects[i] for i in self._blocks[index] if i in objects}
        return Step(self._slot, env_ids is None, tuple(news), objects)

    def _absorb(self, index: int, reply: Reply) -> None:
        columns = self._reader.absorb(reply)
        for news in self._news:
            news.extend(columns)
        for key, text in reply.notes.items():
            if key not in self._noted:
                self._noted.add(key)
                log.warning("%s", text)
        self._failures += [(index, failure) for failure in reply.failures]

    def _raise_failures(self) -> None:
        if not self._failures:
            return
        failures, self._failures = sorted(self._failures, key=lambda one: one[1].env_ids), []
        errors = [failure.as_error(index, self.workers[index].pid) for index, failure in failures]
        for other in errors[1:]:
            errors[0].add_note(f"At the same time: {other}")
        errors[0].others = errors[1:]
        raise errors[0]

    def _by_worker(self, values: dict[int, Any]) -> dict[int, dict[int, Any]]:
        parts: dict[int, dict[int, Any]] = {}
        for env_id, value in values.items():
            parts.setdefault(int(self._owner[env_id]), {})[env_id] = value
        return parts

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise ClosedError(f"{what}: these environments are closed. Make new ones.")

    def _check_idle(self, env_ids: Sequence[int] | None, what: str) -> None:
        self._check_open(what)
        if self._started or self._answered:
            raise ContractError(f"{what}: the call before this one was started and not finished.")
        if not self._num_sent:
            return
        busy = [i for i in self.outstanding().tolist() if env_ids is None or i in env_ids]
        if busy:
            raise ContractError(
                f"{what}: environments {_some(busy)} were sent and not received yet. "
                "Receive them first."
            )

    def _check_together(self, env_ids: Sequence[int]) -> None:
        starts = {env_id - env_id % self._together for env_id in env_ids}
        expected = {start + k for start in starts for k in range(self._together)}
        if expected != set(env_ids):
            raise ContractError(
                f"send: environments {_some(sorted(expected - set(env_ids)))} are in one vector "
                "environment with others that were given, and step together with them."
            )

    # --- about itself -----------------------------------------------------------------------

    def local_envs(self) -> list[Any]:
        """The environments themselves, where they live in this process."""
        return [env for worker in self.workers for env in worker.local_envs()]

    def busy_fractions(self) -> list[float]:
        """The share of its life that each worker has spent executing commands."""
        alive_ns = (time.perf_counter() - self.opened) * 1e9
        return [worker.busy_ns() / alive_ns for worker in self.workers]

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self, timeout_s: float | None = None) -> None:
        """Ask, wait, then insist. Safe to call twice."""
        self._crew.timeout_s = CLOSE_TIMEOUT_S if timeout_s is None else timeout_s
        self._finalizer()


def _some(env_ids: Iterable[int]) -> str:
    ids = list(env_ids)
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
