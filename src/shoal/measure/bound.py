"""The bound: processes that step the same environments and never say a word to each other.

All are started and have built and reset their environments before the barrier opens, then each
steps for the same while. Nothing that has to communicate can be faster on as many cores.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection
from typing import Any

import gymnasium
from gymnasium.vector.utils import batch_space, iterate

from shoal.measure.session import Course, NotPossible
from shoal.measure.several import plain
from shoal.measure.timing import sample_actions

_START_TIMEOUT_S = 120.0


def measure_bound(course: Course, num_processes: int, duration_s: float) -> float:
    """Transitions per second of all processes together.

    Resets take their time and count as nothing, as in the timed loop. Call it in a process that
    may be forked: one without threads.
    """
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    num_processes = min(num_processes, course.num_envs)
    barrier, processes = context.Barrier(num_processes), {}
    try:
        for k in range(num_processes):
            inbox, answers = context.Pipe(duplex=False)
            process = context.Process(
                target=_step_alone,
                args=(course.factories[k::num_processes], duration_s, barrier, answers),
                daemon=True,
            )
            process.start()
            answers.close()  # nobody but the process has this end: it is closed when that dies
            processes[inbox] = process
        rates = list(_answers(processes, course.env))
    except BaseException:
        for process in processes.values():
            process.kill()
        raise
    finally:
        for process in processes.values():
            process.join()
    for problem in (one for one in rates if isinstance(one, str)):
        raise NotPossible(problem)
    return sum(map(float, rates))


def _answers(processes: Mapping[Any, Any], env: str) -> Iterator[float | str]:
    """What each says, whoever is first; one that ends without a word ends it for all."""
    still = dict(processes)
    while still:
        ready: list[Any] = connection.wait(list(still))
        for inbox in ready:
            process = still.pop(inbox)
            try:
                yield inbox.recv()
            except EOFError:
                process.join()
                raise NotPossible(
                    f"a process of the bound died stepping {env} (pid {process.pid}): expected its "
                    f"steps per second, got exit code {process.exitcode}. A SIGKILL that nobody "
                    "sent is usually the system running out of memory: take fewer environments."
                ) from None


def _step_alone(factories: Sequence[Any], duration_s: float, barrier: Any, answers: Any) -> None:
    answer: float | str
    try:
        envs = [plain(factory()) for factory in factories]
        for number, env in enumerate(envs):
            env.reset(seed=number)
        rows = _rows_of_actions(envs[0].action_space, len(envs))
        _sweep(envs, rows, duration_s / 5)
        barrier.wait(_START_TIMEOUT_S)
        answer = _sweep(envs, rows, duration_s)
    except Exception as problem:
        barrier.abort()
        answer = f"{type(problem).__name__}: {problem}"
    answers.send(answer)


def _rows_of_actions(space: gymnasium.Space[Any], num_envs: int) -> list[list[Any]]:
    batched = batch_space(space, num_envs)
    return [list(iterate(batched, batch)) for batch in sample_actions(space, num_envs)]


def _sweep(envs: Sequence[Any], rows: list[list[Any]], duration_s: float) -> float:
    """Transitions per second of a plain loop over environments."""
    clock, steps = time.perf_counter, 0
    begun = now = clock()
    for actions in itertools.cycle(rows):
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        steps += len(envs)
        now = clock()
        if now - begun >= duration_s:
            break
    return steps / (now - begun)
