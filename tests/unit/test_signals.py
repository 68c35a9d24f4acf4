"""Do semaphores count, wake the other process, and leave no name behind?"""

from __future__ import annotations

import gc
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.engine.signals import SEMAPHORE_BYTES, Semaphore, Spin

PATIENCE_S = 60.0
"""How long a wait that must succeed may take on a crowded machine."""
BLOCKS: list[memoryview] = []


def pair(kind: str) -> tuple[Semaphore, Semaphore]:
    """Two semaphores, in shared memory or (as elsewhere than on Linux) by name."""
    if kind == "named":
        one, other = Semaphore.create(None), Semaphore.create(None)
        return one, other
    block = memoryview(mmap.mmap(-1, 2 * SEMAPHORE_BYTES))
    BLOCKS.append(block)  # whether a semaphore keeps its memory is one test's question, not all's
    return (
        Semaphore.create(block[:SEMAPHORE_BYTES]),
        Semaphore.create(block[SEMAPHORE_BYTES:]),
    )


@pytest.fixture(params=["in memory", "named"])
def sems(request: pytest.FixtureRequest) -> tuple[Semaphore, Semaphore]:
    one, other = pair(request.param)
    one.unlink()
    other.unlink()
    return one, other


def names() -> set[str]:
    return {file.name for file in Path("/dev/shm").glob("sem.shoal-*")}


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_new_one_is_at_zero(sems: tuple[Semaphore, Semaphore]) -> None:
    assert not sems[0].acquire(False)
    assert not sems[0].wait(Spin(0.0), 0.0)


@pytest.mark.parametrize("spin", [Spin(0.0), Spin(1e-4), Spin(1e-4, yield_s=0.0)])
def test_it_counts_every_release_once(sems: tuple[Semaphore, Semaphore], spin: Spin) -> None:
    sem, other = sems
    for _ in range(3):
        sem.release()
    assert [sem.wait(spin, 0.0) for _ in range(4)] == [True, True, True, False]
    assert not other.acquire(False)


@pytest.mark.parametrize(("spin_s", "park_s"), [(0.0, 0.0), (1e-4, 0.0), (0.0, 1e-3), (1e-4, 1e-3)])
def test_a_wait_for_nothing_ends(
    sems: tuple[Semaphore, Semaphore], spin_s: float, park_s: float
) -> None:
    assert sems[0].wait(Spin(spin_s), park_s) is False
    sems[0].release()
    assert sems[0].wait(Spin(spin_s), park_s) is True


@pytest.mark.parametrize(
    ("here", "there"),
    [((0.0, PATIENCE_S), (0.0, PATIENCE_S)), ((PATIENCE_S, 0.0), (0.0, PATIENCE_S))],
    ids=["both park", "one spins"],
)
def test_two_processes_take_turns(
    sems: tuple[Semaphore, Semaphore],
    here: tuple[float, float],
    there: tuple[float, float],
) -> None:
    """And what was written before a release is seen after the acquire, a thousand times."""
    go, done = sems
    my_spin, their_spin = Spin(here[0]), Spin(there[0])
    shared = memoryview(mmap.mmap(-1, 8)).cast("q")
    rounds = 1000

    def child() -> None:
        for k in range(rounds):
            assert go.wait(their_spin, there[1])
            assert shared[0] == 2 * k
            shared[0] += 1
            done.release()

    pid = fork(child)
    for k in range(rounds):
        shared[0] = 2 * k
        go.release()
        assert done.wait(my_spin, here[1])
        assert shared[0] == 2 * k + 1
    assert status_of(pid) == 0


def test_it_keeps_the_memory_that_it_lies_in() -> None:
    def child() -> None:
        sem = Semaphore.create(memoryview(mmap.mmap(-1, 1 << 20)))
        gc.collect()
        sem.release()  # into memory that is no longer there, this would be the end
        assert sem.wait(Spin(0.0), 0.0)

    assert status_of(fork(child)) == 0


def test_a_child_finds_it_by_its_place() -> None:
    block = memoryview(mmap.mmap(-1, SEMAPHORE_BYTES))
    sem = Semaphore.create(block)
    sem.release()

    def child() -> None:
        mine = Semaphore.open(block)
        assert mine.wait(Spin(0.0), 0.0)
        mine.release()
        mine.release()

    assert status_of(fork(child)) == 0
    assert [sem.acquire(False) for _ in range(3)] == [True, True, False]


def test_a_child_finds_it_by_its_name_and_keeps_it_without() -> None:
    sem, done = pair("named")
    assert sem.name is not None
    assert done.name is not None
    name, done_name = sem.name, done.name

    def child() -> None:
        theirs, mine = Semaphore.open(name), Semaphore.open(done_name)
        mine.release()  # both are open: the names may go
        assert theirs.wait(Spin(0.0), PATIENCE_S)
        mine.release()

    pid = fork(child)
    assert done.wait(Spin(0.0), PATIENCE_S)
    sem.unlink()
    done.unlink()
    sem.release()
    assert done.wait(Spin(0.0), PATIENCE_S)
    assert status_of(pid) == 0


def test_one_in_memory_never_has_a_name() -> None:
    before = names()
    kept = pair("in memory")
    assert names() == before
    assert [sem.name for sem in kept] == [None, None]
    kept[0].unlink()


def test_a_name_is_gone_after_unlink_and_twice_is_safe() -> None:
    before = names()
    sem = Semaphore.create(None)
    assert len(names() - before) == 1
    sem.unlink()
    sem.unlink()
    assert names() == before
    sem.release()
    assert sem.wait(Spin(0.0), 0.0)


def test_names_differ() -> None:
    one, other = pair("named")
    one.unlink()
    other.unlink()
    one.release()
    assert not other.acquire(False)


def test_only_who_usually_waits_for_long_spins_little(sems: tuple[Semaphore, Semaphore]) -> None:
    spin = Spin(1e-3)
    for _ in range(3):
        assert not sems[0].wait(spin, 2e-3)
    assert spin.now_s == 1e-3
    assert spin.until(lambda: True, time.perf_counter())  # a short one: the others were accidents
    for _ in range(3):
        assert not sems[0].wait(spin, 2e-3)
    assert spin.now_s == 1e-3
    assert not sems[0].wait(spin, 2e-3)
    assert spin.now_s < 1e-4
    spin.learn(5e-4)  # and one that would have been short enough brings it back
    assert spin.now_s == 1e-3
    sems[0].release()
    assert sems[0].wait(spin, 1.0)
    assert spin.now_s == 1e-3
