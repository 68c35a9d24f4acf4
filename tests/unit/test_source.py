"""Is whatever a user may call an environment turned into factories, and all else refused early?"""

from __future__ import annotations

import functools
import re
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from shoal.engine.build import build, describe
from shoal.engine.commands import Assignment, private_mark
from shoal.errors import ConfigError
from shoal.testing import CountingWorld
from shoal.vector.source import Resolved, resolve


def made(source: Resolved) -> list[Any]:
    return [factory() for factory in source.factories]


# --- what is accepted --------------------------------------------------------


def test_a_gymnasium_id_is_made_with_its_arguments() -> None:
    source = resolve("MountainCar-v0", {"goal_velocity": 0.25})
    (env,) = made(source)
    assert env.unwrapped.goal_velocity == 0.25
    assert source.spec is gymnasium.spec("MountainCar-v0")
    assert not source.is_list
    assert source.preload == ("gymnasium.envs.classic_control.mountain_car",)


def test_an_id_is_made_as_gymnasium_makes_it_but_without_its_passive_checker() -> None:
    """The engine checks more than that one does, which costs a call per step."""
    (ours,), theirs = made(resolve("CartPole-v1")), gymnasium.make("CartPole-v1")
    names = [type(env).__name__ for env in (ours, ours.env, ours.env.env)]
    assert names == ["TimeLimit", "OrderEnforcing", "CartPoleEnv"]
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps


def test_the_passive_checker_is_there_for_who_asks_for_it() -> None:
    (env,) = made(resolve("CartPole-v1", {"disable_env_checker": False}))
    assert "PassiveEnvChecker" in str(env)


def test_a_spec_is_as_good_as_its_id() -> None:
    spec = gymnasium.spec("CartPole-v1")
    source = resolve(spec)
    assert type(made(source)[0].unwrapped).__name__ == "CartPoleEnv"
    assert source.spec is spec


def test_module_and_factory_are_imported_by_name() -> None:
    source = resolve("shoal.testing:CountingWorld", {"tag": 4})
    assert made(source)[0].tag == 4
    assert source.preload == ("shoal.testing",)
    assert source.spec is None


def test_a_factory_may_sit_inside_a_class() -> None:
    module = types.ModuleType("shoal_test_nest")
    module.Outer = types.SimpleNamespace(make=CountingWorld)  # type: ignore[attr-defined]
    sys.modules["shoal_test_nest"] = module
    try:
        assert isinstance(made(resolve("shoal_test_nest:Outer.make"))[0], CountingWorld)
    finally:
        del sys.modules["shoal_test_nest"]


def test_gymnasiums_own_module_and_id_is_still_an_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """'module:EnvId-v0' imports the module, which registers the environment."""
    (tmp_path / "shoal_late.py").write_text(
        "import gymnasium\n"
        "from shoal.testing import CountingWorld as World\n"
        "gymnasium.register('ShoalLate-v0', 'shoal_late:World')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", gymnasium.registry.copy())
    source = resolve("shoal_late:ShoalLate-v0", {"tag": 6})
    assert source.spec is not None
    assert source.spec.id == "ShoalLate-v0"
    assert made(source)[0].unwrapped.tag == 6


def test_a_class_is_called_with_the_arguments() -> None:
    source = resolve(CountingWorld, {"tag": 3})
    assert made(source)[0].tag == 3
    assert source.preload == ("shoal.testing.worlds",)


def test_lambdas_closures_and_partials_are_called() -> None:
    tag = 5
    for maker in (lambda: CountingWorld(tag), functools.partial(CountingWorld, 5)):
        assert made(resolve(maker))[0].tag == 5


def test_a_list_has_a_factory_for_each_environment() -> None:
    source = resolve([functools.partial(CountingWorld, tag) for tag in range(3)], {"obs": "dict"})
    assert source.is_list
    assert [env.tag for env in made(source)] == [0, 1, 2]
    assert all(isinstance(env.observation_space, spaces.Dict) for env in made(source))


def test_every_call_of_a_factory_makes_a_new_environment() -> None:
    (factory,) = resolve(CountingWorld).factories
    assert factory() is not factory()


def test_wrappers_are_put_on_in_order() -> None:
    class First(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    class Second(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    (env,) = made(resolve(CountingWorld, None, [First, lambda env: Second(env)]))
    assert isinstance(env, Second)
    assert isinstance(env.env, First)
    assert isinstance(env.env.env, CountingWorld)


def test_modules_of_wrappers_are_loaded_ahead_and_the_script_is_not() -> None:
    def in_script(env: Any) -> Any:
        return env

    in_script.__module__ = "__main__"
    source = resolve(CountingWorld, None, [gymnasium.wrappers.ClipAction, in_script])
    assert source.preload == ("shoal.testing.worlds", "gymnasium.wrappers.transform_action")


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("CartPol-v1", ["'CartPol-v1'", "Did you mean 'CartPole-v1'?"]),
        ("CartPole-v9", ["'CartPole-v9'", "v1"]),
        ("Completely unheard of", ["'Completely unheard of'", "pprint_registry"]),
        ("", ["''"]),
        ("shoal.testing:CountingWold", ["CountingWold", "Did you mean 'CountingWorld'?"]),
        ("shoal.testing:CountingWorld.mkae", ["mkae"]),
        ("shoal_no_such_module:make", ["shoal_no_such_module", "sys.path"]),
        ("shoal_no_such_module:Env-v0", ["shoal_no_such_module"]),
        ([], ["empty"]),
        ((), ["empty"]),
        (None, ["None", "NoneType", "factory"]),
        (5, ["5", "int", "Gymnasium id"]),
        ([CountingWorld, 5], ["5", "int"]),
        ({"env": CountingWorld}, ["dict"]),
        (CountingWorld(), ["is an environment", "lambda"]),
        ([CountingWorld()], ["is an environment", "lambda"]),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)),
)
def test_what_makes_no_environment_is_refused_with_what_to_do(env: Any, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(env)
    for text in said:
        assert text in str(caught.value)


def test_an_id_inside_a_list_does_not_fail_as_late_as_in_a_worker() -> None:
    try:
        source = resolve(["CartPole-v1", "CartPole-v1"])
    except ConfigError:
        return
    assert [env.spec.id for env in made(source)] == ["CartPole-v1"] * 2


def test_a_wrong_name_inside_a_list_is_refused_here() -> None:
    with pytest.raises(ConfigError, match="CountingWold"):
        resolve(["shoal.testing:CountingWold"])


@pytest.mark.parametrize("wrappers", [[5], ["ClipAction"], CountingWorld], ids=repr)
def test_what_is_no_list_of_wrappers_is_refused(wrappers: Any) -> None:
    with pytest.raises(ConfigError, match="wrapper"):
        resolve(CountingWorld, None, wrappers)


def test_what_are_no_arguments_is_refused() -> None:
    with pytest.raises(ConfigError, match="env_kwargs"):
        resolve(CountingWorld, ["tag"])  # type: ignore[arg-type]


# --- what a factory may return -----------------------------------------------


def built(*factories: Any, num_envs: int = 1) -> Any:
    one_each = len(factories) > 1
    return build(Assignment(0, 1, num_envs, factories, one_each), private_mark())


class Team:
    """As PettingZoo's ParallelEnv: spaces are functions of the agent."""

    possible_agents = ("a", "b")

    def reset(self) -> None: ...

    def step(self, actions: Any) -> None: ...

    def observation_space(self, agent: str) -> Any: ...

    def action_space(self, agent: str) -> Any: ...


class Turns(Team):
    """As PettingZoo's AECEnv."""

    agent_selection = "a"


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (Team, ["Team", "PettingZoo", "shoal.make_team"]),
        (Turns, ["Turns", "PettingZoo", "shoal.make_turns"]),
        (lambda: None, ["NoneType", "gymnasium.Env"]),
        (lambda: "CartPole-v1", ["str", "gymnasium.Env"]),
        (lambda: CountingWorld, ["gymnasium.Env"]),
    ],
    ids=["team", "turns", "nothing", "id", "class"],
)
def test_what_is_no_environment_is_refused_with_its_number_and_kind(
    thing: Any, said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        built(CountingWorld, thing, num_envs=2)
    for text in ["env 1", *said]:
        assert text in str(caught.value)


def test_what_only_looks_like_an_environment_is_taken_for_one() -> None:
    class Duck:
        observation_space = action_space = spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any: ...

        def step(self, action: Any) -> Any: ...

    assert describe(built(Duck)).spaces == ((spaces.Discrete(2), spaces.Discrete(2)),)


@pytest.fixture
def log() -> list[str]:
    """What happened, in order."""
    return []


def test_an_exception_in_a_constructor_closes_what_was_built_before(log: list[str]) -> None:
    class Closing(CountingWorld):
        def close(self) -> None:
            log.append(f"closed {self.tag}")

    def broken() -> Any:
        raise KeyError("no such map")

    factories = [functools.partial(Closing, 0), functools.partial(Closing, 1), broken]
    with pytest.raises(KeyError, match="no such map") as caught:
        built(*factories, num_envs=3)
    assert caught.value.env_id == 2  # type: ignore[attr-defined]
    assert log == ["closed 0", "closed 1"]


def test_every_environment_is_built_once_and_in_order(log: list[str]) -> None:
    def make(tag: int) -> Any:
        log.append(f"made {tag}")
        return CountingWorld(tag)

    cells = built(*(functools.partial(make, tag) for tag in range(3)), num_envs=3)
    assert log == ["made 0", "made 1", "made 2"]
    assert [cell.env_ids for cell in cells] == [(0,), (1,), (2,)]


def test_equal_spaces_are_one_object_so_that_they_travel_once() -> None:
    pairs = describe(built(CountingWorld, num_envs=4)).spaces
    assert len(pairs) == 4
    assert len({id(pair) for pair in pairs}) == 1


def test_vector_environments_of_differing_widths_are_refused() -> None:
    def vector(width: int) -> Any:
        return gymnasium.vector.SyncVectorEnv([CountingWorld] * width)

    factories = [functools.partial(vector, 1), functools.partial(vector, 2)]
    with pytest.raises(ConfigError, match="different kinds"):
        built(*factories, num_envs=2)


def test_plain_and_vector_environments_do_not_mix() -> None:
    vector = functools.partial(gymnasium.vector.SyncVectorEnv, [CountingWorld])
    with pytest.raises(ConfigError, match="different kinds"):
        built(CountingWorld, vector, num_envs=2)
