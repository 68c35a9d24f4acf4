"""By which names environments of several agents are found, and whom another function is for."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import pytest

pytest.importorskip("pettingzoo")

import shoal
from shoal.errors import ConfigError

MAKERS = {"make_team": shoal.make_team, "make_turns": shoal.make_turns}


@pytest.mark.parametrize("name", ["classic/connect_four_v3", "classic/connect_four-v3"])
def test_training_takes_an_id_in_either_spelling(name: str) -> None:
    pytest.importorskip("torch")
    from shoal.training.envs import find_env

    env = find_env(name, {}).factories[0]()
    assert env.takes_turns
    assert env.cast.names == ("player_0", "player_1")
    env.close()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("classic/connect_four_v3", "shoal.make_turns('classic/connect_four_v3')"),
        ("classic/rps_v2", "shoal.make_team('classic/rps_v2')"),
        ("mpe2/simple_spread_v3", "shoal.make_team('mpe2.simple_spread_v3:parallel_env')"),
        ("mpe2.simple_push_v3", "shoal.make_team('mpe2.simple_push_v3:parallel_env')"),
    ],
)
def test_make_names_the_function_that_takes_such_an_id(name: str, advice: str) -> None:
    if name.startswith("mpe2"):
        pytest.importorskip("mpe2")
    with pytest.raises(ConfigError) as caught:
        shoal.make(name, 1, backend="serial")
    assert str(caught.value).endswith(f"{advice}.")
    assert "Have you installed" not in str(caught.value)


def test_a_module_is_named_with_what_is_in_it() -> None:
    pytest.importorskip("mpe2")
    with pytest.raises(ConfigError, match=r"'mpe2\.simple_spread_v3:parallel_env'"):
        shoal.make_team("mpe2/simple_spread_v3", 1, backend="serial")


def test_nothing_is_imported_that_only_might_be_meant(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boxes.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="no environment 'boxes'"):
        shoal.make("boxes", 1, backend="serial")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_environment_of_one_agent_is_refused(maker: str, backend: str) -> None:
    make = partial(gymnasium.make, "CartPole-v1")
    with pytest.raises(ConfigError, match=r"of one agent \(Gymnasium\)\. Use shoal\.make\(\.\.\."):
        MAKERS[maker](make, 2, backend=backend)
    with pytest.raises(ConfigError, match=r"Use shoal\.make\('CartPole-v1'\)"):
        MAKERS[maker]("CartPole-v1", 2, backend=backend)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_environment_is_refused(maker: str) -> None:
    with pytest.raises(ConfigError, match=r"3 \(int\) is no environment"):
        MAKERS[maker](lambda: 3, 1, backend="serial")
