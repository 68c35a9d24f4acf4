"""Pool: routes actions to workers and hands back batches. One class, whatever the backend.

Every vector environment that users hold is a thin presentation of a pool. A worker has one command
at a time; what is sent to a busy one waits here until it has answered. An environment is *sent*
from `send` until `recv` hands out its result, and nothing else may be asked of it in between.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine.actions import ActionWriter
from shoal.engine.backends import Assignment, Backend, Terms, Worker
from shoal.engine.cells import ResetArgs
from shoal.engine.infos import Columns, ColumnSpec, InfoReader, OddInfo
from shoal.engine.rows import RowShape
from shoal.engine.worker import (
    Built,
    Call,
    Command,
    Factory,
    Failure,
    PlanReset,
    Reply,
    Reset,
    SetAttr,
    Step,
)
from shoal.errors import ClosedError, ConfigError, ContractError, ShoalError
from shoal.layout import Array, Layout

log = logging.getLogger("shoal")

CLOSE_TIMEOUT_S = 5.0
_EPISODES_KEPT = 100

Space = gymnasium.Space[Any]
SameSpace = Callable[[Space, Space], bool]


class Results(NamedTuple):
    """What some environments have come to, row k being the k-th of `env_ids`."""

    observations: Any
    rewards: Array
    terminations: Array
    truncations: Array
    infos: dict[str, Any]
    env_ids: Array


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
    same_observation_space: SameSpace = gymnasium.Space.__eq__

    def assignments(self) -> list[Assignment]:
        """Contiguous blocks, as even as possible."""
        bounds = [self.num_envs * k // self.num_workers for k in range(self.num_workers + 1)]
        single = len(self.factories) == 1
        return [
            Assignment(k, a, b - a, self.factories if single else self.factories[a:b])
            for k, (a, b) in enumerate(zip(bounds, bounds[1:], strict=False))
        ]


class Pool:
    """Environments, their workers and their rows."""

    def __init__(self, plan: PoolPlan, make_backend: Callable[[Terms], Backend]) -> None:
        begun = time.perf_counter()
        assignments = plan.assignments()
        self.plan, self.num_envs = plan, plan.num_envs
        self.backend = make_backend(plan.terms)
        self._crew = _Crew(self.backend)
        self._finalizer = weakref.finalize(self, self._crew.close)
        try:
            self.workers = self._crew.start(assignments)
            self._meet([worker.built() for worker in self.workers], assignments)
        except BaseException:
            self._finalizer()
            raise
        self._prepare(assignments)
        self.start_s = time.perf_counter() - begun

    # --- start-up ---------------------------------------------------------------------------

    def _meet(self, built: Sequence[Built], assignments: Sequence[Assignment]) -> None:
        self.first = built[0]
        self.observation_spaces = [pair[0] for one in built for pair in one.spaces]
        self.single_observation_space, self.single_action_space = built[0].spaces[0]
        env_id = 0
        for one in built:
            for (observation, action), width in zip(one.spaces, one.widths, strict=True):
                same = self.plan.same_observation_space
                _compare("observation", self.single_observation_space, observation, env_id, same)
                _compare("action", self.single_action_space, action, env_id, gymnasium.Space.__eq__)
                env_id += width
        shape = RowShape(
            num_envs=self.num_envs,
            slots=1 if self.plan.copy else 2,
            observation=Layout(self.single_observation_space),
            action=Layout(self.single_action_space),
            keeps_finals=self.plan.terms.autoreset is AutoresetMode.SAME_STEP,
        )
        self.rows = self.backend.make_rows(shape)
        for worker in self.workers:
            worker.attach(self.rows)
        self._together = max(max(one.widths) for one in built)

    def _prepare(self, assignments: Sequence[Assignment]) -> None:
        self._blocks = [range(a.first_id, a.first_id + a.count) for a in assignments]
        self._owner = np.repeat(np.arange(len(assignments)), [a.count for a in assignments])
        self._infos = InfoReader(Columns(self.rows))
        self._actions = ActionWriter(self.rows, strict=self.plan.strict_actions)
        self._slot = 0
        self._steps = [Step(slot) for slot in range(self.rows.shape.slots)]
        workers = range(len(assignments))
        self._news: list[list[ColumnSpec]] = [[] for _ in workers]
        self._running: list[Sequence[int] | None] = [None for _ in workers]
        self._queued: list[list[int]] = [[] for _ in workers]
        self._all_ids = np.arange(self.num_envs)
        self._sent = np.zeros(self.num_envs, dtype=np.bool_)
        self._num_sent = 0
        self._started: list[int] = []
        self._answered: list[int] = []
        self._begun = 0.0
        self._ready = np.zeros(self.num_envs, dtype=np.bool_)
        self._odd: dict[int, list[OddInfo]] = {}
        self._objects: dict[int, tuple[Any, ...]] = {}
        self._final_objects: dict[int, tuple[Any, ...]] = {}
        self._final_scalars: dict[int, Any] = {}
        self._action_objects: dict[int, Any] = {}
        self._failures: list[tuple[int, Failure]] = []
        self._noted: set[str] = set()
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self.steps, self.wait_s, self.opened = 0, 0.0, time.perf_counter()
        self.episodes: deque[tuple[float, int]] = deque(maxlen=_EPISODES_KEPT)
        self.num_episodes = 0

    # --- lock-step --------------------------------------------------------------------------

    def step(self, actions: Any) -> Results:
        """One step of every environment."""
        self.start_step(actions)
        self.finish_started()
        return self.step_results()

    def start_step(self, actions: Any) -> None:
        """Begin a step of every environment; `finish_started`, then `step_results`, end it."""
        self._check_idle(None, "step")
        objects = self._actions.write(None, actions, self._over)
        self._turn_slot()
        self._start({k: self._step_command(k, None, objects) for k in range(len(self.workers))})

    def step_results(self) -> Results:
        """What the step that was finished last has come to."""
        return self._collect(None)

    def _turn_slot(self) -> None:
        """The next results go elsewhere, so that the caller's views of the last ones stay."""
        self._slot = (self._slot + 1) % self.rows.shape.slots

    def _step_command(
        self, index: int, env_ids: Sequence[int] | None, objects: dict[int, Any] | None
    ) -> Step:
        news = self._news[index]
        if env_ids is None and not news and objects is None:
            return self._steps[self._slot]
        self._news[index] = []
        if objects is not None:
            objects = {i: objects[i] for i in (self._blocks[index] if env_ids is None else env_ids)}
        return Step(self._slot, env_ids is None, tuple(news), objects)

    # --- resets -----------------------------------------------------------------------------

    def reset(self, args: dict[int, ResetArgs]) -> None:
        """Reset these environments now. `results` then gives what they, or all, look like."""
        self.start_reset(args)
        self.finish_started()

    def start_reset(self, args: dict[int, ResetArgs]) -> None:
        """Begin to reset these environments; `finish_started` ends it."""
        self._check_idle(list(args), "reset")
        previous = self._slot
        self._turn_slot()
        if previous != self._slot and len(args) < self.num_envs:
            self._carry_over(previous)
        ids = list(args)
        self._over[ids] = False
        for array in (self.rows.rewards, self.rows.terminations, self.rows.truncations):
            array[self._slot, ids] = 0
        self._start({i: Reset(self._slot, part) for i, part in self._by_worker(args).items()})

    def _carry_over(self, previous: int) -> None:
        old, new = self.rows.observations[previous], self.rows.observations[self._slot]
        for source, target in zip(old, new, strict=True):
            target[...] = source
        for array in (self.rows.rewards, self.rows.terminations, self.rows.truncations):
            array[self._slot] = array[previous]

    def results(self, env_ids: Sequence[int] | None = None) -> tuple[Any, dict[str, Any]]:
        """Observations and infos after a reset: of all environments, or of these in this order."""
        odd = self._take_odd(env_ids)
        return self._observe(env_ids), self._infos.collect(env_ids, odd)

    def plan_reset(self, args: dict[int, ResetArgs]) -> None:
        """What the next automatic reset of these environments uses, once."""
        self._check_idle(list(args), "set_next_reset")
        self._start({i: PlanReset(part) for i, part in self._by_worker(args).items()})
        self.finish_started()

    # --- first come, first served -----------------------------------------------------------

    def send(self, env_ids: Sequence[int], actions: Any) -> None:
        """Start steps of these environments; those of a busy worker follow when it is free."""
        self._check_idle(env_ids, "send")
        if self._together > 1:
            self._check_together(env_ids)
        objects = self._actions.write(env_ids, actions, self._over)
        if objects is not None:
            self._action_objects.update(objects)
        self._sent[list(env_ids)] = True
        self._num_sent += len(env_ids)
        for index, ids in self._by_worker(dict.fromkeys(env_ids)).items():
            self._queued[index].extend(ids)
            if self._running[index] is None:
                self._dispatch(index)

    def _dispatch(self, index: int) -> None:
        """Let an idle worker step whatever waits for it."""
        ids = self._queued[index]
        if not ids:
            return
        self._queued[index] = []
        block = self._blocks[index]
        asked = self.rows.asked[block.start : block.stop]
        asked[...] = False
        self.rows.asked[ids] = True
        everyone = None if len(ids) == len(block) else ids
        objects = self._action_objects if self.rows.shape.action.has_objects else None
        self._running[index] = ids
        self.workers[index].put(self._step_command(index, everyone, objects))

    def recv(self, min_envs: int, timeout_s: float | None) -> Results:
        """Everything that is ready, once at least `min_envs` are; TimeoutError loses nothing."""
        self._check_open("recv")
        outstanding = self._num_sent
        if outstanding == 0:
            raise ContractError("recv: nothing was sent. Call send(actions, env_ids) first.")
        if not 1 <= min_envs <= outstanding:
            raise ContractError(
                f"recv: waiting for {min_envs} environments, but {outstanding} are outstanding. "
                f"Ask for 1 to {outstanding}."
            )
        begun = time.perf_counter()
        self._await(min_envs, None if timeout_s is None else begun + timeout_s)
        self.wait_s += time.perf_counter() - begun
        ids = np.flatnonzero(self._ready)
        self._ready[ids] = False
        self._sent[ids] = False
        self._num_sent -= len(ids)
        return self._collect(ids.tolist())

    def _await(self, min_envs: int, deadline: float | None) -> None:
        while True:
            self._sweep()
            self._raise_failures()
            if self._ready.sum() >= min_envs:
                return
            left = 1.0 if deadline is None else deadline - time.perf_counter()
            if left <= 0:
                ready = int(self._ready.sum())
                raise TimeoutError(
                    f"recv: {ready} of {min_envs} environments were ready in time. "
                    "Nothing is lost: call recv again."
                )
            self.backend.listen(left)

    def _sweep(self) -> None:
        """Take the answers that are there and let those workers go on."""
        for index, running in enumerate(self._running):
            if running is not None and self.workers[index].wait(0.0):
                self._complete(index)
                self._dispatch(index)

    def _complete(self, index: int) -> None:
        """A worker has answered to a send: its environments are ready."""
        running = self._running[index]
        assert running is not None
        self._running[index] = None
        self._absorb(index, self.workers[index].take())
        failed = {i for at, failure in self._failures if at == index for i in failure.env_ids}
        self._ready[[i for i in running if i not in failed]] = True
        if failed:
            self._sent[list(failed)] = False
            self._num_sent -= len(failed)

    def outstanding(self) -> Array:
        """Ids of the environments that were sent and not received."""
        return np.flatnonzero(self._sent)

    # --- everything else --------------------------------------------------------------------

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

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask, wait, then insist. Safe to call twice."""
        self._crew.timeout_s = timeout_s
        self._finalizer()

    # --- inside -----------------------------------------------------------------------------

    def _start(self, commands: dict[int, Command]) -> None:
        """Hand commands to workers, after what these are at."""
        if self._started:
            raise ContractError("the call before this one was started and not finished.")
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
        self._raise_failures()
        return results

    def _absorb(self, index: int, reply: Reply | None) -> None:
        if reply is None:
            return
        for odd in reply.odd_infos:
            self._odd.setdefault(odd.env_id, []).append(odd)
        if reply.odd_infos:
            new = self._infos.discover(reply.odd_infos)
            for news in self._news:
                news.extend(new)
        self._objects.update(reply.objects)
        self._final_objects.update(reply.final_objects)
        self._final_scalars.update(reply.final_scalars)
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

    def _collect(self, env_ids: Sequence[int] | None) -> Results:
        ids: Any = slice(None) if env_ids is None else env_ids
        rewards, terminations, truncations = (
            array[self._slot][ids]
            for array in (self.rows.rewards, self.rows.terminations, self.rows.truncations)
        )
        if self.plan.copy and env_ids is None:
            rewards, terminations, truncations = (
                rewards.copy(),
                terminations.copy(),
                truncations.copy(),
            )
        infos = self._infos.collect(env_ids, self._take_odd(env_ids))
        ended = terminations | truncations
        self.steps += len(rewards)
        if ended.any():
            self._note_ends(np.flatnonzero(ended), env_ids, infos, len(rewards))
        if self.plan.terms.autoreset is AutoresetMode.NEXT_STEP:
            self._over[ids] = ended
        numbers = self._all_ids if env_ids is None else np.asarray(env_ids)
        return Results(self._observe(env_ids), rewards, terminations, truncations, infos, numbers)

    def _note_ends(
        self, rows: Array, env_ids: Sequence[int] | None, infos: dict[str, Any], count: int
    ) -> None:
        ids = rows if env_ids is None else np.asarray(env_ids)[rows]
        returns, lengths = self.rows.episode_returns[ids], self.rows.episode_lengths[ids]
        self.episodes.extend(zip(returns.tolist(), lengths.tolist(), strict=True))
        self.num_episodes += len(ids)
        if self.rows.shape.keeps_finals:
            finals, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
            for row, env_id in zip(rows, ids.tolist(), strict=True):
                finals[row], mask[row] = self._final(env_id), True
            infos["final_obs"], infos["_final_obs"] = finals, mask

    def _final(self, env_id: int) -> Any:
        layout = self.rows.shape.observation
        arrays, objects = iter(self.rows.finals), iter(self._final_objects.pop(env_id, ()))
        if layout.is_plain and env_id in self._final_scalars:
            return self._final_scalars.pop(env_id)
        parts = [
            next(arrays)[env_id].copy() if leaf.is_array else next(objects)
            for leaf in layout.leaves
        ]
        return layout.assemble(parts)

    def _observe(self, env_ids: Sequence[int] | None) -> Any:
        layout, arrays = self.rows.shape.observation, iter(self.rows.observations[self._slot])
        ids = range(self.num_envs) if env_ids is None else env_ids
        parts: list[Any] = []
        position = 0
        for leaf in layout.leaves:
            if not leaf.is_array:
                parts.append(layout.batch_objects(leaf, [self._objects[i][position] for i in ids]))
                position += 1
            elif env_ids is not None:
                parts.append(next(arrays)[env_ids])
            else:
                parts.append(next(arrays).copy() if self.plan.copy else next(arrays))
        return layout.assemble(parts)

    def _take_odd(self, env_ids: Sequence[int] | None) -> list[OddInfo]:
        if not self._odd:
            return []
        ids = range(self.num_envs) if env_ids is None else env_ids
        return [odd for env_id in ids for odd in self._odd.pop(env_id, ())]

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
        if not self._num_sent:
            return
        busy = [i for i in self.outstanding() if env_ids is None or i in env_ids]
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


class _Crew:
    """The workers and their backend, closable when the pool itself is already gone."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._pid = backend, os.getpid()
        self._workers: Sequence[Worker] = ()
        self.timeout_s = CLOSE_TIMEOUT_S

    def start(self, assignments: Sequence[Assignment]) -> Sequence[Worker]:
        self._workers = self._backend.start(assignments)
        return self._workers

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the caller: the workers are not its own
        deadline = time.monotonic() + self.timeout_s
        try:
            for worker in self._workers:
                for failure in worker.close(deadline):
                    log.warning("env %s raised in close: %s", failure.env_ids, failure.trace)
        finally:
            self._backend.close()


def _compare(kind: str, first: Space, other: Space, env_id: int, same: SameSpace) -> None:
    if other is first or same(first, other):
        return
    key, expected, got = _difference(first, other)
    raise ConfigError(
        f"the {kind} space of env {env_id} differs from that of env 0"
        f"{f' at {key}' if key else ''}: expected {expected}, got {got}. "
        "All environments of a pool must have the same spaces."
    )


def _difference(first: Space, other: Space, key: str = "") -> tuple[str, Space, Space]:
    """The innermost place where two spaces differ."""
    spaces = gymnasium.spaces
    if (
        isinstance(first, spaces.Dict)
        and isinstance(other, spaces.Dict)
        and first.keys() == other.keys()
    ):
        for name in first:
            if first[name] != other[name]:
                return _difference(first[name], other[name], f"{key}[{name!r}]")
    if (
        isinstance(first, spaces.Tuple)
        and isinstance(other, spaces.Tuple)
        and len(first) == len(other)
    ):
        for k in range(len(first)):
            if first[k] != other[k]:
                return _difference(first[k], other[k], f"{key}[{k}]")
    return key, first, other


def _some(env_ids: Iterable[int]) -> str:
    ids = [int(env_id) for env_id in env_ids]
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
