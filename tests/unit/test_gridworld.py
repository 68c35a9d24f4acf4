"""Does the grid world keep its rules, and PettingZoo's?"""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal

pytest.importorskip("pettingzoo")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of modules that it loads itself
    from pettingzoo.test import api_test, render_test, seed_test

from shoal.envs import GridWorldConfig, GridWorldEnvMultiAgent
from shoal.envs.gridworld.world import World, scatter

ROOT = Path(__file__).parents[2]

RIGHT, UP, LEFT, DOWN, STAY = range(5)

WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alone": {"agents": 1, "size": 3},
    "crowd": {"agents": 5, "size": 6, "num_obstacles": 12, "fov": 3},
    "told": {"show_target_coords": True, "intrinsic": True, "lambda_fov": -0.3},
    "short": {"max_steps": 3, "agents": 3},
    "nothing": {"no_target": True, "show_target_coords": True, "max_steps": 20},
    "still": {"target_config": {"moves": False, "box": 1}, "size": 4},
    "uneven": {"agents": [{"fov": 3}, {"fov": 7, "name": "scout_1"}, {}]},
}

# Its advice about Dict observations, which these are on purpose.
ADVICE = [
    "ignore:Observation is not a NumPy array",
    "ignore:Observation space for each agent probably should be",
    "ignore:Agents have different observation space sizes",
]


def advised(test: Any) -> Any:
    for text in ADVICE:
        test = pytest.mark.filterwarnings(text)(test)
    return test


@pytest.fixture(params=WORLDS, ids=str)
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WORLDS[request.param]


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def placed(
    *cells: tuple[int, int],
    target: tuple[int, int] | None = None,
    obstacles: Any = (),
    **kwargs: Any,
) -> GridWorldEnvMultiAgent:
    """A world with hunters, target and obstacles on these cells."""
    kwargs = {"target_config": {"moves": False}, "agents": len(cells)} | kwargs
    env = GridWorldEnvMultiAgent(no_target=target is None, **kwargs)
    env.reset(seed=0)
    positions = dict(zip(env.possible_agents, cells, strict=True))
    env.world = World(env.config.size, obstacles, positions, target)
    return env


def play(env: Any, seed: int, max_turns: int = 400) -> list[Any]:
    """A whole episode by chance, as everything that `last` says, and who acted."""
    chance = np.random.default_rng(seed)
    env.reset(seed=seed)
    trace = []
    for agent in env.agent_iter(max_turns):
        observation, reward, terminated, truncated, info = env.last()
        trace.append((agent, _plain(observation), reward, terminated, truncated, info))
        env.step(None if terminated or truncated else int(chance.integers(5)))
    return trace


def _plain(observation: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in observation.items()}


# --- PettingZoo's own tests --------------------------------------------------


@advised
def test_it_passes_pettingzoos_api_test(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    api_test(GridWorldEnvMultiAgent(**settings), num_cycles=60)
    assert "Passed API test" in capsys.readouterr().out


def test_it_passes_pettingzoos_seed_test(settings: dict[str, Any]) -> None:
    seed_test(lambda: GridWorldEnvMultiAgent(**settings), num_cycles=60)


@pytest.mark.usefixtures("no_display")
def test_it_passes_pettingzoos_render_test() -> None:
    pytest.importorskip("pygame")

    class Quick(GridWorldEnvMultiAgent):
        metadata = GridWorldEnvMultiAgent.metadata | {"render_fps": 1000}

    render_test(Quick)


# --- chance ------------------------------------------------------------------


def test_all_chance_comes_from_one_generator_that_a_seed_makes_anew(
    settings: dict[str, Any],
) -> None:
    env, other = GridWorldEnvMultiAgent(**settings), GridWorldEnvMultiAgent(**settings)
    before = (random.getstate(), np.random.get_state()[1].tolist())
    first = play(env, 3)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert play(other, 4) != first
    assert play(other, 3) == first


def test_without_a_seed_chance_goes_on_where_it_was() -> None:
    env, other = GridWorldEnvMultiAgent(size=9), GridWorldEnvMultiAgent(size=9)
    places = []
    for one in (env, other):
        one.reset(seed=5)
        one.reset()
        places.append((one.world.positions, one.world.target))
        one.reset()
        places.append((one.world.positions, one.world.target))
    assert places[:2] == places[2:]
    assert places[0] != places[1]


def test_a_generator_that_is_put_back_repeats_the_episode() -> None:
    env = GridWorldEnvMultiAgent(size=7, num_obstacles=8)
    env.reset(seed=1)
    state = env.np_random.bit_generator.state
    worlds = []
    for _ in range(2):
        env.np_random = np.random.default_rng()
        env.np_random.bit_generator.state = state
        env.reset()
        for _ in range(20):
            env.step(STAY)
        worlds.append((env.world.positions, env.world.target, env.world.obstacles))
    assert worlds[0] == worlds[1]


# --- where everyone is, and may go ---------------------------------------------


@pytest.mark.parametrize(
    ("action", "cell"),
    [(RIGHT, (3, 2)), (UP, (2, 3)), (LEFT, (1, 2)), (DOWN, (2, 1)), (STAY, (2, 2))],
)
def test_each_action_goes_where_it_says(action: int, cell: tuple[int, int]) -> None:
    env = placed((2, 2))
    env.step(action)
    assert env.observe("hunter_0")["agent"].tolist() == list(cell)


@pytest.mark.parametrize("action", [RIGHT, UP, LEFT, DOWN])
def test_walls_obstacles_and_hunters_block(action: int) -> None:
    env = placed((0, 0), (1, 0), (4, 4), obstacles=[(0, 1), (3, 4)])
    env.step(action)  # walls on two sides, an obstacle, a hunter
    assert env.world.positions["hunter_0"] == (0, 0)
    env.step(STAY)
    env.step({LEFT: LEFT, DOWN: STAY}.get(action, action))
    assert env.world.positions["hunter_2"] == (4, 4)


def test_everyone_starts_on_a_free_cell_of_its_own(settings: dict[str, Any]) -> None:
    env = GridWorldEnvMultiAgent(**settings)
    for seed in range(20):
        env.reset(seed=seed)
        cells = [*env.world.positions.values(), *env.world.obstacles]
        cells += [] if env.world.target is None else [env.world.target]
        assert len(set(cells)) == len(cells)
        assert len(env.world.obstacles) == env.config.num_obstacles
        assert all(0 <= x < env.config.size and 0 <= y < env.config.size for x, y in cells)


@pytest.mark.parametrize(("size", "num_obstacles"), [(2, 2), (4, 13), (6, 20), (9, 40)])
def test_obstacles_leave_a_way_from_everywhere_to_everywhere(size: int, num_obstacles: int) -> None:
    config = GridWorldConfig(size=size, num_obstacles=num_obstacles, agents=1)
    for seed in range(10):
        world = scatter(config, np.random.default_rng(seed))
        assert len(world.obstacles) == num_obstacles
        free = {(x, y) for x in range(size) for y in range(size)} - world.obstacles
        reached, edge = set(), [min(free)]
        while edge:
            x, y = edge.pop()
            if (x, y) in free - reached:
                reached.add((x, y))
                edge += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
        assert reached == free


def test_obstacles_can_be_switched_off() -> None:
    env = GridWorldEnvMultiAgent(num_obstacles=5, enable_obstacles=False)
    env.reset(seed=0)
    assert not env.world.obstacles


# --- the target ----------------------------------------------------------------


def test_the_target_moves_once_after_every_full_cycle() -> None:
    env = placed((0, 0), (0, 1), (0, 2), target=(4, 4), size=9, target_config={"box": 1})
    moves = []
    for _ in range(30):
        before = env.world.target
        for _ in range(2):
            env.step(STAY)
            assert env.world.target == before
        env.step(STAY)
        moves.append(np.abs(np.subtract(env.world.target, before)).sum())
    assert set(moves) == {1}


def test_the_target_walks_into_nobody() -> None:
    env = placed((1, 0), target=(0, 0), obstacles=[(1, 1)], size=3, target_config={})
    seen = set()
    for _ in range(60):
        env.step(STAY)
        seen.add(env.world.target)
    assert seen == {(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0)}


def test_a_target_that_cannot_go_anywhere_stays() -> None:
    env = placed((1, 0), target=(0, 0), obstacles=[(0, 1)], target_config={})
    env.step(STAY)
    assert env.world.target == (0, 0)


@pytest.mark.parametrize("config", [{"moves": False}, {"move_probability": 0}])
def test_a_target_may_stand_still(config: dict[str, Any]) -> None:
    env = placed((0, 0), target=(2, 2), target_config=config)
    for _ in range(20):
        env.step(STAY)
    assert env.world.target == (2, 2)


# --- rewards ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "reward"),
    [
        ((3, 4), 1.0),  # one step to the right is the target
        ((2, 3), -0.3),  # in its box
        ((1, 4), 0.7),  # in sight
        ((0, 0), -0.01),
    ],
)
def test_the_reward_says_where_the_hunter_stands(start: tuple[int, int], reward: float) -> None:
    env = placed(start, (8, 8), target=(4, 4), size=9, fov=5, lambda_fov=0.3)
    env.step(RIGHT)
    assert env.rewards == {"hunter_0": reward, "hunter_1": 0}


def test_lambda_is_clamped() -> None:
    given = [-7, -0.2, 0.5, 3]
    kept = [GridWorldEnvMultiAgent(lambda_fov=one).config.lambda_fov for one in given]
    assert kept == [-0.5, -0.2, 0.5, 0.5]


def test_a_first_visit_is_worth_something_once_for_each_hunter() -> None:
    env = placed((0, 0), (3, 0), size=9, intrinsic=True)
    gained: dict[str, list[float]] = {"hunter_0": [], "hunter_1": []}
    for actions in [(RIGHT, LEFT), (STAY, LEFT), (UP, STAY), (DOWN, RIGHT), (LEFT, LEFT)]:
        for agent, action in zip(gained, actions, strict=True):
            env.step(action)
            gained[agent].append(env.rewards[agent])
    first, again = pytest.approx(0.015), pytest.approx(-0.01)
    assert gained["hunter_0"] == [first, again, first, again, again]
    assert gained["hunter_1"] == [first, again, again, again, again]  # (1, 0) was taken


def test_last_gives_what_came_since_the_last_turn_and_once() -> None:
    env = placed((0, 0), (8, 8), target=(4, 4), size=9)
    assert env.last()[1] == 0
    for _ in range(3):
        env.step(STAY)
        env.step(STAY)
        assert env.agent_selection == "hunter_0"
        assert env.last()[1] == -0.01


# --- ends ------------------------------------------------------------------------


def test_who_catches_the_target_ends_and_leaves_and_the_others_hunt_on() -> None:
    env = placed((0, 0), (3, 4), (4, 3), target=(4, 4))
    env.step(STAY)
    env.step(RIGHT)
    assert env.agent_selection == "hunter_1"
    observation, reward, terminated, truncated, _ = env.last()
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert observation["agent"].tolist() == [4, 4]
    assert observation["obstacles_fov"][2, 2] == 3
    env.step(None)
    assert env.agents == ["hunter_0", "hunter_2"]
    assert set(env.rewards) == set(env.infos) == set(env.terminations) == set(env.agents)
    assert env.agent_selection == "hunter_2"  # the cycle goes on
    env.step(UP)  # it is still there, and nobody stands in the way
    assert env.last()[1:3] == (1.0, True)
    env.step(None)
    assert env.num_cycles == 1
    for _ in range(3):
        assert env.agent_selection == "hunter_0"
        env.step(STAY)
    assert env.num_cycles == 4


def test_the_last_catch_ends_the_episode() -> None:
    env = placed((3, 4), target=(4, 4))
    env.step(RIGHT)
    env.step(None)
    assert env.agents == []
    with pytest.raises(shoal.ContractError, match="call reset first"):
        env.step(STAY)


@pytest.mark.parametrize("num_agents", [1, 2, 4])
def test_who_still_hunts_after_max_steps_cycles_is_truncated(num_agents: int) -> None:
    env = GridWorldEnvMultiAgent(agents=num_agents, max_steps=7, no_target=True)
    env.reset(seed=0)
    for turn in range(7 * num_agents):
        assert not any(env.truncations.values()), turn
        env.step(STAY)
    assert env.truncations == dict.fromkeys(env.possible_agents, True)
    assert not any(env.terminations.values())
    for _ in range(num_agents):
        env.step(None)
    assert env.agents == []


def test_a_catch_in_the_last_cycle_is_no_truncation() -> None:
    env = placed((3, 4), (0, 0), target=(4, 4), max_steps=1)
    env.step(RIGHT)
    env.step(None)
    env.step(STAY)
    assert (env.terminations, env.truncations) == ({"hunter_1": False}, {"hunter_1": True})
    env = placed((0, 0), (3, 4), target=(4, 4), max_steps=1)
    env.step(STAY)
    env.step(RIGHT)
    assert env.terminations == {"hunter_0": False, "hunter_1": True}
    assert env.truncations == {"hunter_0": True, "hunter_1": False}


# --- what is seen ------------------------------------------------------------------


def test_every_observation_lies_in_its_space(settings: dict[str, Any]) -> None:
    env = GridWorldEnvMultiAgent(**settings)
    values = set()
    for seed in range(4):
        env.reset(seed=seed)
        for agent in env.agent_iter(200):
            observation, _, terminated, truncated, _ = env.last()
            assert env.observation_space(agent).contains(observation)
            values |= set(observation["obstacles_fov"].ravel().tolist())
            env.step(None if terminated or truncated else env.action_space(agent).sample())
    assert values <= {0, 1, 2, 3}
    assert (3 in values) == (not env.config.no_target)


def test_a_view_is_what_a_picture_shows() -> None:
    env = placed((1, 1), (3, 3), target=(2, 0), obstacles=[(0, 2), (1, 3)], size=4, fov=5)
    assert env.observe("hunter_0")["obstacles_fov"].tolist() == [
        [1, 0, 1, 0, 2],
        [1, 1, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [1, 0, 0, 3, 0],
        [1, 1, 1, 1, 1],
    ]


def test_a_field_of_view_ends_where_it_ends() -> None:
    env = placed((2, 2), (4, 2), target=(2, 0), size=5, fov=3)
    assert not env.observe("hunter_0")["obstacles_fov"].any()


def test_the_target_is_told_only_if_asked_and_if_there_is_one() -> None:
    told = placed((0, 0), target=(3, 1), show_target_coords=True)
    assert told.observe("hunter_0")["target"].tolist() == [3, 1]
    assert "target" not in placed((0, 0), target=(3, 1)).observe("hunter_0")
    assert "target" not in placed((0, 0), show_target_coords=True).observe("hunter_0")


@pytest.mark.parametrize("action", [5, -1, None, 1.0, "up"])
def test_what_is_no_action_is_refused(action: Any) -> None:
    env = placed((0, 0))
    with pytest.raises(shoal.ContractError, match=r"hunter_0 was given.*0 right, 1 up"):
        env.step(action)


# --- pictures ------------------------------------------------------------------------


def middle(picture: Any, size: int, cell: tuple[int, int]) -> list[int]:
    side = picture.shape[0] // size
    x, y = cell
    colors: list[int] = picture[(size - 1 - y) * side + side // 4, x * side + side // 2].tolist()
    return colors


def test_a_picture_shows_everything_where_it_is() -> None:
    agents = [{"color": (10, 200, 30)}, {"color": (1, 2, 250)}]
    env = placed(
        (0, 0), (3, 4), target=(4, 4), obstacles=[(2, 2)], agents=agents, render_mode="rgb_array"
    )
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape == (480, 480, 3)
    paper = middle(picture, 5, (1, 3))
    assert middle(picture, 5, (0, 0)) == [10, 200, 30]
    assert middle(picture, 5, (3, 4)) == [1, 2, 250]
    assert middle(picture, 5, (2, 2)) != paper
    assert middle(picture, 5, (4, 4)) not in (paper, middle(picture, 5, (2, 2)))
    env.step(UP)
    picture = env.render()
    assert middle(picture, 5, (0, 1)) == [10, 200, 30]
    assert middle(picture, 5, (0, 0)) == paper
    prey = middle(picture, 5, (4, 4))
    env.step(RIGHT)  # caught it, and is gone
    picture = env.render()
    assert middle(picture, 5, (3, 4)) == paper
    assert middle(picture, 5, (4, 4)) == prey


def test_fields_of_view_are_shown_if_asked() -> None:
    plain, shown = (
        placed((0, 0), target=(4, 4), fov=3, render_mode="rgb_array", show_fov_display=is_shown)
        for is_shown in (False, True)
    )
    differs = (plain.render() != shown.render()).any(axis=2)
    cells = differs.reshape(5, 96, 5, 96).any(axis=(1, 3))[::-1].T  # [x, y]
    inside = {(0, 0), (1, 0), (0, 1), (1, 1), (4, 4), (3, 4), (4, 3), (3, 3)}
    assert {(x, y) for x, y in np.argwhere(cells).tolist()} == inside


@pytest.mark.parametrize("size", [2, 11, 40])
def test_pictures_fit_every_size(size: int) -> None:
    env = GridWorldEnvMultiAgent(
        size=size, agents=2 if size == 2 else 12, render_mode="rgb_array", show_fov_display=True
    )
    env.reset(seed=0)
    height, width, _ = env.render().shape
    assert height == width
    assert height % size == 0


@pytest.mark.usefixtures("no_display")
def test_a_window_shows_each_turn_and_closes() -> None:
    pygame = pytest.importorskip("pygame")
    env = placed((0, 0), (4, 4), render_mode="human")
    env.metadata = env.metadata | {"render_fps": 1000}
    env.render()
    first = pygame.surfarray.array3d(pygame.display.get_surface())
    assert first.std() > 5
    env.step(UP)
    assert (pygame.surfarray.array3d(pygame.display.get_surface()) != first).any()
    env.close()
    env.close()
    assert not pygame.display.get_init()


def test_rendering_without_a_mode_warns_and_before_a_reset_is_refused() -> None:
    env = GridWorldEnvMultiAgent()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    with pytest.raises(shoal.ContractError, match="call reset first"):
        GridWorldEnvMultiAgent(render_mode="rgb_array").render()


# --- settings ----------------------------------------------------------------------


def test_the_settings_file_makes_a_world() -> None:
    pytest.importorskip("yaml")
    config = GridWorldConfig.from_yaml(ROOT / "configs" / "gridworld.yaml")
    env = GridWorldEnvMultiAgent.from_config(config)
    assert env.config == config
    assert env.possible_agents == ["hunter_0", "hunter_1", "hunter_2"]
    assert env.observation_space("hunter_2")["obstacles_fov"].shape == (7, 7)
    env.reset(seed=0)
    assert len(env.world.obstacles) == config.num_obstacles


def test_a_settings_file_with_a_mistake_is_told_by_name(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "mine.yaml"
    file.write_text("sise: 9\n")
    with pytest.raises(shoal.ConfigError, match=r"mine\.yaml: unknown key 'sise'.*'size'"):
        GridWorldConfig.from_yaml(file)
    file.write_text("size: [9\n")
    with pytest.raises(shoal.ConfigError, match=r"mine\.yaml is not valid YAML"):
        GridWorldConfig.from_yaml(file)
    file.write_text("9\n")
    with pytest.raises(shoal.ConfigError, match=r"mine\.yaml: expected settings by name, got 9"):
        GridWorldConfig.from_yaml(file)
    with pytest.raises(shoal.ConfigError, match="cannot be read: No such file"):
        GridWorldConfig.from_yaml(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 1}, "size must be a whole number of at least 2, got 1"),
        ({"size": 5.0}, r"size must be a whole number of at least 2, got 5\.0"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"agents": 0}, "agents must be a whole number of at least 1"),
        ({"agents": []}, "agents is an empty list"),
        ({"agents": "two"}, "agents must be a whole number"),
        ({"agents": [{}, {"fow": 3}]}, r"agents\[1\]: unknown key 'fow'. Did you mean 'fov'"),
        ({"agents": [{"fov": 4}]}, r"agents\[0\]: fov must be odd, got 4. Try 3 or 5"),
        ({"agents": [{"color": "red"}]}, r"agents\[0\]: color must be three numbers"),
        ({"agents": [{"name": "a"}, {"name": "a"}]}, "two are called 'a'"),
        ({"agents": [3]}, r"agents\[0\]: expected settings by name, got 3"),
        ({"target_config": {"move": True}}, "target_config: unknown key 'move'.*'moves'"),
        ({"target_config": {"move_probability": 2}}, "target_config: move_probability is 2"),
        ({"target_config": {"box": 2}}, "target_config: box must be odd"),
        ({"fov": 2}, "fov must be odd"),
        ({"intrinsic": 1}, "intrinsic must be true or false, got 1"),
        ({"lambda_fov": "much"}, "lambda_fov must be a number, got 'much'"),
        ({"render_mode": "rgb_aray"}, "render_mode is 'rgb_aray'. Did you mean 'rgb_array'"),
        ({"size": 3, "num_obstacles": 7}, "3 × 3 cells is too small.*need 10 cells"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        GridWorldEnvMultiAgent(**given)


def test_agents_may_have_names_of_their_own() -> None:
    env = GridWorldEnvMultiAgent(agents=[{"name": "wolf_0"}, {}])
    assert env.possible_agents == ["wolf_0", "hunter_1"]


def test_importing_shoal_imports_no_pettingzoo() -> None:
    program = "import sys, shoal, shoal.envs; print('pettingzoo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
