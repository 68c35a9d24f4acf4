"""AgileRL's own training loops on the drop-in, against the same loops on the original."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from agilerl.algorithms import IPPO, MADDPG, MATD3
from agilerl.components.replay_buffer import ReplayBuffer
from agilerl.training.train_multi_agent_off_policy import train_multi_agent_off_policy
from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv as Theirs
from agilerl.wrappers.agent import AsyncAgentsWrapper
from chase import Chase, factories
from mpe2 import simple_speaker_listener_v4, simple_spread_v3

from shoal.vector.agilerl import AsyncPettingZooVecEnv as Ours

NUM_ENVS, STEPS = 4, 2048
NETWORKS = {"encoder_config": {"hidden_size": [16]}, "head_config": {"hidden_size": [16]}}
SPREAD = partial(simple_spread_v3.parallel_env, max_cycles=20)
SPEAKER = partial(simple_speaker_listener_v4.parallel_env, max_cycles=20, continuous_actions=True)
with_nan = partial(Ours, absent="nan")


def train(kind: Any, algo: str, world: Any, steps: int = STEPS, *, wrap: bool = False) -> Any:
    """Fitness and weights after training, everything that is random decided beforehand."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    envs = kind(factories(world, NUM_ENVS))
    seen, done = ([of(name) for name in envs.agents] for of in _spaces(envs))
    told: dict[str, Any] = {"max_steps": steps, "evo_steps": 256, "verbose": False}
    made: Any
    if algo == "IPPO":
        made = IPPO(
            seen, done, agent_ids=envs.agents, net_config=NETWORKS, learn_step=128, batch_size=32
        )
        agents = [AsyncAgentsWrapper(made) if wrap else made]
        agents, fitness = train_multi_agent_on_policy(envs, "test", algo, agents, **told)
    else:
        noise = {"vect_noise_dim": NUM_ENVS, "learn_step": 32, "batch_size": 32}
        kinds = {"MADDPG": MADDPG, "MATD3": MATD3}
        made = kinds[algo](seen, done, agent_ids=envs.agents, net_config=NETWORKS, **noise)
        agents = [AsyncAgentsWrapper(made) if wrap else made]
        memory = ReplayBuffer(max_size=2000)
        agents, fitness = train_multi_agent_off_policy(envs, "test", algo, agents, memory, **told)
    assert envs.closed  # by the loop
    agent = getattr(agents[0], "agent", agents[0])
    weights = [
        one.detach().numpy().ravel() for m in agent.actors.values() for one in m.parameters()
    ]
    return fitness, np.concatenate(weights)


def _spaces(envs: Any) -> tuple[Any, Any]:
    return envs.single_observation_space, envs.single_action_space


def assert_trained_alike(kinds: tuple[Any, Any], algo: str, world: Any, **how: Any) -> None:
    (wanted, expected), (got, weights) = (train(kind, algo, world, **how) for kind in kinds)
    assert got == wanted
    assert np.array_equal(weights, expected)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("algo", ["IPPO", "MADDPG", "MATD3"])
@pytest.mark.parametrize("world", [SPREAD, SPEAKER], ids=["spread", "speaker_listener"])
def test_agilerls_loops_learn_the_same_weights_on_both(algo: str, world: Any) -> None:
    assert_trained_alike((Theirs, Ours), algo, world)


@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "wrapped"])
def test_where_agents_die_maddpg_learns_the_same_with_nan(wrap: bool) -> None:
    assert_trained_alike((Theirs, with_nan), "MADDPG", Chase, steps=1024, wrap=wrap)


@pytest.mark.parametrize("kind", ["floats", "numbers", "bytes"])
@pytest.mark.parametrize("algo", ["IPPO", "MADDPG", "MATD3"])
def test_where_agents_die_all_of_them_learn_with_zeros(algo: str, kind: str) -> None:
    (fitness,), weights = train(Ours, algo, partial(Chase, kind), 1024)
    assert np.isfinite(fitness)
    assert np.isfinite(weights).all()


def test_actions_that_environments_define_are_taken() -> None:
    with Ours([partial(Chase, defined=2)] * NUM_ENVS) as envs:
        seen, done = ([of(name) for name in envs.agents] for of in _spaces(envs))
        agent = IPPO(seen, done, agent_ids=envs.agents, net_config=NETWORKS)
        observations, infos = envs.reset(seed=0)
        for _ in range(8):
            actions, *_ = agent.get_action(obs=observations, infos=infos)
            assert (actions["agent_0"] == 2).all()
            assert not (actions["agent_1"] == 2).all()  # who is given None chooses itself
            observations, *_, infos = envs.step(actions)
            if "final_obs" in infos["agent_0"] or not infos["agent_0"]["alive"].all():
                break
