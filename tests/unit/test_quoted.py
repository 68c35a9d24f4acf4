"""What the documentation shows of a terminal is what the code says, but for its numbers."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import shoal
from shoal.cli import advise as advise_command
from shoal.engine.bottleneck import Shares, bottleneck
from shoal.engine.probe import Probe
from shoal.measure import BOUND, Figures, Job, Row
from shoal.measure.verdict import conclude
from shoal.testing import doctor, trials
from shoal.vector.choice import COSTS, Situation, choose

DOCS = Path(__file__).parents[2] / "docs"
CHEAP = Probe(9.9e-6, 9.9e-6, 0.3, 5e-6, 1e-3, 16, 4.0, None, 0.0, False)


def quoted(page: str, begins: str) -> str:
    """The one console block of a page that begins so."""
    found = re.findall(r"^```console\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    (block,) = [one.rstrip("\n") for one in found if one.startswith(begins)]
    return block


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(?:[.,]\d+)*", "#", text)


def test_every_console_block_is_looked_at_here() -> None:
    """The first words of all of them; capsules are shown with a traceback that is cut."""
    found = [
        (page.name, block.split("\n")[0].split()[0])
        for page in sorted(DOCS.rglob("*.md"))
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.M | re.S)
    ]
    assert found == [
        ("capsules.md", "env"),
        ("how-many-envs.md", "shoal:"),
        ("how-many-envs.md", "$"),
        ("troubleshooting.md", "shoal"),
        ("troubleshooting.md", "transport:"),
        ("troubleshooting.md", "ConfigError:"),
    ]


def test_fork_after_cuda_is_refused_as_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a PyTorch that says CUDA is initialised."""
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(shoal.ConfigError) as problem:
        shoal.make("CartPole-v1", 2, backend="process", start_method="fork")
    assert f"ConfigError: {problem.value}" == quoted("troubleshooting.md", "ConfigError: start")


def test_a_bottleneck_is_told_as_quoted() -> None:
    said = bottleneck(Shares(waiting=0.86, busy=(0.26, 0.28), rounds=100))
    assert said == quoted("troubleshooting.md", "transport")


def test_a_choice_is_logged_as_quoted() -> None:
    choice = choose(CHEAP, Situation(8, 2), COSTS)
    said = f"shoal: backend={choice.backend!r} with # workers for # environments: {choice.reason}"
    assert without_numbers(said) == without_numbers(quoted("how-many-envs.md", "shoal: "))


def test_the_doctor_looks_at_what_is_quoted() -> None:
    block = quoted("troubleshooting.md", "shoal ")
    sections = [part.splitlines() for part in block.split("\n\n")]
    names = {title.split(" (")[0]: [line[2:23].strip() for line in of] for title, *of in sections}
    assert names["machine"] == [sign.name for sign in doctor.examine()]
    assert set(names["packages"]) <= set(doctor.PACKAGES)
    ways = [name if how is None else f"{name} ({how})" for name, how in trials.backends()]
    assert names["backends"] == ways
    assert names["several agents"] == [sign.name for sign in trials.try_agents()]
    assert block.endswith("ALL TESTS PASSED!")


def test_advice_is_written_as_quoted() -> None:
    """The same rows, put into words now."""
    env = "benchmarks.workloads:uneven_waiting"
    block = quoted("how-many-envs.md", "$ shoal advise")
    parts = block.split("\n\n")
    header, *lines = parts[1].splitlines()
    assert tuple(re.split(r"  +", header.strip())) == advise_command._HEADERS
    rows = [row_of(env, line) for line in lines]
    found = Probe(1.1e-3, 2.4e-5, 0.9, 3e-5, 1e-3, 16, 4.0, 0.96, 1.0, False)
    advice = conclude(env, 2, found, rows)
    told = advise_command._as_text(advice).split("\n\n")
    for now, then in zip(told[3:], parts[3:], strict=True):
        assert without_numbers(now).split() == without_numbers(then).split()


def row_of(env: str, line: str) -> Row:
    """A row of the table, as it was measured."""
    name, workers, num_envs, rate, _, cores, held_mb, start = re.split(r"  +", line.strip())
    contestant = "shoal first-ready" if "batch_size" in name else f"shoal {name}"
    job = Job(BOUND if name == BOUND else contestant, env, int(num_envs), int(workers))
    steps_per_s = float(rate.replace(",", ""))
    if name == BOUND:
        return Row(job, {0: steps_per_s}, Figures(steps_per_s=steps_per_s))
    value, unit = start.split()
    figures = Figures(
        steps_per_s=steps_per_s,
        cpu_s_per_million=float(cores) / steps_per_s * 1e6,
        total_mb=float(held_mb),
        start_s=float(value) * (1e-3 if unit == "ms" else 1.0),
    )
    return Row(job, {0: steps_per_s}, figures)
