"""F14: after a time-out or a restart, no answer from before it is ever taken for a new one."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import ISOLATED, Setting
from faults.conftest import Record, Scale
from faults.recovering import Shadows, kill_later, worlds
from shoal.testing import CountingWorld

TIMEOUT_S = 0.05


class Dozer(CountingWorld):
    """Sleeps once, for as long as a file says that it finds beside its name."""

    def __init__(self, tag: int, *, folder: str = "", **kwargs: Any) -> None:
        super().__init__(tag, **kwargs)
        self._note = os.path.join(folder, f"nap-{tag}")

    def step(self, action: Any) -> Any:
        try:
            with open(self._note) as note:
                nap_s = float(note.read())
            os.unlink(self._note)
        except FileNotFoundError:
            nap_s = 0.0
        time.sleep(nap_s)
        return super().step(action)


@pytest.mark.parametrize("setting", [ISOLATED[1], ISOLATED[-1]], ids=str, indirect=True)
@pytest.mark.parametrize("way", ["step", "send"])
def test_no_stale_answer_after_a_time_out_or_a_death(
    setting: Setting, way: str, mode: str, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    """Steps that end about when their time is up, and kills about when a step ends."""
    if setting.portable and mode != "next_step":
        pytest.skip("where it starts interpreters, one mode is enough")
    tries = scale(short=2 if setting.portable else 7, full=20 if setting.portable else 420)
    draw = random.Random(tries)
    factories = worlds(4, Dozer, folder=str(tmp_path))
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "autoreset": mode}
    with shoal.make(factories, step_timeout_s=TIMEOUT_S, **given) as envs:
        shadows = Shadows(envs, mode, seed=tries)
        for k in range(tries):
            timer: threading.Timer | None = None
            if k % 2:
                nap_s = draw.uniform(0.6, 1.2) * TIMEOUT_S
                (tmp_path / f"nap-{draw.randrange(4)}").write_text(str(nap_s))
            else:
                timer = kill_later(envs, draw.randrange(2), draw.uniform(0.0001, 0.002))
            for _ in range(6):
                _step(shadows, way, draw)
            if timer is not None:
                timer.join()
        stats = envs.stats()
    assert stats["num_incidents"] >= tries // 3
    assert {one["outcome"] for one in stats["incidents"]} == {"restarted"}
    figure("F14", f"stale answers, {way}, {setting}", f"none in {tries} tries")


def _step(shadows: Shadows, way: str, draw: random.Random) -> None:
    if way == "step":
        shadows.step()
        return
    sent = sorted(draw.sample(range(4), draw.randint(1, 4)))
    shadows.send(sent)
    while sent:
        received = shadows.recv(1)
        shadows.reset_ended(received)
        sent = [i for i in sent if i not in received]


def test_a_large_answer_cut_off_by_a_death_is_not_continued(scale: Scale) -> None:
    class Talker(CountingWorld):
        def talk(self, text: str) -> str:
            return text * 400_000

    with shoal.make(worlds(2, Talker, history=False), backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        for k in range(scale(short=6, full=200)):
            timer = kill_later(envs, 1, 0.0005 * (1 + k % 8))
            try:
                first = envs.call("talk", f"first {k}")
                assert first == (f"first {k}" * 400_000,) * 2
            except shoal.WorkerDied:
                pass
            assert envs.call("talk", f"second {k}") == (f"second {k}" * 400_000,) * 2
            if timer is not None:
                timer.join()
            for _ in range(Talker.max_steps + 3):  # an episode that ends by itself: a clean sheet
                envs.step(np.zeros(2, dtype=np.int64))
