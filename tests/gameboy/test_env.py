"""Is the Game Boy environment a good Gymnasium environment, on every backend?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_by_gymnasium

import shoal
from faults.recovering import kill_worker
from gameboy import cartridges
from shoal.envs.gameboy import ACTIONS, TIDEKEEP, GameBoyEnv
from shoal.envs.gameboy.console import read_rom
from shoal.envs.gameboy.env import RAM_MAP, ROM
from shoal.envs.gameboy.players import Player, RandomPlayer, ScriptedPlayer
from shoal.testing import check_env
from trace_of import assert_same, run

OBSERVATIONS = ("ram", "pixels", "both")
ID = f"shoal.envs.gameboy:{TIDEKEEP}"


@pytest.fixture
def env() -> Iterator[GameBoyEnv]:
    env = GameBoyEnv()
    yield env
    env.close()


def actions_of(seed: int, count: int) -> list[int]:
    return [int(one) for one in np.random.default_rng(seed).integers(len(ACTIONS), size=count)]


def trace(env: Any, seed: int | None, actions: list[int], options: Any = None) -> list[Any]:
    """Everything that the environment says, with a new episode wherever one is over."""
    steps: list[Any] = [env.reset(seed=seed, options=options)]
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            steps.append(env.reset())
    return steps


# --- contracts -----------------------------------------------------------------


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_it_passes_both_checkers(observation: str) -> None:
    check_by_gymnasium(GameBoyEnv(observation=observation), skip_render_check=True)
    report = check_env(lambda: GameBoyEnv(observation=observation, episode_length=40))
    assert report.ok, str(report)


def test_it_renders_as_gymnasium_asks() -> None:
    env = gymnasium.make(ID, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.shape == (144, 160, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture)) == 4
    env.close()


@pytest.mark.parametrize(
    ("kwargs", "shapes"),
    [
        ({}, {"": (None, np.float32)}),
        ({"observation": "pixels"}, {"": ((4, 84, 84), np.uint8)}),
        (
            {"observation": "pixels", "screen": "native", "stack": 2},
            {"": ((2, 144, 160), np.uint8)},
        ),
        (
            {"observation": "both", "stack": 1},
            {"ram": (None, np.float32), "pixels": ((1, 84, 84), np.uint8)},
        ),
    ],
)
def test_observations_are_what_was_asked_for(kwargs: Any, shapes: Any) -> None:
    env = GameBoyEnv(**kwargs)
    observation, _ = env.reset(seed=0)
    for name, (shape, dtype) in shapes.items():
        part = observation[name] if name else observation
        assert part.shape == (shape or (len(env.feature_names),))
        assert part.dtype == dtype
    assert env.observation_space.contains(observation)
    env.close()


def test_the_vector_says_what_memory_says(env: GameBoyEnv) -> None:
    """Against a slow transcription: each field by its own rule, read one by one."""
    env.reset(seed=3)
    for action in actions_of(0, 300):
        observation, *_ = env.step(action)
        expected = []
        for field in env.ram_map.fields:
            if field.length > 1 or not field.width:
                continue
            value = env.peek(field.name)
            assert isinstance(value, int)
            if field.kind == "scale":
                expected.append(min(value / field.size, 1.0))
            elif field.kind == "one_hot":
                expected += [1.0 if value == at else 0.0 for at in range(field.size)]
            else:
                expected += [float(bool(value & 2**at)) for at in range(field.size)]
        np.testing.assert_array_equal(observation, np.array(expected, np.float32))
    assert len(env.feature_names) == len(expected)
    assert env.feature_names[:2] == ("room[0]", "room[1]")


def test_offsets_lead_to_things(env: GameBoyEnv) -> None:
    for seed in range(5):
        env.reset(seed=seed)
        for action in actions_of(seed, 100):
            env.step(action)
            for name in ("rupee_a", "rupee_b", "key", "pearl", "enemy"):
                here = env.peek(f"{name}_here")
                right = env.peek(f"{name}_x") - env.peek("x") if here else 0  # type: ignore[operator]
                down = env.peek(f"{name}_y") - env.peek("y") if here else 0  # type: ignore[operator]
                assert env.peek(f"{name}_right") == 9 + right
                assert env.peek(f"{name}_down") == 7 + down


def test_walls_and_fresh_cells_are_felt(env: GameBoyEnv) -> None:
    """Against what the room looks like, and a record of every step."""
    moves = ((0, -1), (0, 1), (-1, 0), (1, 0))
    for seed in range(3):
        env.reset(seed=seed)
        trodden: set[tuple[Any, ...]] = set()
        for action in actions_of(seed, 300):
            env.step(action)
            room, x, y = env.peek("room"), env.peek("x"), env.peek("y")
            trodden |= {(4, 4, 4), (room, x, y)}
            cells = env.peek("cells")
            walls, fresh = [], []
            for right, down in moves:
                column, row = x + right, y + down  # type: ignore[operator]
                inside = 0 <= column < 10 and 0 <= row < 8
                kind = cells[10 * row + column] if inside else 0  # type: ignore[index]
                blocked = kind >= 6 and not (kind == 8 and env.peek("key"))
                walls.append(blocked)
                fresh.append(inside and not blocked and (room, column, row) not in trodden)
            assert env.peek("walls") == sum(2**at for at in range(4) if walls[at])
            assert env.peek("fresh") == sum(2**at for at in range(4) if fresh[at])
            assert env.peek("explored") == len(trodden)
            if env.peek("state"):
                break


def test_small_frames_are_means_of_areas() -> None:
    small = GameBoyEnv(observation="pixels", stack=3)
    native = GameBoyEnv(observation="pixels", screen="native", stack=3)
    for env in (small, native):
        env.reset(seed=1)
    for action in actions_of(1, 8):
        frames, large = small.step(action)[0], native.step(action)[0]
        for one, other in zip(frames, large, strict=True):
            # 144 / 84 is 12 / 7, and 160 / 84 is 40 / 21.
            wide = np.repeat(np.repeat(other.astype(float), 7, axis=0), 21, axis=1)
            means = wide.reshape(84, 12, 84, 40).mean(axis=(1, 3))
            np.testing.assert_array_equal(one, np.floor(means + 0.5).astype(np.uint8))
    small.close()
    native.close()


def test_frames_are_stacked_newest_last() -> None:
    env = GameBoyEnv(observation="pixels", stack=3)
    before, _ = env.reset(seed=1)
    assert (before[0] == before[2]).all()
    for action in (6, 6, 4, 5):
        after, *_ = env.step(action)
        np.testing.assert_array_equal(after[:-1], before[1:])
        assert (after[-1] != before[-1]).any()
        before = after
    env.close()


# --- rewards -------------------------------------------------------------------


def test_rewards_are_those_of_a_slow_transcription(env: GameBoyEnv) -> None:
    players: list[Player] = [ScriptedPlayer(), *(RandomPlayer(seed) for seed in range(12))]
    seen = set()
    for seed, player in enumerate(players):
        env.reset(seed=seed)
        for _ in range(400):
            before = {name: env.peek(name) for name in NAMES}
            _, reward, terminated, _, info = env.step(player.act(env))
            after = {name: env.peek(name) for name in NAMES}
            expected = transcribed(before, after)
            assert info == {name: count for name, count in expected.items() if count}
            assert reward == pytest.approx(sum(WORTH[name] * expected[name] for name in WORTH))
            assert terminated == (after["state"] != 0)
            seen |= set(info)
            if terminated:
                break
    assert seen >= {"new_cell", "new_room", "rupees", "damage", "key", "gate", "goal"}


NAMES = ("state", "rooms", "rupees", "key", "door", "damage", "foes", "explored")
WORTH = {
    "new_cell": 0.02,
    "new_room": 1.0,
    "rupees": 0.25,
    "key": 2.0,
    "gate": 2.0,
    "damage": -0.25,
    "foes": 0.0,
    "goal": 10.0,
    "death": 0.0,
}


def transcribed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    return {
        "new_cell": after["explored"] - before["explored"],
        "new_room": sum(
            1 for at in range(8) if after["rooms"] >> at & 1 > before["rooms"] >> at & 1
        ),
        "rupees": after["rupees"] - before["rupees"],
        "key": int(after["key"] and not before["key"]),
        "gate": int(after["door"] and not before["door"]),
        "damage": after["damage"] - before["damage"],
        "foes": after["foes"] - before["foes"],
        "goal": int(before["state"] == 0 and after["state"] == 1),
        "death": int(before["state"] == 0 and after["state"] == 2),
    }


def test_rewards_can_be_told_apart(env: GameBoyEnv) -> None:
    other = GameBoyEnv(rewards={"new_room": 5, "rupees": 0, "damage": 0, "new_cell": 0})
    assert_same(env.reset(seed=4), other.reset(seed=4))
    total = 0.0
    for action in actions_of(4, 300):
        one, two = env.step(action), other.step(action)
        assert two[1] == 5 * one[4].get("new_room", 0) + 2 * one[4].get("key", 0)
        total += two[1]
    assert total > 0
    other.close()


def test_episodes_are_truncated_at_their_length() -> None:
    env = GameBoyEnv(episode_length=7)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]
    env.close()


# --- determinism -----------------------------------------------------------------


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_a_second_environment_does_the_same_whatever_the_first_has_been_through(
    observation: str,
) -> None:
    """Episodes begin by a byte in memory, not by loading a state: nothing may stay behind."""
    used = GameBoyEnv(observation=observation, episode_length=60)
    trace(used, 1, actions_of(1, 200))
    fresh = GameBoyEnv(observation=observation, episode_length=60)
    assert_same(trace(used, 2, actions_of(2, 200)), trace(fresh, 2, actions_of(2, 200)))
    used.close()
    fresh.close()


def test_whether_frames_are_drawn_changes_nothing(env: GameBoyEnv) -> None:
    drawn = GameBoyEnv(render_mode="rgb_array")
    assert_same(trace(env, 5, actions_of(5, 300)), trace(drawn, 5, actions_of(5, 300)))
    drawn.close()


@pytest.mark.parametrize("observation", ["ram", "both"])
@pytest.mark.parametrize("backend", ["thread", "process", "hybrid"])
def test_every_backend_gives_the_same_frames_and_values(backend: str, observation: str) -> None:
    kwargs = {"observation": observation, "episode_length": 25}
    traces = []
    for where, workers in (("serial", 1), (backend, 2)):
        envs = shoal.make(ID, 3, backend=where, num_workers=workers, env_kwargs=kwargs)
        traces.append(run(envs, 60))
        envs.close()
    assert_same(traces[1], traces[0])


def test_a_killed_worker_is_rebuilt_and_its_episode_goes_on() -> None:
    def play(kills: set[int]) -> list[Any]:
        envs = shoal.make(
            ID, 4, backend="process", num_workers=2, on_failure="replay", env_kwargs=kwargs
        )
        actions = np.random.default_rng(0).integers(len(ACTIONS), size=(60, 4))
        steps: list[Any] = [envs.reset(seed=1)]
        for turn, row in enumerate(actions):
            if turn in kills:
                kill_worker(envs, turn % 2)
            steps.append(envs.step(row))
        assert (envs.stats()["replays"] > 0) == bool(kills)
        envs.close()
        return steps

    kwargs = {"observation": "both", "episode_length": 40}
    assert_same(play({12, 51}), play(set()))


# --- states -----------------------------------------------------------------------


def test_a_saved_state_goes_on_exactly(tmp_path: Path) -> None:
    env, other = GameBoyEnv(observation="both", stack=1), GameBoyEnv(observation="both", stack=1)
    env.reset(seed=6)
    for action in actions_of(6, 80):
        observation, *_ = env.step(action)
    state = env.save_state()
    rest = actions_of(7, 120)
    expected = [env.step(action) for action in rest]
    (tmp_path / "here.state").write_bytes(state)
    for given in (state, tmp_path / "here.state", str(tmp_path / "here.state")):
        first, info = other.reset(seed=0, options={"state": given})
        assert_same(first, observation)
        assert info == {}
        assert_same([other.step(action) for action in rest], expected)
    env.close()
    other.close()


def test_episodes_can_begin_in_a_saved_state() -> None:
    env = GameBoyEnv()
    env.reset(seed=6)
    for action in actions_of(6, 80):
        expected, *_ = env.step(action)
    later = GameBoyEnv(state=env.save_state())
    for seed in (1, 2):
        observation, _ = later.reset(seed=seed)
        assert_same(observation, expected)
        later.step(3)
    env.close()
    later.close()


def test_where_episodes_begin_can_be_changed(env: GameBoyEnv) -> None:
    begun = env.reset(seed=6)
    for action in actions_of(6, 80):
        expected, *_ = env.step(action)
    assert env.start_state is None
    env.start_state = env.save_state()
    for _ in range(2):
        assert_same(env.reset(seed=6)[0], expected)
        env.step(3)
    env.start_state = None
    assert_same(env.reset(seed=6), begun)


def test_without_a_state_a_game_without_levels_begins_where_it_was_switched_on() -> None:
    env = GameBoyEnv(ROM, observation="pixels")
    begun = env.reset(seed=0)
    env.step(5)
    env.start_state = env.save_state()
    assert (env.reset(seed=0)[0] != begun[0]).any()
    env.start_state = None
    assert_same(env.reset(seed=0), begun)
    env.close()


def test_a_reset_that_fails_leaves_no_episode_and_no_half_state(env: GameBoyEnv) -> None:
    env.reset(seed=1)
    state = env.save_state()
    for action in actions_of(1, 30):
        env.step(action)
    for wrong in (
        b"",
        state[:1000],
        state[:20_000],
        state[: len(state) // 2],
        bytes([99]) + state[1:],
    ):
        with pytest.raises(shoal.ConfigError, match="cannot be loaded"):
            env.reset(options={"state": wrong})
        with pytest.raises(shoal.ContractError, match="or the last reset failed"):
            env.step(0)
        fresh = GameBoyEnv()
        assert_same(trace(env, 3, actions_of(3, 40)), trace(fresh, 3, actions_of(3, 40)))
        fresh.close()


def test_a_state_of_another_rom_is_refused(tmp_path: Path, env: GameBoyEnv) -> None:
    changed = bytearray(ROM.read_bytes())
    changed[-1] ^= 0xFF
    (tmp_path / "other.gb").write_bytes(changed)
    other = GameBoyEnv(tmp_path / "other.gb", RAM_MAP)
    other.reset(seed=0)
    state = other.save_state()
    env.reset(seed=0)
    with pytest.raises(shoal.ConfigError, match="saved for another ROM than Tidekeep"):
        env.reset(options={"state": state})
    env.reset(options={"state": state[:-15]})  # as PyBoy writes them: it says nothing of the ROM
    other.close()


def test_a_level_can_be_asked_for(env: GameBoyEnv) -> None:
    first = env.reset(seed=1, options={"level": 77})
    assert first[1] == {"level": 77}
    assert_same(env.reset(seed=2, options={"level": 77}), first)
    assert env.reset(seed=1)[1] == env.reset(seed=1)[1]
    assert env.reset()[1] != env.reset()[1]


def test_a_game_without_levels_says_so() -> None:
    env = GameBoyEnv(ROM, observation="pixels")
    with pytest.raises(shoal.ContractError, match="has no levels"):
        env.reset(options={"level": 3})
    env.close()


def test_nothing_is_written_beside_the_rom(tmp_path: Path) -> None:
    """Not even for a cartridge with a battery, whose memory PyBoy would keep."""
    rom = bytearray(ROM.read_bytes())
    rom[0x147], rom[0x149] = 0x03, 0x02  # a memory controller, RAM and a battery
    rom[0x14D] = -sum(byte + 1 for byte in rom[0x134:0x14D]) & 0xFF
    path = tmp_path / "battery.gb"
    path.write_bytes(rom)
    before = path.stat().st_mtime_ns
    env = GameBoyEnv(path, RAM_MAP)
    trace(env, 0, actions_of(0, 20))
    env.close()
    assert os.listdir(tmp_path) == ["battery.gb"]
    assert path.stat().st_mtime_ns == before


# --- games of your own ---------------------------------------------------------------

MAP = """
fields:
  room: {address: 0xC004, one_hot: 6}
  x: {address: 0xC005, scale: 9}
  hearts: {address: 0xC008, scale: 3}
  frame: {address: %s, bytes: 2}
events:
  hurt: {fall: hearts, reward: -2}
  moved: {change: x, reward: 0.5}
  home: {reach: x, value: 0, ends: true}
"""


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    ram_map, rom = tmp_path / "map.yaml", tmp_path / "my.gb"
    rom.write_bytes(ROM.read_bytes())
    ram_map.write_text("fields: {x: {address: 0xC005, scale: 9}}")
    env = GameBoyEnv(rom, ram_map)
    assert len(env.feature_names) == 1
    env.close()
    assert read_rom(rom) is read_rom(rom), "once for all environments of a process"
    changed = bytearray(ROM.read_bytes())
    changed[-1] ^= 0xFF
    rom.write_bytes(changed)
    os.utime(rom, ns=(1, 1))
    ram_map.write_text("fields: {x: {address: 0xC005, scale: 9}, y: {address: 0xC006, scale: 7}}")
    env = GameBoyEnv(rom, ram_map)
    assert len(env.feature_names) == 2
    assert env.console is not None
    assert env.console.memory[0x7FFF] == changed[-1]
    env.close()


@pytest.fixture
def ram_map(tmp_path: Path, env: GameBoyEnv) -> Path:
    path = tmp_path / "map.yaml"
    path.write_text(MAP % hex(env.ram_map.field("frame").address))
    return path


def test_a_game_of_ones_own_has_a_map_of_ones_own(ram_map: Path) -> None:
    env = GameBoyEnv(ROM, ram_map)
    observation, info = env.reset(seed=0)
    assert observation.tolist() == pytest.approx([0, 0, 0, 0, 1, 0, 4 / 9, 1])
    assert info == {}
    assert 0 < env.peek("frame") < 16  # type: ignore[operator]
    assert_same(env.reset(seed=5)[0], observation)  # there is no seed to set: always the same
    steps = [env.step(5) for _ in range(4)]
    assert [step[1] for step in steps] == [0.5] * 4
    assert [step[2] for step in steps] == [False] * 3 + [True]
    assert steps[-1][4] == {"moved": 1, "home": 1}
    env.close()


def test_a_title_is_passed_as_the_map_says(tmp_path: Path) -> None:
    rom, ram_map = cartridges.write(tmp_path, cartridges.TITLE)
    stuck = GameBoyEnv(rom, ram_map)
    stuck.reset()
    for action in range(len(ACTIONS)):
        stuck.step(action)
    assert stuck.peek("begun") == 0, "no action is START"
    stuck.close()
    ram_map.write_text(f"{cartridges.MAP}begin: {{press: [30, start, 10]}}\n")
    env = GameBoyEnv(rom, ram_map)
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        assert (env.peek("begun"), observation) == (1, 0)
        assert env.step(6)[1] == 1.0
    env.close()


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array])
def test_actions_may_be_numbers_of_numpy(env: GameBoyEnv, kind: Any) -> None:
    env.reset(seed=0)
    expected = env.step(5)
    env.reset(seed=0)
    assert_same(env.step(kind(5)), expected)
    for wrong in (np.array([5]), np.array(5.0), np.array(7)):
        with pytest.raises(shoal.ContractError, match="expected a number from 0 to 6"):
            env.step(wrong)


def test_a_button_can_be_held_for_a_part_of_the_step() -> None:
    whole = GameBoyEnv(frames_per_step=12)
    part = GameBoyEnv(frames_per_step=12, press_frames=8)
    for env, cells in ((whole, 3), (part, 2)):
        env.reset(seed=0)
        env.step(5)
        assert env.peek("x") == 4 - cells
        env.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"observation": "rams"}, "observation is 'rams'. Did you mean 'ram'?"),
        ({"frames_per_step": 0}, "frames_per_step must be a whole number of at least 1, got 0."),
        ({"press_frames": 5}, "press_frames is 5; a step has 4 frames."),
        ({"rewards": {"gaol": 1}}, "there is no event 'gaol'. Did you mean 'goal'?"),
        ({"rewards": {"goal": "much"}}, "goal must be a finite number, got 'much'."),
        ({"rewards": {"goal": float("inf")}}, "goal must be a finite number, got inf."),
        ({"rewards": {"novelty": 0.5}}, "novelty is 0.5, but nothing would come of it"),
        ({"rom": "nowhere.gb", "observation": "pixels"}, "the ROM nowhere.gb cannot be read"),
        ({"rom": RAM_MAP, "observation": "pixels"}, "is no cartridge that PyBoy can run"),
        ({"ram_map": RAM_MAP}, "ram_map is given without rom"),
        ({"rom": ROM}, "the RAM map has no field to observe"),
        ({"novelty": "all"}, "novelty is 'all'."),
        ({"render_mode": "human"}, "render_mode is 'human'."),
        ({"state": "nowhere.state"}, "the state 'nowhere.state' cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(kwargs: Any, message: str) -> None:
    with pytest.raises(shoal.ConfigError) as caught:
        GameBoyEnv(**kwargs)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fields: {x: {adress: 3}}", "fields: x: unknown key 'adress'. Did you mean 'address'?"),
        ("fields: {x: {address: 0x10000}}", "address is $10000; expected $0000 to $FFFF."),
        ("fields: {x: {address: 3, scale: 2, bits: 3}}", "expected one of scale, one_hot, bits"),
        ("fields: {x: {address: 3, bits: 9}}", "bits is 9; expected 1 to 8."),
        ("fields: {x: {address: 3, one_hot: 300}}", "one_hot is 300; expected 1 to 256."),
        ("fields: {x: {address: 3, length: 4, scale: 3}}", "cannot be observed"),
        ("fields: {x: {address: 3, bytes: 4}}", "bytes is 4; expected 1 to 3."),
        ("fields: {x: {address: far}}", "address must be a whole number, got 'far'."),
        ("fields: {x: {address: 3, length: 0}}", "length is 0; expected 1 or more."),
        ("fields: {x: {address: 3, bytes: 0}}", "bytes is 0; expected 1 to 3."),
        ("events: {e: {rise: x}}", "there is no field 'x'."),
        ("fields: {x: {address: 3}}\nevents: {e: {rises: x}}", "unknown key 'rises'."),
        ("fields: {x: {address: 3}}\nevents: {e: {reach: x}}", "value belongs to reach"),
        ("fields: {x: {address: 3}}\nevents: {e: {rise: x, reward: a}}", "must be a finite number"),
        (
            "fields: {x: {address: 3}}\nevents: {e: {rise: x, reward: .nan}}",
            "must be a finite number, got nan",
        ),
        (
            "fields: {x: {address: 3}}\nevents: {e: {rise: x, reward: -.inf}}",
            "must be a finite number, got -inf",
        ),
        (
            "fields: {x: {address: 3}}\nevents: {novelty: {rise: x}}",
            "novelty: so new sights are called.",
        ),
        ("novel: [x]", "novel: there is no field 'x' of one number."),
        ("fields: {x: {address: 3}}\nnovel: x", "novel: expected a list, got 'x'."),
        ("begin: {press: [strat]}", "press has 'strat'; expected buttons (a, b, up, down, left, "),
        ("begin: {press: [0]}", "press has 0; expected buttons (a, b, up, down, left, right, "),
        ("begin: {press: start}", "begin: press: expected a list, got 'start'."),
        ("begin: {press: [start], seed: 0xC000}", "seed is nothing without restart"),
        ("begin: {restart: 0x12345}", "restart is $12345; expected an address in RAM, $8000 to $F"),
        ("begin: {restart: 0}", "restart is $0000; expected an address in RAM, $8000 to $FFFF."),
        (
            "begin: {restart: 0xC000, seed: 0xFFFF}",
            "seed is $FFFF; expected an address in RAM, $8000 to $FFFE.",
        ),
        ("begin: {seed: 3}", "restart must be a whole number, got None."),
        ("- 3", "expected settings by name, got [3]."),
        ("a: [", "is not valid YAML"),
    ],
)
def test_a_wrong_map_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(shoal.ConfigError) as caught:
        GameBoyEnv(ROM, path)
    assert message in str(caught.value)
    assert "wrong.yaml" in str(caught.value)


def test_decimal_and_wide_numbers_are_read(tmp_path: Path, env: GameBoyEnv) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(
        "fields:\n"
        "  score: {address: 0xC300, bytes: 3, scale: 1000}\n"
        "  coins: {address: 0xC310, bytes: 2, bcd: true, scale: 9999}\n"
        "  lives: {address: 0xC320, bcd: true, scale: 99}\n"
        "events: {coin: {rise: coins, reward: 0.5}}\n"
    )
    own = GameBoyEnv(ROM, path)
    own.reset(seed=0)
    assert own.console is not None
    own.console.memory[0xC300:0xC303] = [0x34, 0x12, 0x01]
    own.console.memory[0xC310:0xC312] = [0x25, 0x10]
    own.console.memory[0xC320] = 0x42
    observation, reward, *_ = own.step(0)
    assert [own.peek(name) for name in ("score", "coins", "lives")] == [0x011234, 1025, 42]
    assert observation.tolist() == pytest.approx([1.0, 1025 / 9999, 42 / 99])
    assert reward == 1025 * 0.5
    own.close()


def test_wrong_calls_are_told(env: GameBoyEnv) -> None:
    with pytest.raises(shoal.ContractError, match="step was called before reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(shoal.ContractError, match="the action is 7; expected a number from 0 to 6"):
        env.step(7)
    with pytest.raises(shoal.ContractError, match="no option 'levle'"):
        env.reset(options={"levle": 3})
    with pytest.raises(shoal.ContractError, match="the level must be from 0 to 65535, got -1"):
        env.reset(options={"level": -1})
    with pytest.raises(shoal.ContractError, match="either a level or a state"):
        env.reset(options={"level": 1, "state": b""})
    for options in (5, [1]):
        with pytest.raises(shoal.ContractError, match="expected a dict with 'level' or 'state'"):
            env.reset(options=options)  # type: ignore[arg-type]
    with pytest.raises(shoal.ConfigError, match="cannot be loaded"):
        env.reset(options={"state": b"nothing"})
    with pytest.raises(shoal.ConfigError, match="no field 'hero'"):
        env.peek("hero")
    env.close()
    env.close()
    with pytest.raises(shoal.ClosedError):
        env.step(0)
