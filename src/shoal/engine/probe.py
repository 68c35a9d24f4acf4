"""The probe: one environment, built and stepped for a moment in a child process, and measured.

    caller                          worker process
      Build(measured(factory)) ───►   factory(), reset, some steps, each timed
      wait, at most so long
      Probe ◄───────────────────────   as the metadata of what was built

What the environment prints and logs there is not passed on, and whatever goes wrong is a sentence
and not an error: the real construction will say it better.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from shoal.engine.backends import Terms
from shoal.engine.commands import Assignment, Build, Factory
from shoal.engine.crew import Crew
from shoal.engine.machine import has_gpu_open, is_portable, resident_kb
from shoal.engine.masks import mask_in, sampled
from shoal.errors import ShoalError

DEADLINE_S = 10.0
"""How long to wait for a probe: its imports, its construction and its steps."""
STEPPING_S = 0.06
"""How long to step, if that is enough steps."""
MOST_STEPPING_S = 0.2
"""How long to step at most (a step that was begun is waited for)."""
ENOUGH_STEPS = 50
_MOST_STEPS = 5_000
_WARM_UP_S = 0.004
_LOCK_S, _LOCK_ROUNDS = 0.006, 4
"""How long, and how often, to watch whether others can run Python beside the environment."""
_WORTH_A_THREAD_S = 100e-6
"""Below this no thread gains anything, so nobody needs to know about the interpreter lock."""
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What was measured of one environment. Times are means per step, resets between included."""

    step_s: float
    """Wall time of a step."""
    cpu_s: float
    """Processor time of a step, that of its own child processes included."""
    spread: float
    """Standard deviation of the wall time of single steps, divided by their mean."""
    reset_s: float
    """Wall time of one reset."""
    build_s: float
    """Wall time of the construction."""
    observation_bytes: int
    memory_mb: float
    """What its process has grown by, from before the construction to after the steps."""
    lock_free: float | None
    """The share of a step in which other threads can run Python; None where nobody looked."""
    rests: float
    """How often a step gave its core away of its own accord."""
    uses_gpu: bool
    width: int = 1
    """How many environments it counts as (a vector environment)."""
    steps: int = 0
    """How many steps were measured."""
    render_modes: str = ""
    """How it can be rendered, as its metadata says."""

    @property
    def waits(self) -> bool:
        """Whether it mostly waits: for time to pass, for a socket, for another process.

        A busy machine also lets time pass, but takes the core away instead of being given it.
        """
        return self.cpu_s < 0.5 * self.step_s and self.rests > 0.5

    @property
    def work_s(self) -> float:
        """What a step costs: processor time, or where it waits, wall time."""
        return self.step_s if self.waits else self.cpu_s


@dataclass(frozen=True, slots=True)
class Unprobed:
    """Why there is no measurement, in words that can follow "since"."""

    why: str


_TYPES = {"uses_gpu": bool, "render_modes": str}
"""Of what is no number."""


def is_plausible(probe: Probe) -> bool:
    """Whether these can be measurements at all: finite, not negative, and of the right type."""
    for field in fields(probe):
        value = getattr(probe, field.name)
        if field.name in _TYPES:
            if type(value) is not _TYPES[field.name]:
                return False
        elif field.name == "lock_free" and value is None:
            continue
        elif type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            return False
    return probe.step_s > 0 and probe.width >= 1


# --- the caller's side -------------------------------------------------------------------------


def probe(factory: Factory, terms: Terms, deadline_s: float | None = None) -> Probe | Unprobed:
    """Measure one environment of this factory, in a process of its own.

    It is bounded: after `deadline_s` (default DEADLINE_S) the process is ended.
    """
    from shoal.engine.backends.process import ProcessBackend

    limit_s = min(DEADLINE_S if deadline_s is None else deadline_s, terms.start_timeout_s)
    deadline = time.monotonic() + limit_s
    late = Unprobed(f"the probe was not through after {limit_s:g} s")
    assignment = Assignment(0, 1, 1, [partial(measured, factory)])
    crew: Crew | None = None
    try:
        crew = Crew(ProcessBackend(replace(terms, start_timeout_s=limit_s, start_method=None)))
        (worker,) = crew.launch([Build(assignment)])
        if not worker.wait(max(0.0, deadline - time.monotonic())):
            crew.timeout_s = 0.0
            return late
        reply = worker.take()
        crew.timeout_s = _CLOSE_S
        if reply is None or reply.built is None:
            return Unprobed("the probe raised an exception")
        found: Probe = reply.built.metadata["probe"]
        return found if is_plausible(found) else Unprobed("the probe measured nothing of use")
    except ShoalError as problem:
        if time.monotonic() >= deadline:
            return late
        return Unprobed(f"the probe could not be run ({type(problem).__name__})")
    except Exception as problem:  # a factory may be as odd as it likes: the pool will tell
        return Unprobed(f"the probe could not be run ({type(problem).__name__})")
    finally:
        if crew is not None:
            crew.close()


@contextlib.contextmanager
def warm() -> Iterator[None]:
    """What worker processes are forked from stays, so that the pool does not start it again."""
    if is_portable():
        yield
        return
    from shoal.engine.zygote import Zygote

    holder = _Holder()
    Zygote.lease(holder)
    try:
        yield
    finally:
        Zygote.release(holder)


class _Holder:
    """Who has leased the zygote."""


# --- the child's side --------------------------------------------------------------------------


class Told(gymnasium.Env[Any, Any]):
    """Stands for the environment that was measured, and carries the result."""

    def __init__(self, env: Any, result: Probe) -> None:
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(1)
        self.metadata = {"probe": result}
        self.close = env.close  # type: ignore[method-assign]


def measured(factory: Factory) -> Told:
    """Build, measure, tell. Runs in a worker."""
    _be_quiet()
    before_kb, begun = resident_kb(), time.perf_counter()
    env = factory()
    build_s = time.perf_counter() - begun
    return Told(env, measure(env, build_s=build_s, before_kb=before_kb))


def _be_quiet() -> None:
    """Nobody asked for this environment: what it says, its copies in the pool will say again."""
    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)


def measure(env: Any, *, build_s: float = 0.0, before_kb: int | None = None) -> Probe:
    """Step an environment for a moment, in this process."""
    before_kb = resident_kb() if before_kb is None else before_kb
    width = env.num_envs if isinstance(env, VectorEnv) else 1
    step = _Stepping(env)
    begun = time.perf_counter()
    observation = step.reset(seed=0)
    first_reset_s = time.perf_counter() - begun
    _warm_up(step)
    chosen_s = step.choosing_s
    times, resets, wall_s, cpu_s, rests = _time_steps(step)
    chosen_s = step.choosing_s - chosen_s
    wall_s, cpu_s = wall_s - chosen_s, max(0.0, cpu_s - chosen_s)
    count = len(times)
    step_s = wall_s / count
    single = np.array(times)
    return Probe(
        step_s=step_s / width,
        cpu_s=cpu_s / count / width,
        spread=float(single.std() / single.mean()) if single.mean() > 0 else 0.0,
        reset_s=float(np.mean(resets)) if resets else first_reset_s,
        build_s=build_s,
        observation_bytes=_nbytes(observation) // width,
        memory_mb=max(0.0, (resident_kb() - before_kb) / 1024),
        lock_free=_lock_free(step) if step_s > _WORTH_A_THREAD_S else None,
        rests=rests / count,
        uses_gpu=has_gpu_open(),
        width=width,
        steps=count,
        render_modes=_render_modes(env),
    )


class _Stepping:
    """Steps an environment by possible actions; others may end an episode at once."""

    choosing_s = 0.0
    """How long that took; no part of a step."""

    def __init__(self, env: Any) -> None:
        self._env, self._is_single = env, not isinstance(env, VectorEnv)
        self._any = itertools.cycle([env.action_space.sample() for _ in range(32)])
        self._own: Callable[[], Any] | None = getattr(env, "sample_possible", None)
        self._told: tuple[Any, Any] = (None, None)

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode; what is observed."""
        self._told = self._env.reset(seed=seed)
        return self._told[0]

    def __call__(self) -> tuple[float, float | None]:
        """One step, and the reset that may be due then: how long each took."""
        asked = time.perf_counter()
        action = self._choose()
        begun = time.perf_counter()
        self.choosing_s += begun - asked
        observation, _, terminated, truncated, info = self._env.step(action)
        taken = time.perf_counter()
        self._told = observation, info
        if not (self._is_single and (terminated or truncated)):
            return taken - begun, None
        self.reset()
        return taken - begun, time.perf_counter() - taken

    def _choose(self) -> Any:
        if self._own is not None:
            return self._own()
        mask = mask_in(*self._told) if self._is_single else None
        return next(self._any) if mask is None else sampled(self._env.action_space, mask)


Step = Callable[[], tuple[float, float | None]]


def _warm_up(step: Step) -> None:
    """The first steps import, compile and allocate."""
    deadline = time.perf_counter() + _WARM_UP_S
    for _ in range(10):
        step()
        if time.perf_counter() > deadline:
            return


def _time_steps(step: Step) -> tuple[list[float], list[float], float, float, int]:
    """Times of steps and of resets, wall and processor time of all, and how often it rested."""
    times: list[float] = []
    resets: list[float] = []
    rested, cpu_s, begun = _rests(), _cpu_s(), time.perf_counter()
    while True:
        taken_s, reset_s = step()
        times.append(taken_s)
        if reset_s is not None:
            resets.append(reset_s)
        wall_s = time.perf_counter() - begun
        has_enough = wall_s >= STEPPING_S and len(times) >= ENOUGH_STEPS
        if has_enough or wall_s >= MOST_STEPPING_S or len(times) >= _MOST_STEPS:
            return times, resets, wall_s, _cpu_s() - cpu_s, _rests() - rested


def _rests() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _cpu_s() -> float:
    return time.process_time() + _offspring_cpu_s(os.getpid())


def _offspring_cpu_s(pid: int) -> float:
    """Processor time of the children of a process, and of theirs (Linux), to a hundredth."""
    total = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/stat") as file:
                words = file.read().rpartition(")")[2].split()
            total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            total += _offspring_cpu_s(int(child))
    return total


def _lock_free(step: Step) -> float:
    """The share of a step in which another thread can run Python.

    A thread runs Python, as much as it can, beside the environment and, in turn, beside a sleeper
    (on a busy machine that is not all the time either). Two threads that both want the interpreter
    get half of it each, so half means none at all.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    is_over = threading.Event()
    thread = threading.Thread(target=_run_python, args=(is_over,), daemon=True)
    thread.start()
    alone = beside = 0.0
    try:
        for _ in range(_LOCK_ROUNDS):
            alone += _share_of(thread, partial(time.sleep, _LOCK_S))
            beside += _share_of(thread, partial(_steps_for, step, 2 * _LOCK_S))
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval_s)
    return min(1.0, max(0.0, 2 * beside / alone - 1)) if alone else 0.0


def _share_of(thread: threading.Thread, meanwhile: Callable[[], None]) -> float:
    """The share of the time that a thread has run."""
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    before_s, begun = time.clock_gettime(clock), time.perf_counter()
    meanwhile()
    return (time.clock_gettime(clock) - before_s) / (time.perf_counter() - begun)


def _run_python(is_over: threading.Event) -> None:
    while not is_over.is_set():
        for _ in range(1000):
            pass


def _steps_for(step: Step, duration_s: float) -> None:
    deadline = time.perf_counter() + duration_s
    while time.perf_counter() < deadline:
        step()


def _nbytes(observation: Any) -> int:
    if isinstance(observation, dict):
        return sum(map(_nbytes, observation.values()))
    if isinstance(observation, Sequence) and not isinstance(observation, str | bytes):
        return sum(map(_nbytes, observation))
    return int(getattr(observation, "nbytes", sys.getsizeof(observation)))


def _render_modes(env: Any) -> str:
    """Parted by commas; metadata that is odd is the affair of whoever checks it."""
    metadata = getattr(env, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    return ", ".join(map(str, modes)) if isinstance(modes, list | tuple) else ""
