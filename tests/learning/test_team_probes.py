"""Do several agents learn? Probe worlds of two, each of which shows what may be broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pettingzoo")

from learning import teams
from learning.test_probes import QUICK
from shoal.training.config import GoalConfig, PPORun
from shoal.training.loop import Progress, learn
from shoal.training.ppo import Training, threads

TOGETHER = replace(QUICK, output=replace(QUICK.output, eval_against="itself"))
BOTH = 2.0
"""What two agents get who always do right."""


def policies(name: str, config: PPORun = TOGETHER) -> PPORun:
    return replace(config, envs=replace(config.envs, policies=(name,)))


def trained(world: type, num_steps: int, config: PPORun) -> tuple[Training, dict[str, Any]]:
    """Policies after some thousand steps, and what was measured of the last update."""
    config, seen = replace(config, goal=GoalConfig(total_steps=num_steps)), dict[str, Any]()
    with Training(config, world) as training, threads(1, training.agent):
        note = [lambda run: seen.update(run.metrics)]
        learn(training.source, training.learner, Progress([]), note)
    return training, seen


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (teams.Told, "shared"),
        (teams.Told, "separate"),
        (teams.Opposed, "separate"),
        (teams.Passed, "shared"),
        (teams.Passed, "separate"),
    ],
)
def test_both_agents_find_what_is_right(world: type, name: str) -> None:
    training, _ = trained(world, 5000, policies(name))
    assert training.evaluate(20).mean == pytest.approx(BOTH)


def test_one_policy_cannot_answer_in_two_ways() -> None:
    training, _ = trained(teams.Opposed, 3000, policies("shared"))
    assert training.evaluate(40).mean < 0.5 * BOTH, "the agents can be told apart"


def test_who_sees_all_knows_what_the_other_brings() -> None:
    def unexplained(is_central: bool) -> float:
        ppo = replace(TOGETHER.ppo, central_critic=is_central)
        _, seen = trained(teams.Elsewhere, 5000, replace(TOGETHER, ppo=ppo))
        return 1.0 - float(seen["train/explained_variance"])

    assert unexplained(True) < 0.1 < 0.5 < unexplained(False)
