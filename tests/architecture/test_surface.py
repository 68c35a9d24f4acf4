"""Are the public names those of the design, and does the code keep the rules of the house?"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
import shoal.testing
import shoal.vector

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "shoal"
FILES = sorted(SOURCE.rglob("*.py"))

ERRORS = {
    "ShoalError",
    "ConfigError",
    "ContractError",
    "ClosedError",
    "WorkerError",
    "EnvRaised",
    "WorkerDied",
    "WorkerTimeout",
}
# Section 3 of the design.
AGENTS = {"make_team", "TeamVectorEnv", "make_turns", "TurnVectorEnv", "Turn"}
ON_USE = {"train", "load", "evaluate"} | AGENTS
"""What needs torch, or is for several agents, and is imported when it is asked for."""
BUILT = {"make", "VectorEnv", "Batch", "Faults", "errors"} | ERRORS | ON_USE
SEVERAL = {
    "FreeTeamVectorEnv",
    "FreeTurnVectorEnv",
    "rows_of_team",
    "team_proxies",
    "turn_proxies",
}
TESTING = {"check_env", "check_vector_env", "CountingWorld", "CountingRecord", "decode", "Saboteur"}


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def each_file(*, outside: str = "") -> pytest.MarkDecorator:
    """The test, for every file of the library (that is not in this folder)."""
    chosen = [file for file in FILES if file.relative_to(SOURCE).parts[0] != outside]
    return pytest.mark.parametrize("file", chosen, ids=lambda file: str(file.relative_to(SOURCE)))


# --- names that users rely on ------------------------------------------------


def test_public_names_are_those_of_the_design_and_no_others() -> None:
    assert set(shoal.__all__) == BUILT
    assert set(dir(shoal)) >= BUILT  # what is imported on use is completed by shells, too
    visible = {name for name in vars(shoal) if not name.startswith("_")}
    modules = {name for name in visible if inspect.ismodule(getattr(shoal, name))}
    assert visible - modules == BUILT - {"errors"} - ON_USE
    assert modules <= {
        "errors",
        "engine",
        "envs",
        "layout",
        "seeding",
        "testing",
        "vector",
        "measure",
        "cli",
        "extras",
        "rollout",
        "algos",
        "monitor",
        "training",
        "compat",
    }


def test_what_is_for_several_agents_is_at_hand_and_imported_on_use() -> None:
    for name in SEVERAL:
        assert getattr(shoal.vector, name).__name__ == name
    assert set(shoal.vector.__all__) == SEVERAL <= set(dir(shoal.vector))
    with pytest.raises(AttributeError, match="no attribute 'rows'"):
        _ = shoal.vector.rows


def test_every_public_name_explains_itself() -> None:
    for module in (shoal, shoal.testing, shoal.vector):
        for name in module.__all__:
            assert (inspect.getdoc(getattr(module, name)) or "").strip(), name


def test_what_is_for_testing_is_public_too() -> None:
    assert set(shoal.testing.__all__) >= TESTING


def test_make_has_the_keywords_of_the_design_in_its_order() -> None:
    parameters = inspect.signature(shoal.make).parameters
    assert list(parameters) == [
        "env",
        "num_envs",
        "backend",
        "num_workers",
        "start_method",
        "autoreset",
        "batch_size",
        "copy",
        "seed",
        "env_kwargs",
        "wrappers",
        "on_failure",
        "step_timeout_s",
        "faults",
    ]
    keywords = list(parameters.values())[2:]
    assert {one.kind for one in keywords} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["autoreset"].default == "next_step"
    assert parameters["backend"].default == "auto"
    assert parameters["copy"].default is True


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("reset", ["seed", "options"]),
        ("step", ["actions"]),
        ("reset_envs", ["env_ids", "seeds", "options"]),
        ("set_next_reset", ["env_ids", "seeds", "options"]),
        ("send", ["actions", "env_ids"]),
        ("recv", ["min_envs", "timeout_s"]),
        ("call", ["name", "args", "env_ids", "kwargs"]),
        ("get_attr", ["name", "env_ids"]),
        ("set_attr", ["name", "values", "env_ids"]),
        ("stats", []),
        ("render", []),
    ],
)
def test_a_vector_environment_has_the_calls_of_the_design(name: str, arguments: list[str]) -> None:
    parameters = list(inspect.signature(getattr(shoal.VectorEnv, name)).parameters)
    assert parameters == ["self", *arguments]


def test_a_batch_unpacks_in_the_order_of_the_design() -> None:
    fields = "observations rewards terminations truncations infos env_ids"
    assert shoal.Batch._fields == tuple(fields.split())


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "shoal-rl"
    assert project["version"] == shoal.__version__


def test_types_are_published() -> None:
    assert (SOURCE / "py.typed").exists()


# --- rules of the house ------------------------------------------------------


@each_file()
def test_a_module_says_what_lives_in_it(file: Path) -> None:
    assert (ast.get_docstring(parse(file)) or "").strip()


@each_file()
def test_no_module_has_a_name_that_says_nothing(file: Path) -> None:
    parts = [*file.relative_to(SOURCE).parts[:-1], file.stem]
    for part in parts:
        assert part not in {"utils", "common", "helpers", "misc"}
        assert not part.startswith("base_")


@each_file(outside="compat")  # the class names of other code bases
def test_no_class_has_a_name_that_says_nothing(file: Path) -> None:
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.ClassDef):
            assert not re.match(r"_?(Base|Abstract)(?![a-z])", node.name), node.name
            assert not node.name.endswith(("Base", "Manager", "Handler", "Mixin")), node.name


@each_file(outside="cli")
def test_library_code_does_not_print(file: Path) -> None:
    calls = [
        node.lineno
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "pprint", "breakpoint"}
    ]
    assert calls == []


@each_file()
def test_nothing_is_left_to_be_done(file: Path) -> None:
    marks = r"\b(NotImplemented|NotImplementedError|TODO|FIXME|XXX)\b"
    assert not re.search(marks, file.read_text())


# --- episode ends are decided in one place -----------------------------------

MODES = {"NEXT_STEP", "SAME_STEP", "DISABLED"}
MODE_WORDS = {"next_step", "same_step", "disabled", "NextStep", "SameStep", "Disabled"}

EXCEPTIONS = {
    # Which rows there are.
    "engine/pool.py": {"SAME_STEP"},
    # Which actions need no check because their step only resets, and when a record begins.
    "engine/books.py": {"SAME_STEP", "NEXT_STEP"},
    # Judges of other people's vector environments, from outside.
    "testing/batch.py": MODES,
    "testing/check_vector.py": MODES,
    # Which teams can be had as rows of agents, who end at different times.
    "vector/agents/rows.py": {"SAME_STEP"},
    # Which calls only reset, and are no steps then.
    "measure/session.py": {"NEXT_STEP", "DISABLED"},
}


def modes_compared(tree: ast.Module) -> Iterator[str]:
    """Autoreset modes that code branches on: in comparisons, patterns, and keys of tables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            looked_at: list[ast.AST] = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            looked_at = [node.value]
        elif isinstance(node, ast.Dict):
            looked_at = [key for key in node.keys if isinstance(key, ast.Attribute)]
        else:
            continue
        for inner in (one for part in looked_at for one in ast.walk(part)):
            if isinstance(inner, ast.Attribute) and inner.attr in MODES:
                yield inner.attr
            elif isinstance(inner, ast.Constant) and inner.value in MODE_WORDS:
                yield str(inner.value)


@each_file()
def test_only_cells_decide_what_happens_at_an_episodes_end(file: Path) -> None:
    name = str(file.relative_to(SOURCE))
    if name == "engine/cells.py":
        # The third is what is left.
        assert set(modes_compared(parse(file))) == MODES - {"NEXT_STEP"}
    else:
        assert set(modes_compared(parse(file))) <= EXCEPTIONS.get(name, set())


def test_the_exceptions_are_still_needed() -> None:
    for name in EXCEPTIONS:
        assert set(modes_compared(parse(SOURCE / name))), f"{name} needs no exception any more"
