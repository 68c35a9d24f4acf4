"""What goes wrong in environments of several agents: hangs, exceptions, bad numbers, capsules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from players import NAMES, Meadow, Round

import shoal
from shoal.cli import main


def actions(value: int, count: int) -> dict[str, Any]:
    return {name: np.full(count, value) for name in NAMES}


class Troubled(Meadow):
    """In its second step it does what it is told by an attribute."""

    trouble = ""

    def step(self, actions: dict[str, Any]) -> Any:
        told = super().step(actions)
        if self.time == 2 and self.trouble == "hang":
            time.sleep(600)
        if self.time == 2 and self.trouble == "raise":
            raise KeyError("bob is lost")
        if self.time == 2 and self.trouble == "nan":
            told[0]["ann"][1] = np.nan
        return told


class TroubledRound(Round):
    """The same, in the third turn."""

    trouble = ""

    def step(self, action: Any) -> None:
        super().step(action)
        if self.time == 3 and self.trouble == "hang":
            time.sleep(600)
        if self.time == 3 and self.trouble == "raise":
            raise KeyError("cyd is lost")

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        if self.time == 3 and self.trouble == "nan":
            seen[2] = np.nan
        return seen


def opened(kind: str, **settings: Any) -> Any:
    """Three environments, each in a worker of its own; the second one is in trouble."""
    settings = {"backend": "process", "num_workers": 3, "autoreset": "same_step"} | settings
    env = Troubled if kind == "team" else TroubledRound
    return getattr(shoal, f"make_{kind}")(env, 3, **settings)


def stepped_into(envs: Any, kind: str, trouble: str) -> dict[str, Any]:
    """The infos of the step that is in trouble."""
    envs.reset(seed=3)
    envs.set_attr("trouble", trouble, [1])
    for _ in range(8):
        told = envs.step(actions(1, 3) if kind == "team" else np.ones(3, np.int64))
        infos: dict[str, Any] = told[-1]
        if "restarted" in infos:
            return infos
    return {}


@pytest.mark.parametrize("kind", ["team", "turns"])
@pytest.mark.parametrize(
    ("trouble", "settings"),
    [("hang", {"step_timeout_s": 0.5}), ("raise", {"faults": shoal.Faults(on_error="restart")})],
)
def test_the_one_in_trouble_begins_anew_and_nobody_else(
    kind: str, trouble: str, settings: dict[str, Any]
) -> None:
    with opened(kind, **settings) as envs:
        infos = stepped_into(envs, kind, trouble)
        assert infos["restarted"].tolist() == [False, True, False]
        stats = envs.stats()
        assert stats["restarts"] == 1
        assert stats["timeouts"] == (trouble == "hang")


@pytest.mark.parametrize("kind", ["team", "turns"])
def test_a_number_that_is_none_is_found_in_what_agents_see(kind: str) -> None:
    settings = {"backend": "serial", "num_workers": 1}
    with opened(kind, **settings, faults=shoal.Faults(check_finite=True)) as envs:
        with pytest.raises(shoal.ContractError, match=r"env 1, in step .* is not finite"):
            stepped_into(envs, kind, "nan")
    with opened(kind, **settings) as envs:
        assert stepped_into(envs, kind, "nan") == {}


@pytest.mark.parametrize("kind", ["team", "turns"])
def test_as_many_are_received_as_a_batch_holds(kind: str) -> None:
    with opened(kind, batch_size=2) as envs:
        envs.reset(seed=3)
        envs.send(actions(1, 3) if kind == "team" else np.ones(3, np.int64))
        first = envs.recv()
        ids = (first if kind == "team" else envs).env_ids.tolist()
        assert len(ids) >= 2
        rest = {0, 1, 2} - set(ids)
        if rest:
            last = envs.recv()
            assert set((last if kind == "team" else envs).env_ids.tolist()) == rest


@pytest.mark.parametrize("kind", ["team", "turns"])
def test_an_exception_leaves_a_capsule_that_replays_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_CAPSULES", str(tmp_path))
    with opened(kind, backend="serial", num_workers=1) as envs:
        with pytest.raises(shoal.EnvRaised, match="env 1") as caught:
            stepped_into(envs, kind, "raise")
    assert caught.value.capsule is not None
    status = main(["replay", caught.value.capsule])
    said = capsys.readouterr()
    assert "is lost" in said.out + said.err
    assert status == 1  # it has failed again
