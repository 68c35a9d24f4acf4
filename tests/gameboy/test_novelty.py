"""Does novelty tell how far a player has come, and nothing of how long it took?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from gameboy.driving import FLOOR
from shoal.envs.gameboy import GameBoyEnv
from shoal.envs.gameboy.console import SCREEN
from shoal.envs.gameboy.env import RAM_MAP, ROM
from shoal.envs.gameboy.novelty import SCREEN_TOLERANCE, Novelty, tiles
from shoal.envs.gameboy.players import ExploringPlayer, Player, RandomPlayer, WaitingPlayer
from shoal.envs.gameboy.rammap import RamMap

KINDS = ("ram", "screen")
UNPAID = dict.fromkeys((event.name for event in RamMap.from_yaml(RAM_MAP).events), 0.0)


def env_for(kind: str) -> GameBoyEnv:
    return GameBoyEnv(novelty=kind, rewards=UNPAID)


def returns(kind: str, player: Player, seed: int) -> tuple[float, int, int]:
    """The return of an episode, and in how many rooms and cells it has been."""
    env = env_for(kind)
    env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(player.act(env))
        total, ended = total + reward, terminated or truncated
    rooms, cells = env.peek("rooms"), env.peek("explored")
    env.close()
    assert isinstance(rooms, int)
    assert isinstance(cells, int)
    return total, rooms.bit_count(), cells


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_how_many_rooms_or_cells_are_new(kind: str, seed: int) -> None:
    for player in (RandomPlayer(seed), ExploringPlayer()):
        total, rooms, cells = returns(kind, player, seed)
        assert total == (cells if kind == "ram" else rooms) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_explorer_gets_several_times_what_chance_gets(kind: str) -> None:
    explorer = np.mean([returns(kind, ExploringPlayer(), seed)[0] for seed in range(4)])
    chance = np.mean([returns(kind, RandomPlayer(seed), seed)[0] for seed in range(4)])
    assert explorer > 2 * chance


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_beside_a_crab_is_worth_nothing(kind: str) -> None:
    env, player = env_for(kind), WaitingPlayer()
    env.reset(seed=0)
    while not env.peek("enemy_here"):
        env.step(player.act(env))
    crab: set[Any] = set()
    for _ in range(300):
        _, reward, *_ = env.step(player.act(env))
        crab.add((env.peek("enemy_x"), env.peek("enemy_y")))
        assert reward == 0
    assert len(crab) > 5, "it has to walk about, else this tells nothing"
    env.close()


def test_without_a_map_a_room_is_new_once() -> None:
    env = GameBoyEnv(ROM, observation="pixels")
    env.reset(seed=0)
    there = [env.step(5)[1] for _ in range(5)]
    back = [env.step(6)[1] for _ in range(3)]
    again = [env.step(5)[1] for _ in range(3)]
    assert there == [0, 0, 0, 0, 1]
    assert back + again == [0] * 6
    env.reset(seed=0)
    assert [env.step(5)[1] for _ in range(5)] == there, "each episode is new"
    env.close()


def test_values_are_new_where_the_map_says_what_a_place_is(tmp_path: Path) -> None:
    """`frame` is observed as well, and another one in each step."""
    path = tmp_path / "map.yaml"
    frame = RamMap.from_yaml(RAM_MAP).field("frame").address
    path.write_text(
        "fields:\n  x: {address: 0xC005}\n"
        f"  frame: {{address: {frame}, bytes: 2, scale: 999}}\nnovel: [x]\n"
    )
    env = GameBoyEnv(ROM, path, rewards={"novelty": 0.25})
    for _ in range(2):
        env.reset(seed=0)
        rewards = [env.step(action)[1] for action in (0, 6, 6, 5, 5, 5, 4)]
        assert rewards == [0, 0.25, 0.25, 0, 0, 0.25, 0]
    env.close()


def test_a_map_that_says_nothing_of_places_leaves_pictures(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("fields: {x: {address: 0xC005, scale: 9}}")
    env = GameBoyEnv(ROM, path)
    env.reset(seed=0)
    assert [env.step(5)[1] for _ in range(5)] == [0, 0, 0, 0, 1]
    env.close()
    with pytest.raises(shoal.ConfigError, match=r"Name such fields in it, as in 'novel: \[room"):
        GameBoyEnv(ROM, path, novelty="ram")


def picture(num_changed: int, shade: int = 255) -> Any:
    """A black one in which so many tiles have another shade."""
    frame = np.zeros(SCREEN, np.uint8)
    for at in range(num_changed):
        row, column = divmod(at, SCREEN[1] // 8)
        frame[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = shade
    return frame


def test_a_picture_is_new_from_one_tile_beyond_the_tolerance_on() -> None:
    assert np.count_nonzero(tiles(picture(7))) == 7
    sights = Novelty("screen", [])
    sights.start((), picture(0))
    assert not sights.is_new((), picture(SCREEN_TOLERANCE))
    assert sights.is_new((), picture(SCREEN_TOLERANCE + 1))
    assert not sights.is_new((), picture(SCREEN_TOLERANCE + 1))


def test_a_picture_is_compared_with_all_before_not_only_with_the_last() -> None:
    sights = Novelty("screen", [])
    sights.start((), picture(FLOOR))
    seen = [sights.is_new((), picture(count)) for count in range(0, 360, 5)]
    again = [sights.is_new((), picture(count)) for count in range(0, 360, 5)]
    assert sum(seen) == (360 - 1) // (SCREEN_TOLERANCE + 1) - 1
    assert not any(again)
    assert len(sights.known) == 1 + sum(seen)
