"""Ctrl-C at any line that the caller runs: the next call gets its own answer, and nothing is torn.

A trace function raises KeyboardInterrupt at the n-th line of the engine, for one n after the other.
What each environment says of itself is the truth that everything else is compared with; a worker
killed afterwards shows whether the journal still tells that truth, too.
"""

from __future__ import annotations

import contextlib
import dis
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import SETTINGS, Make, Setting
from shoal.engine.worker import execute
from shoal.testing.forms import CountingRecord
from shoal.testing.worlds import CountingWorld, decode, reward_of

NUM_ENVS = 4
MOST_TIMES = 10
HANDLED = {dis.opmap["PUSH_EXC_INFO"], dis.opmap["POP_EXCEPT"]}
ROOT = Path(shoal.__file__).parent
PLACES = tuple(str(ROOT / name) for name in ("engine", "vector"))
FEW = [one for one in SETTINGS if one.num_workers == 2 or one.backend == "serial"]


class CtrlC:
    """Raises KeyboardInterrupt at the n-th line of the engine (None: at none), and counts them.

    What a worker does is left out: a caller who is the worker leaves steps half taken. A line that
    comes again and again, as in a loop that waits, counts a few times only. Lines at whose begin an
    exception stops being handled do not count: no signal comes there, and what a tracer raises
    there leaves that exception behind, as the context of all that this thread raises later.
    """

    def __init__(
        self,
        at: int | None = None,
        places: tuple[str, ...] = PLACES,
        most_times: int = MOST_TIMES,
    ) -> None:
        self.at, self.lines, self.places, self.most_times = at, 0, places, most_times
        self.place = ""
        self._times: Counter[tuple[str, int]] = Counter()
        self._is_worker = False

    def __enter__(self) -> CtrlC:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if self._is_worker or not frame.f_code.co_filename.startswith(self.places):
            return None
        if frame.f_code is execute.__code__:
            self._is_worker = True
            return self._leave
        return self._line

    def _leave(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "return":  # an exception ends in one, too
            self._is_worker = False
        return self._leave

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and frame.f_code.co_code[frame.f_lasti] not in HANDLED:
            place = frame.f_code.co_filename, frame.f_lineno
            self._times[place] += 1
            if self._times[place] > self.most_times:
                return self._line
            self.lines += 1
            if self.lines == self.at:
                self.place = ":".join(map(str, place))
                raise KeyboardInterrupt
        return self._line


class Watched:
    """Environments whose every step is compared with what they say of themselves."""

    def __init__(self, envs: shoal.VectorEnv) -> None:
        self.envs = envs
        self._rng = np.random.default_rng(0)

    def records(self) -> list[CountingRecord]:
        return list(self.envs.call("record"))

    def actions(self) -> np.ndarray:
        return self._rng.integers(0, 5, self.envs.num_envs)

    def step(self) -> None:
        """One step of all, checked."""
        before, lengths, actions = self.records(), self.envs.get_attr("_length"), self.actions()
        never = np.zeros(self.envs.num_envs, dtype=np.bool_)
        observations, rewards, terminations, truncations, infos = self.envs.step(actions)
        after = self.records()
        for i, action in enumerate(actions.tolist()):
            was, now = before[i], after[i]
            if truncations[i] and infos.get("restarted", never)[i]:
                assert rewards[i] == 0.0
                continue
            if (terminations[i] or truncations[i]) and now.seed == -1:  # it has moved since
                now = decode(observations[i])
            assert decode(observations[i]) == now
            if was.step >= lengths[i]:  # it was at its end, and this step has reset it
                assert (now.tag, now.step, now.heard, rewards[i]) == (was.tag, 0, 0, 0.0)
            else:
                heard = zlib.crc32(np.array([action], np.float64).tobytes(), was.heard)
                assert (now.tag, now.step, now.heard) == (was.tag, was.step + 1, heard)
                expected = reward_of(
                    self.envs.single_action_space, action, seed=now.seed, step=now.step
                )
                assert rewards[i] == expected

    def kill_one(self) -> None:
        worker = self.envs._pool.workers[0]
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGKILL)


def lock_step(watched: Watched) -> None:
    watched.envs.step(watched.actions())


def quick_steps(watched: Watched) -> None:
    """The first one is a step like any other; after it nothing but steps is to be done."""
    for _ in range(4):
        watched.envs.step(watched.actions())


def talking_steps(watched: Watched) -> None:
    """The same, where workers have more to say than that they are done."""
    quick_steps(watched)


def send_and_recv(watched: Watched) -> None:
    envs = watched.envs
    envs.send(watched.actions()[:3], env_ids=[0, 2, 3])
    envs.recv(min_envs=1)
    while envs._pool.post.num_sent:
        envs.recv(min_envs=1)


def in_parts(watched: Watched) -> None:
    """Batches that are smaller than what is sent: workers have a step under way and one ahead."""
    envs = watched.envs
    envs.send(watched.actions())
    for _ in range(3):
        batch = envs.recv(min_envs=2)
        envs.send(watched.actions()[batch.env_ids], batch.env_ids)
    while envs._pool.post.num_sent:
        envs.recv(min_envs=1)


def talking_in_parts(watched: Watched) -> None:
    """The same, where workers do not go on by themselves, for they have something to say."""
    in_parts(watched)


def masked_reset(watched: Watched) -> None:
    mask = np.arange(watched.envs.num_envs) % 2 == 0
    watched.envs.reset(seed=3, options={"reset_mask": mask})


def attribute(watched: Watched) -> None:
    watched.envs.set_attr("bonus", 0.0)


def other_size(watched: Watched) -> None:
    watched.envs.resize(NUM_ENVS + 2)
    watched.envs.resize(NUM_ENVS)


def branch(watched: Watched) -> None:
    watched.envs.branch(0, [1, 3])


def _swallow() -> None:
    for _ in range(2):
        try:
            raise ValueError
        except ValueError:
            pass
        with contextlib.suppress(ValueError):
            raise ValueError


def test_ctrl_c_leaves_no_handled_exception_behind() -> None:
    with CtrlC(places=(__file__,)) as counter:
        _swallow()
    assert counter.lines
    for at in range(1, counter.lines + 1):
        with contextlib.suppress(KeyboardInterrupt), CtrlC(at, (__file__,)):
            _swallow()
        assert sys.exc_info() == (None, None, None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket's end
@pytest.mark.parametrize("setting", FEW, indirect=True, ids=str)
@pytest.mark.parametrize(
    "act",
    [
        lock_step,
        quick_steps,
        talking_steps,
        send_and_recv,
        in_parts,
        talking_in_parts,
        masked_reset,
        attribute,
        other_size,
        branch,
    ],
)
def test_ctrl_c_at_any_line(
    act: Callable[[Watched], None], make: Make, setting: Setting, scale: Any, figure: Any
) -> None:
    if act is other_size and setting.backend == "serial":
        pytest.skip("it is interrupted in its own constructors then")
    policy = {"on_failure": "replay"} if setting.backend == "process" else {}
    one_another = act is branch  # who goes on as another must be like it
    is_talking = act in (talking_steps, talking_in_parts)
    kwargs: dict[str, Any] = {"infos": "mixed"} if is_talking else {}
    envs = make(
        [
            partial(CountingWorld, 0 if one_another else tag, history=False, **kwargs)
            for tag in range(NUM_ENVS + 2)
        ],
        **policy,
    )
    envs.resize(NUM_ENVS)
    envs.reset(seed=0)
    watched = Watched(envs)
    with CtrlC() as counter:
        act(watched)
    num_points = scale(short=25, full=400)
    if setting.backend == "serial":  # these are quick and always the same: all of them
        num_points = min(counter.lines, scale(short=400, full=100_000))
    points = np.linspace(1, counter.lines, num_points).astype(int)
    for at in np.unique(points).tolist():
        if act is branch:  # its episode must be on record, which an interrupted one is not
            envs.reset(seed=at)
            watched.step()
        try:
            with CtrlC(at):
                act(watched)
        except KeyboardInterrupt:
            pass
        while envs._pool.post.num_sent:
            envs.recv(min_envs=1)
        if act is other_size:
            envs.resize(NUM_ENVS)
        for _ in range(3):
            watched.step()
        if at % 8 == 0:
            watched.kill_one()
            watched.step()
    figure("F7", f"Ctrl-C at any line of {act.__name__}, {setting}", f"{len(points)} lines, sound")
