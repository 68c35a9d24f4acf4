"""Does everything run here? Backends, `auto`, a team and agents that take turns, on small worlds.

The same episodes are played in each way, and must come out as in the first, bit for bit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import ShoalError
from shoal.testing.doctor import Sign, start_methods
from shoal.testing.worlds import CountingWorld

NUM_ENVS, NUM_WORKERS, NUM_STEPS, SEED = 5, 2, 60, 7
_START_TIMEOUT_S = 60.0


class Trace(NamedTuple):
    """What came back from some episodes."""

    digest: str
    note: str = ""
    """Where they ran, where that was not said."""


Trial = tuple[str, Callable[[], Trace]]
"""What it is called, and what is done."""


def backends() -> tuple[tuple[str, str | None], ...]:
    """Every backend, and every way to start its workers; the first is what others must equal."""
    methods = start_methods()
    processes = tuple(("process", method) for method in methods)
    hybrid = (("hybrid", None),) if methods else ()
    auto = (("auto", None),) if methods else ()  # without processes nothing can be measured
    return (("serial", None), ("thread", None), *processes, *hybrid, *auto)


def try_backends(world: Callable[[], Any] | None = None) -> Iterator[Sign]:
    """Run the same episodes on every backend, and on the one that `auto` chooses."""
    return _compared(
        (
            backend if method is None else f"{backend} ({method})",
            partial(trace_of, world or _world, backend, method),
        )
        for backend, method in backends()
    )


def try_agents() -> Iterator[Sign]:
    """The same of a team, and of agents that take turns, where PettingZoo is installed."""
    if importlib.util.find_spec("pettingzoo") is None:
        yield Sign("team, turns", "not tried: PettingZoo is not installed")
        return
    places = ("serial", "process") if start_methods() else ("serial", "thread")
    for kind, trace in (("team", trace_of_team), ("turns", trace_of_turns)):
        yield from _compared((f"{kind} ({place})", partial(trace, place)) for place in places)


def _compared(trials: Iterable[Trial]) -> Iterator[Sign]:
    """One sign for each; all must come out as the first that runs."""
    expected: str | None = None
    for name, trial in trials:
        begun = time.perf_counter()
        try:
            trace = trial()
        except (ShoalError, OSError, MemoryError) as problem:
            first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            yield Sign(name, f"{type(problem).__name__}", first, is_fatal=True)
            continue
        expected = expected or trace.digest
        if trace.digest != expected:
            yield Sign(
                name,
                "other results than serial",
                "The same seed must give the same trajectories. Please report this, with all that "
                "stands above.",
                is_fatal=True,
            )
            continue
        yield Sign(name, f"ok ({trace.note}{time.perf_counter() - begun:.2f} s)")


def _world() -> CountingWorld:
    return CountingWorld(obs="dict", infos="mixed")


def trace_of(world: Callable[[], Any], backend: str, start_method: str | None) -> Trace:
    """A digest of all that comes back from some episodes."""
    from shoal.vector.make import Faults, make

    digest = hashlib.sha256()
    with make(
        world,
        NUM_ENVS,
        backend=backend,
        num_workers=NUM_WORKERS,
        start_method=start_method,
        autoreset="same_step",
        on_failure="raise",
        faults=Faults(start_timeout_s=_START_TIMEOUT_S),
    ) as envs:
        envs.action_space.seed(SEED)
        _digest(digest, envs.reset(seed=SEED))
        for _ in range(NUM_STEPS):
            _digest(digest, envs.step(envs.action_space.sample()))
        chosen = f"{envs.stats()['backend']}, " if backend == "auto" else ""
    return Trace(digest.hexdigest(), chosen)


def trace_of_team(backend: str) -> Trace:
    """The same of agents who act at once: a grid world's."""
    from shoal.envs import GridWorldEnvMultiAgent
    from shoal.vector.agents.make import make_team
    from shoal.vector.agents.team import TeamVectorEnv

    digest, random = hashlib.sha256(), np.random.default_rng(SEED)
    with make_team(
        GridWorldEnvMultiAgent, NUM_ENVS, backend=backend, num_workers=NUM_WORKERS
    ) as envs:
        assert isinstance(envs, TeamVectorEnv)  # everybody is known beforehand there
        _digest(digest, envs.reset(seed=SEED))
        for _ in range(NUM_STEPS):
            chosen = random.integers(5, size=(len(envs.possible_agents), NUM_ENVS))
            actions = dict(zip(envs.possible_agents, chosen, strict=True))
            _digest(digest, envs.step(actions))
    return Trace(digest.hexdigest())


def trace_of_turns(backend: str) -> Trace:
    """The same of agents who take turns there."""
    from shoal.envs import GridWorldEnvMultiAgent
    from shoal.vector.agents.make import make_turns

    digest, random = hashlib.sha256(), np.random.default_rng(SEED)
    with make_turns(
        GridWorldEnvMultiAgent, NUM_ENVS, backend=backend, num_workers=NUM_WORKERS
    ) as envs:
        _digest(digest, envs.reset(seed=SEED))
        for _ in range(NUM_STEPS):
            _digest(digest, envs.step(random.integers(5, size=NUM_ENVS).tolist()))
    return Trace(digest.hexdigest())


def _digest(digest: Any, value: Any) -> None:
    """Every key, type, shape and byte, in order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(str(key).encode())
            _digest(digest, value[key])
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple | list | np.ndarray):
        for one in value:
            _digest(digest, one)
    else:
        digest.update(f"{type(value).__name__}{value!r}".encode())
