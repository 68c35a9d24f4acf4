"""PettingZoo's own tests, on environments that run elsewhere."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from players import Lingering, Meadow, Round

pytest.importorskip("pettingzoo")

from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from shoal.envs import GridWorldEnvMultiAgent
from shoal.vector import team_proxies, turn_proxies

EXAMPLES = "pettingzoo.test.example_envs."
GRID_WORLD = partial(GridWorldEnvMultiAgent, size=5, max_steps=12, agents=3, num_obstacles=3)
TEAMS = {
    "meadow": Meadow,
    "generated": EXAMPLES + "generated_agents_parallel_v0:parallel_env",
    "generated, agents of a class": EXAMPLES
    + "generated_agents_parallel_cust_agentid_v0:parallel_env",
    "rock paper scissors": "pettingzoo.classic.rps_v2:parallel_env",
    "knights": "pettingzoo.butterfly.knights_archers_zombies_v11:parallel_env",
    "spread": "mpe2.simple_spread_v3:parallel_env",
    "push": "mpe2.simple_push_v3:parallel_env",
    "adversary": "mpe2.simple_adversary_v3:parallel_env",
    "grid world": GRID_WORLD,
}
TURNS = {
    "round": Round,
    "a team in turns": Meadow,
    "a team in turns, of a wrapped environment": "mpe2.simple_spread_v3:parallel_env",
    "generated": EXAMPLES + "generated_agents_env_v0:env",
    "generated, masks in infos": EXAMPLES + "generated_agents_env_action_mask_info_v0:env",
    "generated, masks in observations": EXAMPLES + "generated_agents_env_action_mask_obs_v0:env",
    "rock paper scissors": "pettingzoo.classic.rps_v2:env",
    "connect four": "pettingzoo.classic.connect_four_v3:env",
    "spread": "mpe2.simple_spread_v3:env",
    "push": "mpe2.simple_push_v3:env",
    "adversary": "mpe2.simple_adversary_v3:env",
    "grid world": GRID_WORLD,
}
BACKENDS = ["serial", "process"]


def there(name: Any) -> Any:
    """The environment, or a reason to skip: some need packages of their own."""
    if isinstance(name, str):
        module, _, _ = name.partition(":")
        try:
            importlib.import_module(module)
        except ImportError as problem:
            pytest.skip(str(problem))
    return name


@pytest.fixture(autouse=True)
def _opened() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PettingZoo's tests warn of what its own examples do
        yield


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TEAMS)
def test_a_team_elsewhere_is_a_parallel_env(name: str, backend: str) -> None:
    (proxy,) = team_proxies(there(TEAMS[name]), 1, backend=backend)
    with proxy.envs:
        parallel_api_test(proxy, num_cycles=30)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TURNS)
def test_agents_elsewhere_are_an_aec_env(name: str, backend: str) -> None:
    (proxy,) = turn_proxies(there(TURNS[name]), 1, backend=backend)
    with proxy.envs:
        api_test(proxy, num_cycles=30)


@pytest.mark.parametrize("name", TEAMS)
def test_seeds_of_a_team_elsewhere_are_kept(name: str) -> None:
    with ExitStack() as opened:
        parallel_seed_test(_one_of(team_proxies, TEAMS[name], opened), num_cycles=10)


@pytest.mark.parametrize("name", TURNS)
def test_seeds_of_agents_elsewhere_are_kept(name: str) -> None:
    with ExitStack() as opened:
        seed_test(_one_of(turn_proxies, TURNS[name], opened), num_cycles=10)


def _one_of(proxies: Any, env: Any, opened: ExitStack) -> Any:
    """Makes proxies that are closed in the end."""

    def make() -> Any:
        (proxy,) = proxies(there(env), 1, backend="process")
        opened.enter_context(proxy.envs)
        return proxy

    return make


def test_every_environment_has_its_own_proxy() -> None:
    proxies = team_proxies(partial(Meadow, False), 3, backend="process", num_workers=2)
    with proxies[0].envs:
        for k, proxy in enumerate(proxies):
            proxy.reset(seed=k)
        plain = Meadow(False)
        plain.reset(seed=1)
        actions = dict.fromkeys(plain.agents, 1)
        assert proxies[1].step(actions)[1] == plain.step(actions)[1]
        assert proxies[0].agents == proxies[2].agents == ["ann", "bob", "cyd"]


def test_a_proxy_of_a_team_that_takes_nobody_off_its_list_has_no_agents_in_the_end() -> None:
    (proxy,) = team_proxies(Lingering, 1, backend="process")
    plain = Lingering()
    with proxy.envs:
        proxy.reset(seed=4)
        plain.reset(seed=4)
        steps = 0
        while proxy.agents:
            told = proxy.step(dict.fromkeys(proxy.agents, steps % 2))
            expected = plain.step(dict.fromkeys(plain.agents, steps % 2))
            assert told[1:4] == expected[1:4]
            steps += 1
            assert steps < 10
        assert not plain.still_there
        proxy.reset(seed=5)
        assert proxy.agents == ["ann", "bob", "cyd"]


def test_ids_and_environments_of_the_other_kind_are_taken() -> None:
    (team,) = team_proxies("classic/connect_four-v3", 1, backend="serial")
    (turns,) = turn_proxies("mpe2.simple_spread_v3:parallel_env", 1, backend="serial")
    with team.envs, turns.envs:
        team.reset(seed=0)
        assert team.agents == ["player_0", "player_1"]
        turns.reset(seed=0)
        assert turns.agent_selection == "agent_0"
