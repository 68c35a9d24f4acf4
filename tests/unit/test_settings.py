"""Are settings taken as they were meant, from files, Python and flags, and refused if not?"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.training.settings import (
    dump_yaml,
    from_mapping,
    load_yaml,
    override,
    parse,
    to_mapping,
)


class Shape(Enum):
    ROUND = "round"
    SQUARE = "square"


@dataclass(frozen=True, slots=True)
class Learning:
    """How the network learns."""

    learning_rate: float = 3e-4
    """Step size of Adam."""
    batch_size: int = 64
    """Samples in a batch."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden
    layers, from first to last."""
    window: tuple[int, float] = (1, 0.5)
    clip_range: float | None = 0.2
    """How far the policy may move; None for no limit."""
    activation: Literal["relu", "tanh"] = "tanh"
    """What is between layers."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}.")


@dataclass(frozen=True, slots=True)
class World:
    """Where it learns."""

    env: str = "CartPole-v1"
    """A Gymnasium id, or module:factory."""
    n_envs: int = 1
    """Environments at once."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """What each environment is made with."""
    shape: Shape = Shape.ROUND
    start: Literal["fork", "spawn"] | None = None
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.n_envs < 1:
            raise ConfigError(f"n_envs must be at least 1, got {self.n_envs}.")


@dataclass(frozen=True, slots=True)
class Run:
    """Everything about a run."""

    seed: int = 0
    """The same seed gives the same run."""
    folder: Path = Path("runs")
    """Where its files go."""
    resume_from: Path | None = None
    calibrate: bool = True
    """Measure first."""
    learning: Learning = field(default_factory=lambda: Learning(learning_rate=1e-3))
    """The learner's own."""
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        if self.learning.batch_size % self.world.n_envs:
            raise ConfigError("batch_size must be a multiple of n_envs.")


@dataclass(frozen=True, slots=True)
class Demanding:
    steps: int
    """How many."""
    learning: Learning
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Several(Demanding):
    """Kinds that could be taken for each other."""

    size: Literal[1, 2] = 1
    """One or two."""
    amount: float | int | str = 0.0


def mistake(cls: type[Any], mapping: Any, place: str = "run.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(cls, mapping, place)
    return str(caught.value)


# --- mappings ------------------------------------------------------------------------------------


def test_settings_stand_in_their_group_or_at_the_top() -> None:
    wanted = Run(learning=Learning(1e-3, 32), world=World(n_envs=4))
    assert from_mapping(Run, {"batch_size": 32, "n_envs": 4}, "") == wanted
    nested = {"learning": {"batch_size": 32}, "world": {"n_envs": 4}}
    assert from_mapping(Run, nested, "") == wanted
    assert from_mapping(Run, {"learning": {"batch_size": 32}, "n_envs": 4}, "") == wanted


def test_what_is_not_given_is_as_the_outermost_default_has_it() -> None:
    assert from_mapping(Run, {}, "").learning.learning_rate == 1e-3
    assert from_mapping(Run, {"batch_size": 8}, "").learning == Learning(1e-3, 8)


def test_an_unknown_key_is_told_with_its_place_and_the_nearest() -> None:
    assert mistake(Run, {"n_env": 8}, "configs/boxjump.yaml") == (
        "unknown key 'n_env' in configs/boxjump.yaml. Did you mean 'n_envs'?"
    )
    assert "unknown key 'learning.batch_sise' in run.yaml. Did you mean 'batch_size'?" in mistake(
        Run, {"learning": {"batch_sise": 8}}
    )
    assert "unknown key '1'" in mistake(Run, {1: 2})


def test_a_setting_of_another_group_is_unknown_in_this_one() -> None:
    assert "unknown key 'world.batch_size'" in mistake(Run, {"world": {"batch_size": 8}})


def test_a_setting_that_is_given_twice_is_refused() -> None:
    told = mistake(Run, {"batch_size": 8, "learning": {"batch_size": 16}})
    assert told == ("learning.batch_size in run.yaml is given a second time. Keep one of the two.")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("seed", True, "seed in run.yaml must be a whole number, got True."),
        ("seed", 1.0, "must be a whole number, got 1.0."),
        ("seed", "1", "must be a whole number, got '1'."),
        ("seed", None, "must be a whole number, got None."),
        ("learning_rate", "high", "must be a number, got 'high'."),
        ("learning_rate", "0.5", "must be a number, got '0.5'."),
        ("learning_rate", "nan", "must be a number, got 'nan'."),
        ("learning_rate", False, "must be a number, got False."),
        ("learning_rate", 10**400, "must be a number, got 1000"),
        ("clip_range", "x", "must be a number or null, got 'x'."),
        ("calibrate", 1, "must be true or false, got 1."),
        ("calibrate", "yes", "must be true or false, got 'yes'."),
        ("folder", 3, "must be a path, got 3."),
        ("env", 3, "must be text, got 3. Put it in quotes."),
        ("hidden", 64, "must be a list (each a whole number), got 64."),
        ("hidden", "64", "must be a list"),
        ("hidden", [64, True], "got [64, True]."),
        ("window", [1], "must be a list of 2 (a whole number, a number), got [1]."),
        ("tags", "abc", "must be a list (each text), got 'abc'."),
        ("activation", "rleu", "activation in run.yaml is 'rleu'. Did you mean 'relu'?"),
        ("activation", 7, "Choose one of 'relu', 'tanh'."),
        ("start", "frok", "start in run.yaml is 'frok'. Did you mean 'fork'?"),
        ("shape", "roud", "Did you mean 'round'?"),
        ("env_kwargs", [1], "must be a mapping of names to plain values, got [1]."),
        ("env_kwargs", {1: 2}, "must be a mapping of names to plain values"),
        ("env_kwargs", {"a": object()}, "must be a mapping of names to plain values"),
        ("world", None, "world in run.yaml must hold settings by name, got None."),
        ("world", 3, "must hold settings by name, got 3."),
    ],
)
def test_a_wrong_type_is_told(key: str, value: Any, says: str) -> None:
    assert says in mistake(Run, {key: value})


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        ("learning_rate", 1, 1.0),
        ("learning_rate", "3e-4", 3e-4),
        ("learning_rate", "1.5E3", 1500.0),
        ("learning_rate", np.float32(0.5), 0.5),
        ("seed", np.int64(3), 3),
        ("clip_range", None, None),
        ("clip_range", 1, 1.0),
        ("folder", "a/b", Path("a/b")),
        ("resume_from", None, None),
        ("hidden", [1, 2, 3], (1, 2, 3)),
        ("hidden", [], ()),
        ("window", [1, 2], (1, 2.0)),
        ("tags", ("a", "b"), ["a", "b"]),
        ("shape", "square", Shape.SQUARE),
        ("shape", Shape.SQUARE, Shape.SQUARE),
        ("start", "spawn", "spawn"),
        ("env_kwargs", {"a": (1, {"b": None})}, {"a": [1, {"b": None}]}),
        ("env_kwargs", {"a": "3e-4", "b": 1}, {"a": "3e-4", "b": 1}),
    ],
)
def test_what_can_only_mean_one_thing_is_taken(key: str, value: Any, held: Any) -> None:
    config = from_mapping(Run, {key: value}, "")
    (found,) = [part[key] for part in (asdict(config), *nested(config)) if key in part]
    assert found == held
    assert type(found) is type(held)


def test_a_value_keeps_its_own_type_where_several_are_possible() -> None:
    for value in (3, 3.0, "3e-4", "3"):
        found = from_mapping(Several, {"steps": 1, "amount": value}, "").amount
        assert (type(found), found) == (type(value), value)
    assert "must be a number or a whole number or text, got True." in mistake(
        Several, {"steps": 1, "amount": True}
    )
    assert "size in run.yaml is True." in mistake(Several, {"steps": 1, "size": True})


def test_free_values_become_plain_ones() -> None:
    config = from_mapping(Run, {"env_kwargs": {"a": np.float32(0.5), "b": [np.int64(1)]}}, "")
    assert json.dumps(config.world.env_kwargs) == '{"a": 0.5, "b": [1]}'


def nested(config: Run) -> list[dict[str, Any]]:
    return [asdict(config.learning), asdict(config.world)]


def test_all_mistakes_are_told_at_once() -> None:
    told = mistake(Run, {"sed": 1, "learning": {"batch_size": "x"}, "n_envs": None})
    assert told.startswith("3 mistakes:\n- unknown key 'sed' in run.yaml.")
    assert "\n- learning.batch_size in run.yaml must be a whole number" in told
    assert "\n- n_envs in run.yaml must be" in told


def test_what_a_class_itself_refuses_is_told_with_the_place() -> None:
    told = mistake(Run, {"batch_size": 0, "n_envs": 0})
    assert "- run.yaml: batch_size must be at least 1, got 0." in told
    assert "- run.yaml: n_envs must be at least 1, got 0." in told
    assert mistake(Run, {"n_envs": 3}) == "run.yaml: batch_size must be a multiple of n_envs."


def test_what_has_no_default_must_be_given() -> None:
    assert "steps is missing in run.yaml." in mistake(Demanding, {"name": "a"})
    assert from_mapping(Demanding, {"steps": 3}, "") == Demanding(3, Learning())


# --- classes that cannot be ----------------------------------------------------------------------


@dataclass(frozen=True)
class Other:
    batch_size: int = 1


@dataclass(frozen=True)
class Twice:
    learning: Learning = field(default_factory=Learning)
    other: Other = field(default_factory=Other)


@dataclass(frozen=True)
class Taken:
    config: str = ""


@dataclass(frozen=True)
class Strange:
    call: Any = None


@dataclass(frozen=True)
class Deep:
    rows: tuple[tuple[int, ...], ...] = ()


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (Twice, r"Twice\.learning\.batch_size and Twice\.other\.batch_size have the same name"),
        (Taken, r"Taken\.config needs another name"),
        (Strange, r"Strange\.call is of type"),
        (Deep, r"Deep\.rows is of type"),
        (int, "must be a dataclass"),
    ],
)
def test_a_class_that_cannot_be_configured_is_a_type_error(cls: type[Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        from_mapping(cls, {}, "")


# --- override ------------------------------------------------------------------------------------


def test_override_finds_a_setting_in_its_group() -> None:
    config = Run(seed=3, world=World(env="Own-v0"))
    changed = override(config, learning_rate=0.5, hidden=[8])
    assert changed == replace(config, learning=Learning(0.5, hidden=(8,)))
    assert config == Run(seed=3, world=World(env="Own-v0")), "which is left as it was"


def test_override_takes_whole_groups() -> None:
    assert override(Run(), world=World(n_envs=4)) == Run(world=World(n_envs=4))
    assert override(Run(), world={"n_envs": 4}) == Run(world=World(n_envs=4))


def test_override_refuses_what_is_unknown_or_wrong() -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'lerning_rate'. Did you mean 'learning_r"):
        override(Run(), lerning_rate=0.5)
    with pytest.raises(ConfigError, match=r"^seed must be a whole number, got 'one'"):
        override(Run(), seed="one")
    with pytest.raises(ConfigError, match=r"^batch_size must be at least 1"):
        override(Run(), batch_size=0)


# --- files ---------------------------------------------------------------------------------------

LOOKS_ODD = ["", "yes", "No", "null", "~", "1", "1.5", "3e-4", "1e5", "0x1f", "1:30", "2020-01-01"]
LOOKS_ODD += [
    "a: b",
    "# no",
    "- x",
    " space ",
    "line\nbreak\n\n  more",
    "'",
    '"',
    "\\",
    "{}",
    "é\t☃",
]
LOOKS_ODD += [
    "\x85",
    "\u2028",
    "\x07",
    "<<",
    "=",
    "!x",
    "&a",
    "*a",
    "%",
    "@",
    "`",
    "|",
    ">",
    "a\n---\nb",
]

texts = st.text() | st.sampled_from(LOOKS_ODD)
free = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
configs = st.builds(
    Run,
    seed=st.integers(),
    folder=texts.map(Path),
    resume_from=st.none() | texts.map(Path),
    calibrate=st.booleans(),
    learning=st.builds(
        Learning,
        learning_rate=st.floats(allow_nan=False) | st.sampled_from([1e-5, 3e-4, 1e20]),
        batch_size=st.just(64),
        hidden=st.lists(st.integers(), max_size=4).map(tuple),
        window=st.tuples(st.integers(), st.floats(allow_nan=False)),
        clip_range=st.none() | st.floats(allow_nan=False),
        activation=st.sampled_from(["relu", "tanh"]),
    ),
    world=st.builds(
        World,
        env=texts,
        n_envs=st.just(1),
        env_kwargs=st.dictionaries(texts, free, max_size=3),
        shape=st.sampled_from(Shape),
        start=st.sampled_from(["fork", "spawn", None]),
        tags=st.lists(texts, max_size=3),
    ),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "run.yaml"


@effort(deadline=None, max_examples=150)
@given(config=configs)
def test_what_is_written_is_read_back_equal(config: Run, file: Path) -> None:
    file.write_bytes(dump_yaml(config).encode())
    assert load_yaml(Run, file) == config
    assert from_mapping(Run, to_mapping(config), "") == config


@pytest.mark.parametrize("text", LOOKS_ODD)
def test_text_that_looks_like_something_else_stays_text(text: str, file: Path) -> None:
    config = Run(world=World(env=text, env_kwargs={text: text}, tags=[text]))
    file.write_bytes(dump_yaml(config).encode())
    assert load_yaml(Run, file) == config


def test_a_file_explains_itself() -> None:
    text = dump_yaml(Run(learning=Learning(1e-5), world=World(env_kwargs={"a": [1, "x"]})))
    assert text.startswith("# The same seed gives the same run.\nseed: 0\n# Where its files go.\n")
    assert "\n# The learner's own.\nlearning:\n  # Step size of Adam.\n" in text
    assert "\n  learning_rate: 1.0e-05\n" in text
    assert "\n  # Widths of the hidden layers, from first to last.\n  hidden: [64, 64]\n" in text
    assert "\n# Where it learns.\nworld:\n" in text, "of a field without words, those of its class"
    assert "\n  env_kwargs: {a: [1, x]}\n" in text


def test_inherited_settings_are_explained_too() -> None:
    text = dump_yaml(Several(3, Learning()))
    assert text.startswith("# How many.\nsteps: 3\n# How the network learns.\nlearning:\n")
    assert text.endswith("\n# One or two.\nsize: 1\namount: 0.0\n")


def test_a_class_without_source_is_written_without_words(file: Path) -> None:
    cls = make_dataclass("Typed", [("seed", int, 1), ("learning", Learning, Learning())])
    file.write_text(dump_yaml(cls(seed=2)))
    assert load_yaml(cls, file) == cls(seed=2)
    assert file.read_text().startswith("seed: 2\n# How the network learns.\n")


def test_a_mapping_is_complete_ordered_and_plain() -> None:
    mapping = to_mapping(Run(folder=Path("a"), world=World(shape=Shape.SQUARE)))
    assert list(mapping) == ["seed", "folder", "resume_from", "calibrate", "learning", "world"]
    assert mapping["folder"] == "a"
    assert mapping["learning"]["hidden"] == [64, 64]
    assert mapping["world"]["shape"] == "square"
    assert yaml.safe_load(dump_yaml(Run())) == to_mapping(Run())


def test_a_mapping_shares_nothing_with_the_configuration() -> None:
    config = Run(world=World(env_kwargs={"a": [1]}))
    to_mapping(config)["world"]["env_kwargs"]["a"].append(2)
    assert config.world.env_kwargs == {"a": [1]}


def test_what_no_file_can_hold_is_not_written() -> None:
    with pytest.raises(ConfigError, match=r"^env_kwargs must be a mapping of names to plain value"):
        dump_yaml(Run(world=World(env_kwargs={"call": print})))


def test_numbers_as_people_write_them_are_read(file: Path) -> None:
    file.write_text("learning_rate: 3e-4\nclip_range: 1\n")
    config = load_yaml(Run, file)
    assert config.learning == Learning(3e-4, clip_range=1.0)


def test_a_mark_of_the_encoding_is_no_part_of_the_text(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfseed: 5\r\nenv: \xc3\xa9\r\n")
    assert load_yaml(Run, file) == Run(seed=5, world=World(env="é"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"- 1\n- 2\n", "must hold settings by name, as in `seed: 1`, got a list."),
        (b"seed\n", "got a str."),
        (b"seed: 1\nworld: [\n", "is not valid YAML: line 3, column 1: "),
        (b"seed: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
        (b"seed: 2020-13-45\n", "is not valid YAML: month must be in 1..12"),
        (b"seed: \xff\n", "is not text in UTF-8 (byte 6)."),
        (b"seed: \x07\n", "is not valid YAML"),
        (b"a: &a {b: *a}\n", "is not valid YAML"),
        (b"seed: 1\nseed: 2\n", "key 'seed' is given twice in"),
        (b"world:\n  env: a\n  env: b\n", "key 'world.env' is given twice in"),
        (b"world:\n  env: a\n  env: b\n", ": lines 2 and 3."),
        (b"seed: 1\nsed: 2\n", ", line 2. Did you mean 'seed'?"),
        (b"world:\n\n  n_envs: x\n", ", line 3 must be a whole number, got 'x'."),
        (b"env: 2020-01-01\n", "must be text, got datetime.date(2020, 1, 1). Put it in quotes."),
        (b"n_envs: 0\n", "run.yaml: n_envs must be at least 1, got 0."),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_place(
    content: bytes, says: str, file: Path
) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_yaml(Run, file)
    assert str(file) in str(caught.value)
    assert says in str(caught.value)


def test_keys_given_twice_and_other_mistakes_are_told_together(file: Path) -> None:
    file.write_text("seed: 1\nseed: 2\nsed: 3\n")
    with pytest.raises(ConfigError, match=r"^2 mistakes:\n- key 'seed'.*\n- unknown key 'sed'"):
        load_yaml(Run, file)


def test_one_mapping_can_take_up_another(file: Path) -> None:
    file.write_text("world: &w {env: a, tags: [b]}\n")
    assert load_yaml(Run, file).world.tags == ["b"]
    file.write_text("world:\n  <<: {env: a}\n  <<: {n_envs: 2}\n")
    assert load_yaml(Run, file).world == World(env="a", n_envs=2)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"there is no file {tmp_path / 'no.yaml'}")):
        load_yaml(Run, tmp_path / "no.yaml")
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path} is a folder")):
        load_yaml(Run, tmp_path)


# --- the command line ----------------------------------------------------------------------------


def parsed(*arguments: str, cls: type[Any] = Run) -> Any:
    return parse(cls, arguments, "shoal train", "Trains.")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, cls: type[Any] = Run) -> str:
    with pytest.raises(SystemExit) as caught:
        parsed(*arguments, cls=cls)
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", told.err).split())


def test_without_arguments_all_is_as_the_class_has_it() -> None:
    assert parsed() == Run()


def test_flags_have_no_prefix_and_take_dashes_and_underscores() -> None:
    wanted = Run(world=World(n_envs=4), learning=Learning(0.5))
    assert parsed("--n-envs", "4", "--learning-rate", "0.5") == wanted
    assert parsed("--n_envs", "4", "--learning_rate=5e-1") == wanted


def test_each_kind_has_its_flag() -> None:
    config = parsed(
        *("--seed", "-3", "--folder", "a/b", "--no-calibrate", "--clip-range", "None"),
        *("--hidden", "8", "16", "--window", "2", "0.5", "--activation", "relu"),
        *("--env", "1", "--shape", "square", "--start", "fork", "--tags", "x", "3"),
    )
    assert config == Run(
        seed=-3,
        folder=Path("a/b"),
        calibrate=False,
        learning=Learning(1e-3, 64, (8, 16), (2, 0.5), None, "relu"),
        world=World(env="1", shape=Shape.SQUARE, start="fork", tags=["x", "3"]),
    )
    assert parsed("--no-calibrate", "--calibrate").calibrate is True


def test_free_keywords_are_literals_or_else_text() -> None:
    given_words = ["a=1", "b=0.5", "c=True", "d=[1, 'x']", "e=(1, 2)", "f=word", "g=a=b", "h="]
    assert parsed("--env-kwargs", *given_words).world.env_kwargs == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": [1, "x"],
        "e": [1, 2],
        "f": "word",
        "g": "a=b",
        "h": "",
    }


def test_flags_win_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    file.write_text("seed: 1\nn_envs: 4\nenv_kwargs: {a: 1, b: 2}\nlearning: {hidden: [8]}\n")
    config = parsed("--config", str(file), "--seed", "2")
    assert config == Run(
        seed=2,
        learning=Learning(1e-3, hidden=(8,)),
        world=World(n_envs=4, env_kwargs={"a": 1, "b": 2}),
    )
    assert parsed(f"--config={file}", "--env-kwargs", "c=3").world.env_kwargs == {"c": 3}
    assert parsed("--env-kwargs", "--config", str(file)).world.env_kwargs == {}


def test_flags_can_mend_what_a_file_alone_would_not_allow(file: Path) -> None:
    file.write_text("n_envs: 3\n")
    with pytest.raises(ConfigError, match="multiple of n_envs"):
        load_yaml(Run, file)
    assert parsed("--config", str(file), "--batch-size", "9").world.n_envs == 3


def test_a_file_may_leave_to_flags_what_has_no_default(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("name: a\n")
    wanted = Demanding(3, Learning(), "a")
    assert parsed("--config", str(file), "--steps", "3", cls=Demanding) == wanted
    assert "--steps" in refused(capsys, "--config", str(file), cls=Demanding)


def test_help_is_grouped_explained_and_shows_the_defaults_of_now(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("n_envs: 16\nenv_kwargs: {a: 1}\n")
    with pytest.raises(SystemExit) as caught:
        parsed("--config", str(file), "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "Trains." in out
    assert "--config FILE" in out
    assert re.search(r"learning options[\s\S]*The learner's own\.[\s\S]*--learning-rate FLOAT", out)
    assert re.search(r"Step size of Adam\.\s+\(default: 0\.001\)", out)
    assert re.search(r"world options[\s\S]*Where it learns\.[\s\S]*--n-envs INT", out)
    assert re.search(r"Environments at once\.\s+\(default: 16\)", out)
    assert re.search(r"--env-kwargs \[NAME=VALUE[\s\S]*\(default: a=1\)", out)
    assert "--calibrate, --no-calibrate" in out
    assert "learning.learning" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lerning-rate", "1"], "--learning-rate"),
        (["--n_env", "1"], "--n-envs"),
        (["--seed", "x"], "--seed"),
        (["--seed"], "--seed"),
        (["--shape", "oval"], "round"),
        (["--env-kwargs", "a"], "'a' must be name=value."),
        (["--env-kwargs", "a=1", "a=2"], "a name is given twice: a=1 a=2."),
        (["--n-envs", "0"], "shoal train: n_envs must be at least 1, got 0."),
        (["--n-envs", "3"], "shoal train: batch_size must be a multiple of n_envs."),
        (["--config"], "--config"),
        (["--config", "no.yaml"], "shoal train: there is no file no.yaml."),
        (["word"], "word"),
    ],
)
def test_wrong_usage_exits_with_2_and_is_told(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *arguments)


def test_mistakes_in_the_file_are_told_by_the_command_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("seed: 1\nn_env: 2\n")
    told = refused(capsys, "--config", str(file))
    assert f"unknown key 'n_env' in {file}, line 2. Did you mean 'n_envs'?" in told


def test_arguments_are_those_of_the_process_if_none_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--seed", "9"])
    assert parse(Run).seed == 9


# --- what is not installed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("tyro", lambda: parse(Run, [])),
        ("yaml", lambda: dump_yaml(Run())),
        ("yaml", lambda: load_yaml(Run, "run.yaml")),
    ],
)
def test_what_is_not_installed_is_told_with_the_command_that_installs_it(
    package: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=re.escape('pip install "shoal-rl[train]"')):
        call()
