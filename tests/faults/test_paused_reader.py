"""Whoever reads what workers print may pause (`| less`, Ctrl-S): nothing else waits for him."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from faults.program import Program

WITHIN_S = 3.0
KINDS = {
    "pipe": "os.pipe()",
    "terminal": "os.openpty()",
    "socket": "[end.detach() for end in socket.socketpair()]",
}

WORLD = """
import json, os, socket, sys, threading, time
import numpy as np
import shoal
from shoal.testing import CountingWorld

TALK, HANG = 1, 2


class World(CountingWorld):
    def step(self, action):
        if action == TALK:
            for number in range({lines!r}):
                print(number, "x" * 1000)
        if action == HANG:
            threading.Event().wait()
        return super().step(action)
"""

HANGING = (
    WORLD
    + """
reader, writer = {kind}
os.dup2(writer, 1)
envs = shoal.make(World, 2, backend="process", num_workers=2, step_timeout_s=0.5)
envs.reset(seed=0)
envs.step(np.array([0, TALK]))
old = envs._pool.workers[0].pid
begun = time.monotonic()
infos = envs.step(np.array([HANG, 0]))[4]
took_s = time.monotonic() - begun
begun = time.monotonic()
left = os.path.exists(f"/proc/{{old}}")
envs.close()
closed_s = time.monotonic() - begun
restarted, blocks = infos["restarted"].tolist(), os.get_blocking(1)
sys.stderr.write("\\n" + json.dumps([restarted, left, blocks, took_s, closed_s]))
"""
)


@pytest.mark.parametrize("portable", ["0", "1"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hanging_worker_is_killed_and_replaced_all_the_same(
    kind: str, portable: str, tmp_path: Path
) -> None:
    source = HANGING.format(kind=KINDS[kind], lines=500)
    with Program(source, tmp_path, SHOAL_PORTABLE=portable) as program:
        program.output()
        assert program.left_after(WITHIN_S) == []
    restarted, left, blocks, took_s, closed_s = json.loads(program.errors.splitlines()[-1])
    assert restarted == [True, False]
    assert not left
    assert blocks, "the caller's own descriptor is as it was"
    assert took_s < WITHIN_S
    assert closed_s < WITHIN_S


def test_what_nobody_reads_is_dropped_and_counted(tmp_path: Path) -> None:
    lines = 5000
    source = (
        WORLD.format(lines=lines)
        + """
envs = shoal.make(World, 1, backend="process", num_workers=1)
envs.reset(seed=0)
envs.step(np.array([TALK]))
sys.stderr.write("stepped")
sys.stdin.read()
"""
    )
    with Program(source, tmp_path) as program:
        assert program.process.stdout is not None
        while "stepped" not in program.errors:
            assert program.process.poll() is None
        shown = 0
        for line in program.process.stdout:
            if dropped := re.match(r"\[shoal\] (\d+) lines of workers were dropped", line):
                break
            assert line == f"[worker 0] {shown} {'x' * 1000}\n"
            shown += 1
    assert dropped is not None
    assert shown > 1000
    assert shown + int(dropped[1]) == lines
