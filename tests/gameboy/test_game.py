"""Are the rules of Tidekeep kept? Asked of the game as it runs on the emulator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gameboy.driving import (
    FLOOR,
    GATE,
    HEIGHT,
    KEY,
    MOVES,
    PAVED,
    PEARL,
    ROCK,
    RUPEE,
    WEED,
    WIDTH,
    Game,
)
from shoal.envs.gameboy import ACTIONS, GameBoyEnv, RamMap
from shoal.envs.gameboy.assembler import assemble
from shoal.envs.gameboy.build import GAME, build, write_table
from shoal.envs.gameboy.fields import Encoder, Reader
from shoal.envs.gameboy.players import RandomPlayer, ScriptedPlayer, play

LEVELS = range(1, 400, 7)


@pytest.fixture
def game() -> Iterator[Game]:
    game = Game()
    yield game
    game.env.close()


# --- the build ---------------------------------------------------------------


def test_the_rom_and_its_map_are_built_from_the_sources() -> None:
    for name, content in build().items():
        assert (GAME / name).read_bytes() == content, f"{name}: run `make rom`"


# --- walking -----------------------------------------------------------------


def expected_walk(game: Game, button: str) -> tuple[int, int, int, int]:
    """Room, column, row and rupees after a step, by the rules as they are written down."""
    room, x, y = game.at
    new_x, new_y = x + MOVES[button][0], y + MOVES[button][1]
    if not 0 <= new_x < WIDTH:
        return room + MOVES[button][0], new_x % WIDTH, y, game["rupees"]
    if not 0 <= new_y < HEIGHT:
        return room + 3 * MOVES[button][1], x, new_y % HEIGHT, game["rupees"]
    kind = game.cell(new_x, new_y)
    if kind >= ROCK and not (kind == GATE and game["key"]):
        return room, x, y, game["rupees"]
    return room, new_x, new_y, game["rupees"] + (kind == RUPEE)


def test_every_step_of_a_long_walk_is_as_the_rules_say() -> None:
    blocked, rooms = 0, set()
    for level in (1, 2, 3):
        game, chance = Game(level), random.Random(level)
        blocked += walk(game, chance, rooms)
    assert blocked > 100
    assert rooms >= {0, 1, 3, 4, 5}


def walk(game: Game, chance: random.Random, rooms: set[int]) -> int:
    """Until the end, or long enough; how often something was in the way."""
    blocked = 0
    for _ in range(1000):
        game["hearts"] = 3
        button = chance.choice(list(MOVES)) if chance.random() < 0.3 else button_of(game, chance)
        before, expected = game.at, expected_walk(game, button)
        game.press(button)
        assert (*game.at, game["rupees"]) == expected
        assert game["moving"] == game["freeze"] == 0, "a step of four frames is a whole one"
        assert (game["pixel_x"], game["pixel_y"]) == (16 * game["x"], 16 * game["y"])
        blocked += game.at == before
        rooms.add(game["room"])
        if game["state"]:
            break
    return blocked


def button_of(game: Game, chance: random.Random) -> str:
    """On in the direction of the hero's face, or by chance."""
    return list(MOVES)[game["facing"]] if chance.random() < 0.8 else chance.choice(list(MOVES))


def test_walls_block_and_only_turn_the_hero(game: Game) -> None:
    game.press("down", "down")
    assert game.at == (4, 4, 6)
    assert game.cell(4, 7) == ROCK
    game.press("down")
    assert game.at == (4, 4, 6)
    game.press("left")
    assert game.at == (4, 4, 6), "coral is no way, either"
    assert game["facing"] == 2


def test_no_button_leaves_the_hero_where_it_is(game: Game) -> None:
    game.press("none", "a", "b", "none")
    assert game.at == (4, 4, 4)


# --- key, gate, pearl ----------------------------------------------------------


def walk_to_the_gate(game: Game) -> None:
    game.press(*["up"] * 9, *["right"] * 4)
    assert game.at == (1, 8, 3)


def test_the_gate_opens_only_with_the_key(game: Game) -> None:
    walk_to_the_gate(game)
    assert game.press("right") == {}
    assert game.at == (1, 8, 3)
    assert game["door"] == 0
    game["key"] = 1
    info = game.press("right")
    assert info["gate"] == 1
    assert game.at == (1, 9, 3)
    assert (game["door"], game["key"]) == (1, 0)
    assert game.cell(9, 3) == game.cell(9, 4) == PAVED
    game.press("right")
    assert game.at == (2, 0, 3)
    game.press("left")
    assert game.at == (1, 9, 3)
    assert game.cell(9, 3) == PAVED, "an open gate stays open"


def test_the_key_is_taken_by_walking_onto_it() -> None:
    for level in LEVELS[:6]:
        game, player = Game(level), ScriptedPlayer()
        room = game["key_room"]
        while not game["key"]:
            assert game["key_room"] == room
            info = game.press(ACTIONS[player.act(game.env)])
        assert info["key"] == 1
        assert game["room"] == room
        assert game["key_room"] == 6
        assert not game["key_here"]
        assert game.cell(game["x"], game["y"]) == FLOOR


def test_the_pearl_wins_and_ends_the_episode() -> None:
    game, player = Game(5), ScriptedPlayer()
    while not (game.last and game.last[2]):
        info = game.press(ACTIONS[player.act(game.env)])
    assert info["goal"] == 1
    assert (game["state"], game["room"]) == (1, 2)
    before = game.at, game["frame"]
    game.press("left", "right", "up", "down", "a", "b")
    assert game.at == before[0], "nothing moves any more"
    assert game["frame"] != before[1]


def test_start_begins_another_game_when_one_is_over() -> None:
    game = Game(5)
    console = game.env.console
    assert console is not None
    console.hold("start")
    console.advance(8, draw=False)
    assert game.at == (4, 4, 4)
    assert game["rooms"] == 1 << 4, "while playing it does nothing"
    game.press("left", "left")
    game["state"] = 1
    console.hold("start")
    console.advance(8, draw=False)
    assert (game["state"], game["hearts"], game["rupees"]) == (0, 3, 0)
    assert game.at == (4, 4, 4)
    assert game["seed"] != 5


# --- rupees ------------------------------------------------------------------


def test_a_rupee_counts_once() -> None:
    game, player = Game(9), ScriptedPlayer(rupees=True)
    while not game["rupees"]:
        info = game.press(ACTIONS[player.act(game.env)])
    assert info["rupees"] == 1
    x, y = game["x"], game["y"]
    assert game.cell(x, y) == FLOOR
    back = {"up": "down", "down": "up", "left": "right", "right": "left"}
    away = next(b for b, (dx, dy) in MOVES.items() if game.cell(x + dx, y + dy) in (FLOOR, WEED))
    assert "rupees" not in game.press(away)
    assert "rupees" not in game.press(back[away])
    assert game["rupees"] == 1


def test_a_taken_rupee_does_not_come_back_with_the_room(game: Game) -> None:
    game.press(*["left"] * 5)
    here = [game["rupee_a_here"], game["rupee_b_here"]]
    assert here == [1, 1]
    player = ScriptedPlayer(rupees=True)
    while game["rupees"] == 0:
        game["hearts"] = 3
        game.press(ACTIONS[player.act(game.env)])
    left = game["left"][3] & 3
    assert left in (1, 2)
    while game["room"] == 3:
        game["hearts"] = 3
        game.press(ACTIONS[ScriptedPlayer().act(game.env)])
    assert game["left"][3] & 3 == left


# --- crabs -------------------------------------------------------------------


def test_a_crab_hurts_and_then_the_hero_is_safe_for_a_while(game: Game) -> None:
    game.go_to_crab()
    game["safe"] = 0
    game.put_crab(9, 4)
    assert game.press("none") == {"damage": 1}
    assert (game["hearts"], game["damage"]) == (2, 1)
    safe_steps = 0
    while game["safe"] > 4:
        game.put_crab(9, 4)
        assert game.press("none") == {}
        safe_steps += 1
    assert safe_steps >= 14
    game.put_crab(9, 4)
    game.press("none")
    game.put_crab(9, 4)
    game.press("none")
    assert (game["hearts"], game["damage"]) == (1, 2)


def test_without_hearts_the_game_is_lost(game: Game) -> None:
    game.go_to_crab()
    for hearts in (2, 1, 0):
        game["safe"] = 0
        game.put_crab(9, 4)
        info = game.press("none")
        assert game["hearts"] == hearts
    assert info == {"damage": 1, "death": 1}
    assert game.last[2], "terminated"
    assert game["state"] == 2


def test_a_bubble_keeps_the_crab_off(game: Game) -> None:
    game.go_to_crab()
    game["safe"] = 0
    for _ in range(4):
        game.put_crab(9, 4)
        assert game.press("b") == {}
    assert game["hearts"] == 3
    assert game.press("none") == {"damage": 1}


@pytest.mark.parametrize("button", MOVES)
def test_the_fork_drives_away_a_crab_ahead(button: str) -> None:
    game = Game()
    game.go_to_crab()
    game.press("left", "left")
    x, y = game["x"], game["y"]
    game["facing"] = list(MOVES).index(button)
    game.put_crab(x - MOVES[button][0], y - MOVES[button][1])
    assert game.press("a") == {}, "behind the hero it is safe from the fork"
    game.put_crab(x + MOVES[button][0], y + MOVES[button][1])
    assert game.press("a") == {"foes": 1}
    assert not game["enemy_here"]
    assert game["left"][3] & 16 == 0
    game.press("right", "right", "right", "left")
    assert game.at == (3, 9, 4)
    assert not game["enemy_here"], "and it does not come back"


def test_crabs_walk_on_floor_only_one_cell_at_a_time(game: Game) -> None:
    game.go_to_crab()
    places, before = set(), (game["enemy_x"], game["enemy_y"])
    for _ in range(400):
        game["hearts"] = 3
        game.press("b")
        now = game["enemy_x"], game["enemy_y"]
        assert abs(now[0] - before[0]) + abs(now[1] - before[1]) <= 1
        assert game.cell(*now) in (FLOOR, WEED)
        assert abs(game["enemy_pixel_x"] - 16 * now[0]) <= 16
        assert abs(game["enemy_pixel_y"] - 16 * now[1]) <= 16
        if game["enemy_step"] < 8:
            assert (game["enemy_pixel_x"], game["enemy_pixel_y"]) == (16 * now[0], 16 * now[1])
        places.add(now)
        before = now
    assert len(places) > 10


# --- levels ------------------------------------------------------------------


def test_a_level_decides_where_everything_is() -> None:
    env = GameBoyEnv()
    found = {}
    for level in LEVELS:
        env.reset(options={"level": level})
        found[level] = (env.peek("key_room"), tuple(env.peek("spots")))  # type: ignore[arg-type]
    assert len(set(found.values())) > len(found) * 0.95
    assert {room for room, _ in found.values()} == {0, 3, 5}
    for level in (LEVELS[0], LEVELS[-1]):
        env.reset(options={"level": level})
        assert found[level] == (env.peek("key_room"), tuple(env.peek("spots")))  # type: ignore[arg-type]
    env.close()


def test_things_lie_apart_and_away_from_doorways() -> None:
    rooms: set[int] = set()
    for level in LEVELS[:12]:
        game, player = Game(level), ScriptedPlayer()
        while not game["state"]:
            things = {
                name: (game[f"{name}_x"], game[f"{name}_y"])
                for name in ("rupee_a", "rupee_b", "key", "pearl")
                if game[f"{name}_here"]
            }
            assert len(set(things.values())) == len(things)
            for name, (x, y) in things.items():
                assert game.cell(x, y) == {"key": KEY, "pearl": PEARL}.get(name, RUPEE)
                around = {game.cell(x + right, y + down) for right, down in MOVES.values()}
                assert not around & {PAVED, GATE}
            rooms.add(game["room"])
            game["hearts"] = 3
            game.press(ACTIONS[player.act(game.env)])
    assert rooms == set(range(6))


def test_level_0_is_played_like_level_1() -> None:
    env = GameBoyEnv()
    seen = []
    for level in (0, 1):
        env.reset(options={"level": level})
        seen.append([env.peek("spots"), env.peek("rng")])
    assert seen[0] == seen[1]
    env.close()


# --- the screen ----------------------------------------------------------------


def test_the_line_above_the_room_shows_hearts_rupees_and_key(game: Game) -> None:
    console = game.env.console
    assert console is not None

    def line() -> list[int]:
        console.advance(2, draw=False)
        both = [console.memory[start : start + 20] for start in (0x9800, 0x9C00)]
        assert both[0] == both[1]
        return both[0]  # type: ignore[no-any-return]

    full = line()
    assert full[1] == full[2] == full[3] != full[4]
    game.go_to_crab()
    game["safe"] = 0
    game.put_crab(9, 4)
    game.press("none")
    hurt = line()
    assert hurt[1] == hurt[2] == full[1] != hurt[3]
    game["rupees"], game["key"] = 11, 1
    game["safe"] = 0
    game.put_crab(9, 4)
    game.press("none")
    rich = line()
    zero = full[11]
    assert [rich[10] - zero, rich[11] - zero] == [1, 1]
    assert rich[18] != full[18]


def test_the_picture_shows_the_room_that_memory_says() -> None:
    """Each cell of the map on the screen is drawn with the four tiles of its kind."""
    game, player = Game(7, render_mode="rgb_array"), ScriptedPlayer(rupees=True)
    console = game.env.console
    assert console is not None
    rooms = set()
    while not game["state"]:
        game["hearts"] = 3
        game.press(ACTIONS[player.act(game.env)])
        console.hold("")
        console.advance(4, draw=False)  # what has changed is drawn in the next vertical blank
        cells = game["cells"]
        second = console.memory[0xFF40] & 0x08
        start = (0x9C00 if second else 0x9800) + 64
        for y in range(HEIGHT):
            upper = console.memory[start + 64 * y : start + 64 * y + 20]
            lower = console.memory[start + 64 * y + 32 : start + 64 * y + 52]
            for x in range(WIDTH):
                first = 32 + 4 * cells[y * WIDTH + x]
                assert upper[2 * x : 2 * x + 2] == [first, first + 2]
                assert lower[2 * x : 2 * x + 2] == [first + 1, first + 3]
        rooms.add(game["room"])
    assert len(rooms) >= 4


def test_the_hero_is_seen_where_it_is(game: Game) -> None:
    game = Game(3, render_mode="rgb_array")
    before = game.env.render()
    game.press("right")
    after = game.env.render()
    assert before is not None
    assert after is not None
    changed = np.argwhere((before != after).any(axis=2))
    assert changed[:, 0].min() >= 16 + 64
    assert changed[:, 0].max() < 16 + 80
    assert changed[:, 1].min() >= 64
    assert changed[:, 1].max() < 96
    assert (changed[:, 1] >= 80).any()


def test_no_frame_is_ever_late() -> None:
    """The game does all its work within each frame, also when rooms are drawn."""
    game, chance = Game(11), np.random.default_rng(11)
    for _ in range(1500):
        before = game["frame"]
        game["hearts"] = 3
        game.press(ACTIONS[chance.integers(7)])
        assert (game["frame"] - before) % 65536 == 4


def test_sprites_are_copied_before_the_room_is_drawn() -> None:
    """While the line above the room is drawn: later, they would be torn on a real screen."""
    game, chance = Game(11), np.random.default_rng(12)
    console = game.env.console
    assert console is not None
    lines: list[int] = []

    def note(_: object) -> None:
        if console.memory[0xFF44] < 144 and not game["freeze"]:  # a new room may take its time
            lines.append(console.memory[0xFF44])

    after = assemble(GAME / "main.asm", "TIDEKEEP").symbols["LookAround"]
    console._pyboy.hook_register(0, after, note, None)
    for _ in range(600):
        game["hearts"] = 3
        game.press(ACTIONS[chance.integers(7)])
    assert len(lines) > 1000
    assert max(lines) < 16


# --- players -------------------------------------------------------------------


def test_the_scripted_player_wins_from_every_seed() -> None:
    env = GameBoyEnv()
    scores = play(env, ScriptedPlayer(), range(60))
    assert all(score.won for score in scores)
    assert max(score.num_steps for score in scores) < 200
    random_scores = play(env, RandomPlayer(0), range(10))
    assert max(score.reward for score in random_scores) < min(score.reward for score in scores)
    richer = play(env, ScriptedPlayer(rupees=True), range(20))
    assert all(score.won for score in richer)
    assert np.mean([s.reward for s in richer]) > np.mean([s.reward for s in scores[:20]])
    env.close()


# --- the page ------------------------------------------------------------------


def test_the_documented_ram_map_and_rewards_are_the_real_ones() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gameboy.md").read_text(encoding="utf-8")
    assert write_table() in page, "see `python -m shoal.envs.gameboy.build --table`"
    ram_map = RamMap.from_yaml(GAME / "tidekeep.yaml")
    for event in ram_map.events:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{event.name}` | "))
        assert row.endswith(f"| {event.reward:g} |".replace("-", "−"))
    assert f"Box(0, 1, ({Encoder(Reader(ram_map.fields).fields).width},), float32)" in page
