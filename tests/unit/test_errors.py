"""Do errors say what they should, and can they travel?"""

from __future__ import annotations

import pickle
import traceback

import gymnasium
import pytest

import shoal
from shoal import errors
from shoal.errors import EnvRaised, RemoteTraceback, WorkerError, shown, suggest

PARENTS = {
    "ConfigError": "ShoalError",
    "ContractError": "ShoalError",
    "ClosedError": "ShoalError",
    "WorkerError": "ShoalError",
    "EnvRaised": "WorkerError",
    "WorkerDied": "WorkerError",
    "WorkerTimeout": "WorkerError",
}


@pytest.mark.parametrize(("name", "parent"), PARENTS.items())
def test_the_hierarchy_is_the_one_drawn(name: str, parent: str) -> None:
    assert getattr(errors, parent) in getattr(errors, name).__bases__
    assert name in (errors.__doc__ or "")


def test_every_error_is_also_a_name_of_shoal() -> None:
    assert set(errors.__all__) == {*PARENTS, "ShoalError"}
    for name in errors.__all__:
        assert getattr(shoal, name) is getattr(errors, name)


def test_errors_are_caught_by_those_who_know_only_python_or_gymnasium() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.ContractError, ValueError)
    assert issubclass(errors.ClosedError, gymnasium.error.ClosedEnvironmentError)


@pytest.mark.parametrize("kind", [EnvRaised, errors.WorkerDied, errors.WorkerTimeout])
def test_a_worker_error_keeps_all_it_carries_through_a_pickle(kind: type[WorkerError]) -> None:
    error = kind("gone", worker=4, env_ids=[17, 18], phase="step", pid=8123, capsule="a/b.npz")
    error.add_note("At the same time: more")
    error.others = [errors.ContractError("more")]
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "gone"
    assert (copy.worker, copy.env_ids, copy.phase) == (4, (17, 18), "step")
    assert (copy.pid, copy.capsule) == (8123, "a/b.npz")
    assert copy.__notes__ == ["At the same time: more"]
    assert [str(other) for other in copy.others] == ["more"]


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.ContractError, errors.ClosedError])
def test_a_plain_error_survives_a_pickle(kind: type[errors.ShoalError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(copy) is kind
    assert str(copy) == "what happened"
    assert copy.others == ()


def test_a_worker_error_says_nothing_it_does_not_know() -> None:
    error = WorkerError("text", worker=0)
    assert (error.env_ids, error.phase, error.pid, error.capsule) == ((), "", None, None)


def test_a_remote_traceback_is_shown_as_it_was() -> None:
    error = EnvRaised("env 3 raised", worker=0)
    error.__cause__ = RemoteTraceback('  File "env.py", line 7, in step\n    1 / 0')
    text = "".join(traceback.format_exception(error))
    assert '\n  File "env.py", line 7, in step\n    1 / 0' in text


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("proces", ["serial", "thread", "process"]) == "Did you mean 'process'?"


@pytest.mark.parametrize("given", ["quantum", 7, None])
def test_where_no_name_is_near_all_are_listed(given: object) -> None:
    assert suggest(given, ["serial", "thread"]) == "Choose one of 'serial', 'thread'."


def test_a_value_is_shown_on_one_line_and_cut_where_it_is_long() -> None:
    assert shown("a\nb") == repr("a\nb")
    assert shown([1, 2]) == "[1, 2]"
    text = shown("x" * 500)
    assert text.startswith("'xxx")
    assert text.endswith("...")
    assert len(text) < 130
    assert shown("abcdef", 3) == "'ab..."


def test_lines_of_a_repr_are_joined() -> None:
    class Tall:
        def __repr__(self) -> str:
            return "Tall(\n    1,\n)"

    assert shown(Tall()) == "Tall( 1, )"


def test_a_value_whose_repr_raises_is_still_shown() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert shown(Shy()) == "<Shy, whose repr raised RuntimeError>"
