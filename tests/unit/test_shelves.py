"""Shelves: large results are the caller's own without the caller having copied them."""

from __future__ import annotations

import gc
import os
import signal
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import shoal
from shoal.engine import shelves
from shoal.engine.shelves import AT_HAND
from shoal.layout import Layout

NUM_ENVS = 4


class Frames(gymnasium.Env):
    """Shows how many steps were taken, in each pixel; ends after `length` of them."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(7)

    def __init__(self, length: int = 1000) -> None:
        self._length, self._frame = length, np.zeros((84, 84, 4), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._frame[:] = 0
        return self._frame, {}

    def step(self, action):
        self._steps += 1
        self._frame[:] = self._steps
        self._frame[0, 0, 0] = action
        return self._frame, float(action), self._steps == self._length, False, {}


class Pairs(Frames):
    """The same as a Dict."""

    observation_space = gymnasium.spaces.Dict(
        frame=Frames.observation_space, count=gymnasium.spaces.Box(0, 1e9, (1,), np.float32)
    )

    def reset(self, **kwargs):
        frame, info = super().reset(**kwargs)
        return {"frame": frame, "count": np.zeros(1, np.float32)}, info

    def step(self, action):
        frame, *others = super().step(action)
        return {"frame": frame, "count": np.full(1, self._steps, np.float32)}, *others


class Large(Frames):
    """So large that each is laid by itself; rewards of some are no floats."""

    observation_space = gymnasium.spaces.Box(0, 255, (160, 210, 4), np.uint8)

    def __init__(self, number: int, length: int = 0) -> None:
        super().__init__(length or 2 + number % 5)
        self._number, self._frame = number, np.zeros((160, 210, 4), np.uint8)

    def step(self, action):
        frame, reward, *others = super().step(action)
        frame[1] = self._number
        return frame, (float, int, np.float32)[self._number % 3](reward), *others


class Told(Large):
    """The same with numbers beside it, one of which has no dimension."""

    observation_space = gymnasium.spaces.Dict(
        count=gymnasium.spaces.Discrete(1000),
        frame=Large.observation_space,
        time=gymnasium.spaces.Box(0, 1e9, (), np.float32),
    )

    def reset(self, **kwargs):
        frame, info = super().reset(**kwargs)
        return self._told(frame), info

    def step(self, action):
        frame, *others = super().step(action)
        return self._told(frame), *others

    def _told(self, frame):
        time = np.array(self._steps, np.float32)
        return {"count": np.int64(self._steps), "frame": frame, "time": time}


SINGLE = [("serial", 1), ("thread", 2), ("process", 1), ("hybrid", 2)]


def make(env=Frames, **kwargs):
    settings = {"backend": "process", "num_workers": 2, **kwargs}
    envs = shoal.make(env, NUM_ENVS, **settings)
    envs.reset(seed=0)
    envs.step(np.zeros(NUM_ENVS, np.int64))  # the one that is never quick
    return envs


def steps(envs, count):
    for k in range(count):
        yield envs.step(np.full(NUM_ENVS, k % 7))[0]


def is_laid(observation) -> bool:
    """Whether it lies in rows of the pool, and was not copied.

    A worker that is late makes a step one that is not quick, on a busy machine: then it is copied.
    """
    return not observation.flags.owndata


@pytest.mark.parametrize("backend", ["process", "hybrid", "thread"])
def test_large_observations_are_handed_out_where_workers_laid_them(backend):
    with make(backend=backend) as envs:
        num_laid = 0
        for k, seen in enumerate(steps(envs, 20)):
            num_laid += is_laid(seen)
            assert seen.flags.writeable
            assert (seen[:, 1:] == k + 2).all()
            assert (seen[:, 0, 0, 0] == k % 7).all()
        assert num_laid > AT_HAND


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize(("backend", "num_workers"), SINGLE)
def test_single_observations_that_are_large_are_laid_one_by_one(backend, num_workers, mode):
    worlds = [partial(Large, number) for number in range(16)]
    expected = gymnasium.vector.SyncVectorEnv(worlds, autoreset_mode=AutoresetMode[mode.upper()])
    envs = shoal.make(worlds, backend=backend, num_workers=num_workers, autoreset=mode)
    kept, num_laid = [], 0
    with envs:
        expected.reset(seed=0), envs.reset(seed=0)
        for k in range(20):
            actions = np.full(16, k % 7)
            ours, theirs = envs.step(actions), expected.step(actions)
            for one, other in zip(ours[:4], theirs[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            kept = [*kept[-1:], (ours[0], theirs[0])]
            np.testing.assert_array_equal(*kept[0])
            num_laid += is_laid(ours[0])
        assert num_laid
    expected.close()


@pytest.mark.parametrize(("backend", "num_workers"), SINGLE)
def test_what_is_told_beside_large_observations_is_laid_with_them(backend, num_workers):
    worlds = [partial(Told, number) for number in range(16)]
    expected = gymnasium.vector.SyncVectorEnv(worlds)
    with shoal.make(worlds, backend=backend, num_workers=num_workers) as envs:
        expected.reset(seed=0), envs.reset(seed=0)
        for k in range(12):
            ours, theirs = (one.step(np.full(16, k % 7))[0] for one in (envs, expected))
            for name in Told.observation_space:
                np.testing.assert_array_equal(ours[name], theirs[name])
    expected.close()


@pytest.mark.parametrize("num_before", [7, 8])
def test_after_a_fork_single_observations_are_laid_on_the_shelf_that_there_is_then(num_before):
    """A fork takes away what is held; the caller, who steps a share, must not go on there."""
    worlds = [partial(Large, number, 1000) for number in range(16)]
    plain = gymnasium.vector.SyncVectorEnv(worlds)
    with shoal.make(worlds, backend="hybrid", num_workers=2) as envs:
        plain.reset(seed=0), envs.reset(seed=0)
        for k in range(num_before):
            seen, expected = (one.step(np.full(16, k % 7))[0] for one in (envs, plain))
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        for k in range(8):
            ours, theirs = (one.step(np.full(16, k % 7))[0] for one in (envs, plain))
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(seen, expected)
    plain.close()


@pytest.mark.parametrize("env", [Frames, Pairs])
def test_what_is_kept_never_changes(env):
    with make(env) as envs:
        kept = list(steps(envs, 12))
        frames = [one if env is Frames else one["frame"] for one in kept]
        assert 1 <= sum(map(is_laid, frames)) <= AT_HAND
        for k, frame in enumerate(frames):
            assert (frame[:, 1:] == k + 2).all()
            if env is Pairs:
                assert (kept[k]["count"] == k + 2).all()


def test_a_part_of_it_keeps_the_whole_from_being_used_again():
    with make() as envs:
        rows = [seen[1] for seen in steps(envs, 12)]
        assert [int(row[5, 5, 0]) for row in rows] == list(range(2, 14))


def test_shelves_are_used_again_when_nobody_holds_them():
    with make() as envs:
        kept = list(steps(envs, 20))
        assert not is_laid(kept[-1])
        del kept
        gc.collect()
        assert sum(map(is_laid, steps(envs, 20))) > AT_HAND


def test_what_the_caller_does_to_its_results_is_its_own_affair():
    """An environment that is brought back is compared with what it showed, not with that."""
    with make(on_failure="replay") as envs, make(backend="serial", num_workers=1) as plain:
        for k in range(12):
            actions = np.full(NUM_ENVS, k % 7)
            seen, expected = envs.step(actions)[0], plain.step(actions)[0]
            np.testing.assert_array_equal(seen, expected)
            seen[:] = 255
            if k == 6:
                os.kill(envs._pool.workers[0].pid, signal.SIGKILL)
        assert envs.stats()["replays"] == 2


def test_small_observations_and_single_workers_have_no_shelves():
    with shoal.make("CartPole-v1", 8, backend="process", num_workers=2) as envs:
        assert envs._pool.books.shelves is None
    with make(num_workers=1) as envs:
        assert envs._pool.books.shelves is None
    with make(copy=False) as envs:
        assert envs._pool.books.shelves is None


def test_a_fork_that_holds_results_keeps_them():
    """What is free here may be held there, so what was held at the fork is not used again."""
    with make() as envs:
        seen = next(one for one in steps(envs, 20) if is_laid(one))
        reading, writing = os.pipe()
        go_reading, go_writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(go_reading, 1)
            os.write(writing, bytes([int(seen[0, 5, 5, 0])]))
            os._exit(0)
        before = int(seen[0, 5, 5, 0])
        del seen
        assert any(map(is_laid, steps(envs, 20)))
        os.write(go_writing, b"x")
        assert os.read(reading, 1) == bytes([before])
        os.waitpid(pid, 0)
        for fd in (reading, writing, go_reading, go_writing):
            os.close(fd)


def test_after_a_fork_both_sides_have_their_own():
    with make() as envs:
        seen = next(one for one in steps(envs, 20) if is_laid(one))
        was = int(seen[0, 5, 5, 0])
        theirs, ours = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            seen[:] = 200
            os.write(theirs[1], b"x")
            os.read(ours[0], 1)
            os._exit(0 if (seen == 200).all() else 1)
        os.read(theirs[0], 1)
        assert (seen[:, 1:] == was).all()
        seen[:] = 100
        os.write(ours[1], b"x")
        assert os.waitpid(pid, 0)[1] == 0
        assert (seen == 100).all()
        for fd in (*theirs, *ours):
            os.close(fd)


def test_forks_cost_no_shelves():
    with make() as envs:
        for _ in range(AT_HAND + 1):
            seen = next(one for one in steps(envs, 20) if is_laid(one))
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            assert seen.any()
        assert sum(map(is_laid, steps(envs, 20))) > AT_HAND


KEPT = None


class Shows(Frames):
    """Shows what its process has in `KEPT`."""

    def step(self, action):
        _, *others = super().step(action)
        return KEPT[0].copy(), *others


def test_what_forked_workers_inherit_is_theirs():
    """As a fork's memory is: what happens to it later here is not seen there."""
    global KEPT
    with make() as envs:
        KEPT = next(one for one in steps(envs, 20) if is_laid(one))
        was = int(KEPT[0, 5, 5, 0])
        with shoal.make(
            Shows, 2, backend="process", num_workers=2, start_method="fork", copy=False
        ) as heirs:
            heirs.reset(seed=0)
            KEPT[:] = 99
            KEPT = None
            for _ in steps(envs, 8):
                assert (heirs.step(np.zeros(2, np.int64))[0][:, 1:] == was).all()


def test_a_fork_after_the_pool_was_closed_leaves_what_is_kept():
    with make() as envs:
        seen = next(one for one in steps(envs, 20) if is_laid(one))
        was, pool = seen.copy(), envs._pool
    if (pid := os.fork()) == 0:
        seen[:] = 200
        os._exit(0)
    os.waitpid(pid, 0)
    assert pool.closed
    np.testing.assert_array_equal(seen, was)


def test_pages_that_a_fork_has_are_not_written_to_any_more():
    with make(copy=False) as envs:
        envs.make_pages(3)
        envs.step(np.zeros(NUM_ENVS, np.int64))
        (pages,) = envs.pages()
        for page in range(3):
            pages[page] = envs.step_onto(page, np.full(NUM_ENVS, page))[0]
        was = pages.copy()
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            pages[:] = 0
            with pytest.raises(shoal.ContractError, match="fork"):
                envs.pages()
            os.write(writing, b"x")
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(reading, 1) == b"x"
        os.close(reading)
        os.close(writing)
        envs.step_onto(0, np.zeros(NUM_ENVS, np.int64))
        np.testing.assert_array_equal(pages, was)
        del pages
        assert envs.pages() is None
        envs.make_pages(3)  # others
        assert envs.pages() is not None


def test_what_is_kept_costs_no_descriptor_and_no_more_memory_than_it_has():
    """Of a pool that is gone, or has other rows."""
    make().close()  # whatever only the first one takes
    before, kept = len(os.listdir("/proc/self/fd")), []
    for _ in range(3):
        with make() as envs:
            kept += [next(one for one in steps(envs, 20) if is_laid(one))]
            own_bytes = envs._pool.books.rows.shape.own_bytes()
            at = envs._pool.books.rows.rings[0].ctypes.data
            envs.resize(num_envs=6)
            envs.reset(seed=0)  # or environments would still have to change their worker
            kept += [next(one for one in steps_of(envs, 6, 20) if is_laid(one))]
        del envs
        gc.collect()
        assert not is_mapped(at + own_bytes // 2)
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(is_mapped(one.ctypes.data) for one in kept)
    addresses = [one.ctypes.data for one in kept]
    del kept
    gc.collect()
    assert not any(map(is_mapped, addresses))


def steps_of(envs, num_envs, count):
    for _ in range(count):
        yield envs.step(np.zeros(num_envs, np.int64))[0]


def is_mapped(address: int) -> bool:
    """Whether shared memory of ours is mapped there."""
    with open("/proc/self/maps") as file:
        spans = [line.split("-", 1) for line in file if "/memfd:shoal" in line]
    return any(int(first, 16) <= address < int(rest.split()[0], 16) for first, rest in spans)


def test_where_memory_is_short_batches_are_copied(monkeypatch):
    with make() as envs:
        shape = envs._pool.books.rows.shape
    room_mb = (shape.own_bytes() + shape.block_bytes()) / 2**20
    monkeypatch.setattr("shoal.engine.memory.free_memory_mb", lambda: room_mb)
    with make() as envs:
        assert envs._pool.books.shelves is None
        assert not any(map(is_laid, steps(envs, 5)))
        with pytest.raises(shoal.ConfigError, match="MiB are free"):
            envs.make_pages(8)
        envs.resize(num_envs=3)
        assert envs.step(np.zeros(3, np.int64))[0].shape[0] == 3


def test_shelves_that_nobody_needs_take_no_memory():
    with make() as envs:
        pool = envs._pool
        used = os.fstat(pool.books.rows.memory.fd).st_blocks * 512
        assert pool.books.rows.shape.own_bytes() <= used < pool.books.rows.shape.nbytes()


def test_shelves_go_with_a_pool_that_is_resized():
    with make() as envs:
        (before,) = steps(envs, 1)
        envs.resize(num_envs=6)
        seen = [envs.step(np.zeros(6, np.int64))[0] for _ in range(8)]
        assert all(one.shape[0] == 6 for one in seen)
        assert (before[:, 1:] == 2).all()


def test_pages_are_one_array_in_which_workers_write():
    with make(copy=False) as envs:
        assert envs.pages() is None
        envs.make_pages(5)
        envs.step(np.zeros(NUM_ENVS, np.int64))
        (pages,) = envs.pages()
        assert pages.shape == (5, NUM_ENVS, 84, 84, 4)
        num_laid = 0
        for page in range(5):
            seen = envs.step_onto(page, np.full(NUM_ENVS, page))[0]
            num_laid += np.shares_memory(seen, pages[page])
            pages[page] = seen
        assert num_laid >= 1
        np.testing.assert_array_equal(pages[:, 2, 5, 5, 0], np.arange(3, 8))
        np.testing.assert_array_equal(pages[:, 2, 0, 0, 0], np.arange(5))


def test_pages_are_not_given_twice():
    with make(copy=False) as envs:
        envs.make_pages(3)
        pages = envs.pages()
        row = pages[0][1]
        assert envs.pages() is None
        del pages
        assert envs.pages() is None
        del row
        assert envs.pages() is not None


def test_steps_without_a_page_leave_pages_alone():
    with make(copy=False) as envs:
        envs.make_pages(2)
        envs.step(np.zeros(NUM_ENVS, np.int64))
        (pages,) = envs.pages()
        envs.step_onto(0, np.zeros(NUM_ENVS, np.int64))
        was = pages.copy()
        for _ in range(4):
            envs.step(np.zeros(NUM_ENVS, np.int64))
        np.testing.assert_array_equal(pages, was)


def test_a_worker_that_dies_leaves_no_half_written_results():
    with make(on_failure="restart") as envs:
        kept = []
        for k in range(9):
            if k == 4:
                os.kill(envs._pool.workers[1].pid, signal.SIGKILL)
            kept.append(envs.step(np.full(NUM_ENVS, 3))[0])
        for k, seen in enumerate(kept):
            assert (seen[:2, 1:] == k + 2).all()


def test_size_decides():
    large, few, none = (
        Layout(gymnasium.spaces.Box(-1, 1, shape, np.float32)) for shape in ((84, 84), (4,), (0,))
    )
    assert shelves.is_worth_it(large, 4)
    assert not shelves.is_worth_it(large, 2)
    assert not shelves.is_worth_it(few, 1024)
    assert not shelves.is_worth_it(none, 10**9)
    assert not shelves.is_worth_it_singly(large, 1024)
    frames = Layout(Large.observation_space)
    assert shelves.is_worth_it_singly(frames, 8)
    assert not shelves.is_worth_it_singly(frames, 7)


@pytest.mark.parametrize("page", [-1, 3])
def test_there_is_no_such_page(page):
    with make(copy=False) as envs:
        envs.make_pages(3)
        with pytest.raises(shoal.ContractError, match=f"no page {page}; there are 3"):
            envs.step_onto(page, np.zeros(NUM_ENVS, np.int64))
        envs.step_onto(2, np.zeros(NUM_ENVS, np.int64))


def test_pages_that_there_is_no_room_for_leave_everything_as_it_was():
    with make(copy=False) as envs:
        with pytest.raises(shoal.ConfigError, match="MiB are free"):
            envs.make_pages(10**8)
        assert envs.pages() is None
        envs.resize(num_envs=5)
        envs.step(np.zeros(5, np.int64))


def test_pages_in_the_middle_of_an_episode_change_nothing():
    with make(copy=False) as envs:
        rows = envs._pool.books.rows
        envs.step(np.zeros(NUM_ENVS, np.int64))
        envs.make_pages(AT_HAND)
        assert envs._pool.books.rows is not rows
        paged = envs._pool.books.rows
        envs.make_pages(AT_HAND)
        assert envs._pool.books.rows is paged
        seen = envs.step(np.zeros(NUM_ENVS, np.int64))[0]
        assert (seen[:, 1:] == 3).all()


def test_pages_of_a_pool_that_copies_are_pages():
    with make() as envs:
        envs.make_pages(AT_HAND)
        assert envs.pages() is not None


def test_small_observations_keep_their_rows():
    with shoal.make("CartPole-v1", 8, backend="process", num_workers=2) as envs:
        rows = envs._pool.books.rows
        envs.make_pages(16)
        assert envs._pool.books.rows is rows
        assert envs.pages() is None
