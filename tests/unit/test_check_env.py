"""Both checkers: good environments give no errors, and every breach is found and explained."""

import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from shoal.testing import CountingWorld, Finding, Report, Saboteur, check_env, check_vector_env
from shoal.testing.forms import ACTIONS, OBSERVATIONS
from shoal.testing.leaf import same


def texts(report, severity):
    return [finding.text for finding in report.findings if finding.severity == severity]


def assert_found(report, severity, *phrases):
    """Exactly one finding of this severity has all the phrases, in this order."""
    matching = [text for text in texts(report, severity) if in_order(text, phrases)]
    assert len(matching) == 1, f"{phrases} not found as one {severity} in:\n{report}"


def in_order(text, phrases):
    place = 0
    for phrase in phrases:
        place = text.find(phrase, place)
        if place < 0:
            return False
    return True


# --- check_env: good environments -------------------------------------------


@pytest.mark.parametrize("infos", ["none", "numeric", "mixed", "sparse"])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("obs", OBSERVATIONS)
def test_counting_worlds_give_no_findings(obs, action, infos):
    report = check_env(lambda: CountingWorld(obs=obs, action=action, infos=infos))
    assert report.findings == ()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1"])
def test_gymnasium_environments_give_no_errors(env_id):
    assert check_env(lambda: gymnasium.make(env_id)).ok
    assert check_env(gymnasium.make(env_id)).ok


def test_integer_that_becomes_a_float_in_infos_is_found_in_frozen_lake():
    report = check_env(lambda: gymnasium.make("FrozenLake-v1"))
    assert_found(report, "warning", "info['prob'] changes its type", "Expected int; got float")


def test_class_is_a_factory():
    report = check_env(CountingWorld)
    assert report.subject == "CountingWorld"
    assert report.findings == ()


def test_environment_is_closed_twice_and_as_often_as_it_was_made():
    made = []

    def factory():
        made.append(CountingWorld())
        return made[-1]

    check_env(factory)
    assert [env.closes for env in made] == [2, 2]
    env = CountingWorld()
    check_env(env)
    assert env.closes == 2


def test_values_are_compared_through_and_through():
    assert same({"a": (np.nan, np.array([np.nan, 1]))}, {"a": (np.nan, np.array([np.nan, 1]))})
    assert not same(np.zeros(2, np.int32), np.zeros(2, np.int64))
    assert not same(np.zeros(1), np.zeros(2))
    assert not same({"a": 1}, {"a": 1, "b": 1})
    assert not same(Unequal(), Unequal())


class Unequal:
    def __eq__(self, other):
        raise ValueError("ambiguous")

    __hash__ = None


# --- check_env: breaches ----------------------------------------------------


@pytest.mark.parametrize("when", ["reset", "step"])
@pytest.mark.parametrize(
    ("how", "severity", "phrases"),
    [
        ("raise", "error", ["raised ValueError", "Expected no exception", "sabotage in"]),
        ("raise_unpicklable", "error", ["raised UnpicklableError"]),
        ("raise_needs_args", "error", ["raised NeedsArgsError", "two arguments"]),
        ("raise_percent", "error", ["raised ValueError", "%s %d"]),
        ("sys_exit", "error", ["raised SystemExit", "3"]),
        ("wrong_shape", "error", ["wrong shape", "Expected (8,); got (9,)"]),
        ("broadcastable_shape", "error", ["wrong shape", "got (1,)", "NumPy would repeat"]),
        ("missing_key", "error", ["observation lacks the key 'record'"]),
        ("extra_key", "error", ["the key 'surprise' that its space lacks"]),
        ("none_obs", "error", ["wrong type", "an array of int64; got NoneType"]),
        ("lossy_cast", "error", ["dtype of another kind", "Expected int64; got float64"]),
        ("nan", "warning", ["observation['half'] is not finite", "nan"]),
        ("inf", "warning", ["observation['half'] is not finite", "inf"]),
    ],
)
def test_sabotage_is_found_where_it_happens(how, severity, phrases, when):
    report = check_env(lambda: Saboteur(how, when))
    place = "(first reset, seed 0)" if when == "reset" else "(episode 0, step 1)"
    assert_found(report, severity, *phrases)
    assert place in texts(report, severity)[0]
    assert report.ok == (severity == "warning")


@pytest.mark.parametrize("when", ["construct", "close"])
def test_raising_at_the_ends_of_life_is_found(when):
    report = check_env(lambda: Saboteur("raise", when))
    doing = "the factory" if when == "construct" else "close"
    assert_found(report, "error", f"{doing} raised ValueError", f"sabotage in {when}")


def test_raising_later_is_found_with_its_place():
    report = check_env(lambda: Saboteur("raise", at_episode=1, at_step=2))
    assert_found(report, "error", "step raised ValueError (episode 1, step 2)")


def test_ctrl_c_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        check_env(lambda: Saboteur("keyboard_interrupt"))


class Plain(gymnasium.Env):
    """A good environment of four steps; tests change one thing about it."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    reward = 1.0
    info = {}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), dict(self.info)

    def step(self, action):
        self.count += 1
        return self.look(), self.reward, self.count == 4, False, dict(self.info)

    def look(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def plain(**changes):
    """The plain environment's class with other attributes."""
    return type("Changed", (Plain,), changes)


def test_plain_environment_is_good():
    assert check_env(Plain).findings == ()


def look_at(value, space=Plain.observation_space):
    return {"observation_space": space, "look": lambda self: value}


def with_step(step):
    return {"step": lambda self, action: step(*Plain.step(self, action))}


GOOD = np.zeros(2, np.float32)
PAIR = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3, start=-1)))

ERRORS = {
    "observation space missing": ({"observation_space": None}, ["observation_space is missing"]),
    "action space is a class": ({"action_space": spaces.Box}, ["action_space is missing or no"]),
    "discrete too high": (look_at(4, spaces.Discrete(4)), ["out of range", "Discrete(4)", "got 4"]),
    "discrete below start": (look_at(0, spaces.Discrete(4, start=1)), ["is out of range", "got 0"]),
    "discrete as a float": (look_at(1.0, spaces.Discrete(4)), ["dtype of another kind"]),
    "multidiscrete": (
        look_at(np.array([1, 3]), spaces.MultiDiscrete([2, 3])),
        ["out of range", "got 3 at (1,)"],
    ),
    "multibinary": (look_at(np.array([0, 2]), spaces.MultiBinary(2)), ["out of range", "got 2"]),
    "dict as an array": (look_at(GOOD, spaces.Dict(a=spaces.Discrete(2))), ["Expected a dict"]),
    "tuple too short": (look_at((1,), PAIR), ["Expected a tuple of 2"]),
    "leaf in a tuple": (look_at((1, 2), PAIR), ["observation[1] is out of range", "got 2"]),
    "text of foreign letters": (look_at("?", spaces.Text(4)), ["not in its space", "'?'"]),
    "strings for numbers": (look_at("one"), ["wrong type", "an array of float32; got str"]),
    "int64 for uint8": (
        look_at(np.array([1, 2]), spaces.Box(0, 255, (2,), np.uint8)),
        ["dtype of another kind", "Expected uint8; got int64"],
    ),
    "reset without info": (
        {"reset": lambda self, *, seed=None, options=None: GOOD},
        ["reset does not return 2 values"],
    ),
    "reset without options": (
        {"reset": lambda self, seed=None: (GOOD, {})},
        ["reset does not take options", "got reset(seed)"],
    ),
    "reset without seed": (
        {"reset": lambda self, options=None: (GOOD, {})},
        ["reset does not take seed"],
    ),
    "four values": (
        with_step(lambda obs, reward, end, cut, info: (obs, reward, end or cut, info)),
        ["step does not return 5 values", "got 4 values", "Gym before 0.26"],
    ),
    "list of values": (with_step(lambda *values: list(values)), ["does not return 5 values"]),
    "no reward": ({"reward": None}, ["reward is not a number", "NoneType"]),
    "reward in an array": ({"reward": np.ones(1)}, ["not one number", "an array of shape (1,)"]),
    "reward as text": ({"reward": "1"}, ["reward is not a number", "str '1'"]),
    "complex reward": ({"reward": 1j}, ["reward is not a number"]),
    "nan reward": ({"reward": float("nan")}, ["reward is not finite"]),
    "inf reward": ({"reward": np.float32("inf")}, ["reward is not finite"]),
    "flag of two": (
        with_step(lambda obs, reward, end, cut, info: (obs, reward, np.zeros(2), cut, info)),
        ["terminated is not a bool"],
    ),
    "no flag": (
        with_step(lambda obs, reward, end, cut, info: (obs, reward, end, None, info)),
        ["truncated is not a bool", "NoneType"],
    ),
    "info is none": (
        with_step(lambda *values: (*values[:4], None)),
        ["info has the wrong type", "Expected a dict; got NoneType"],
    ),
    "info by numbers": ({"info": {3: 1}}, ["key that is not a str", "got int 3"]),
    "cannot reset again": (
        {"reset": lambda self, **kwargs: Plain.reset(self, **kwargs) if fresh(self) else 1 / 0},
        ["reset raised ZeroDivisionError (reset to episode 1)"],
    ),
    "close raises": ({"close": lambda self: 1 / 0}, ["close raised ZeroDivisionError (first"]),
    "second close raises": (
        {"close": lambda self: self.__dict__.pop("count")},
        ["close raised KeyError (second close)"],
    ),
    "picture of floats": (
        {"render_mode": "rgb_array", "render": lambda self: np.zeros((4, 4, 3))},
        ["render gives no picture", "got float64 (4, 4, 3)"],
    ),
    "no picture": (
        {"render_mode": "rgb_array", "render": lambda self: None},
        ["render gives no picture", "got NoneType"],
    ),
}


def fresh(env):
    return not hasattr(env, "count")


@pytest.mark.parametrize("name", ERRORS)
def test_breach_is_an_error(name):
    changes, phrases = ERRORS[name]
    report = check_env(plain(**changes))
    assert not report.ok
    assert_found(report, "error", *phrases)


UNBOUNDED = {"observation_space": spaces.Box(-np.inf, np.inf, (2,), np.float32)}

WARNINGS = {
    "float64 for float32": (
        {"look": lambda self: Plain.look(self).astype(np.float64)},
        ["another dtype", "Expected float32; got float64", "will be cast"],
    ),
    "list for an array": (
        {"look": lambda self: Plain.look(self).tolist()},
        ["observation is a list and not an array"],
    ),
    "outside bounds": (
        {"look": lambda self: Plain.look(self) + np.float32(5)},
        ["observation is outside its bounds", "at (0,)", "not enforced"],
    ),
    "nan": (
        UNBOUNDED | {"look": lambda self: Plain.look(self) * np.float32("nan")},
        ["is not finite"],
    ),
    "integer flag": (
        with_step(lambda obs, reward, end, cut, info: (obs, reward, int(end), cut, info)),
        ["terminated is not a bool", "int 0"],
    ),
    "type of an info": (
        with_step(lambda *values: (*values[:4], {"x": 1.0 if values[2] else 1})),
        ["info['x'] changes its type (episode 0, step 4)", "Expected int; got float"],
    ),
    "shape of an info": (
        with_step(lambda *values: (*values[:4], {"x": np.zeros(1 + values[2])})),
        ["info['x'] changes its type", "(1,); got array float64 (2,)"],
    ),
    "reserved info": ({"info": {"final_obs": 1}}, ["the key 'final_obs'", "Rename it"]),
    "generator not seeded": (
        {
            "reset": lambda self, *, seed=None, options=None: Plain.reset(self),
            "look": lambda self: GOOD,
        },
        ["reset does not seed np_random", "Expected np_random_seed 0"],
    ),
    "not deterministic": (
        {"look": lambda self: np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)},
        ["the same seed and actions give another trajectory (second run, first reset, seed 0)"],
    ),
    "state that survives a seeded reset": (
        {"reset": lambda self, **kwargs: Plain.reset(older(self), **kwargs), "reward": 0.0}
        | with_step(lambda obs, reward, *rest: (obs, AGE["resets"], *rest)),
        ["give another trajectory (second run, episode 0, step 1)", "Expected reward 1"],
    ),
    "undeclared render mode": (
        {"render_mode": "ansi", "render": lambda self: ""},
        ["render_mode is not declared", "got 'ansi'"],
    ),
}

AGE = {"resets": 0}


def older(env):
    AGE["resets"] += 1
    return env


@pytest.mark.parametrize("name", WARNINGS)
def test_breach_is_a_warning(name):
    changes, phrases = WARNINGS[name]
    AGE["resets"] = 0
    report = check_env(plain(**changes)())
    assert report.ok
    assert_found(report, "warning", *phrases)


def test_one_wrong_value_gives_one_finding():
    report = check_env(plain(**look_at(9.5, spaces.Discrete(4))))
    assert_found(report, "error", "dtype of another kind")
    assert len(report.errors) == 1


def test_repeating_is_only_mentioned_where_numpy_would():
    assert "NumPy would repeat" not in str(check_env(lambda: Saboteur("wrong_shape")))


def test_objects_of_several_types_may_share_an_info():
    report = check_env(
        plain(**with_step(lambda *values: (*values[:4], {"x": "end" if values[2] else None})))
    )
    assert report.findings == ()


def test_run_ends_with_the_episodes_asked_for():
    taken = []
    env = plain(**with_step(lambda *values: taken.append(None) or values))()
    check_env(env, episodes=2)
    assert len(taken) == 2 * 4 + 2 + 2 * 4  # the run, the resets in mid-episode, the second run


def test_second_environment_that_differs_is_found():
    made = []

    def factory():
        made.append(None)
        return plain(reward=float(len(made)))()

    report = check_env(factory)
    assert_found(report, "warning", "another trajectory", "Expected reward 1.0; got 2.0")


def test_reused_buffer_is_a_note():
    report = check_env(CountingWorld(reuse_buffer=True))
    assert [finding.severity for finding in report.findings] == ["note"]
    assert_found(report, "note", "overwrites the observation it returned before")


def test_single_start_is_a_note():
    report = check_env(plain(look=lambda self: GOOD))
    assert_found(report, "note", "different seeds give the same first observation")


def test_endless_episode_is_a_note():
    report = check_env(CountingWorld, steps=2)
    assert_found(report, "note", "no episode ended within 2 steps")


def test_unpicklable_factory_is_an_error_that_names_the_variable():
    lock = threading.Lock()

    def factory():
        assert lock
        return Plain()

    report = check_env(factory)
    assert_found(report, "error", "factory cannot be pickled because of its variable 'lock'")


def test_factory_that_returns_one_environment_twice_is_an_error():
    env = Plain()
    report = check_env(lambda: env)
    assert_found(report, "error", "the factory returns one environment twice")


class Turns:
    possible_agents = ("a", "b")
    agent_selection = "a"

    def reset(self, seed=None, options=None):
        raise AssertionError("must not be called")


class Team:
    possible_agents = ("a", "b")

    def reset(self, seed=None, options=None):
        raise AssertionError("must not be called")


@pytest.mark.parametrize(("kind", "name"), [(Turns, "shoal.make_turns"), (Team, "shoal.make_team")])
def test_pettingzoo_environment_gives_one_error_that_names_the_right_maker(kind, name):
    for subject in (kind, kind()):
        report = check_env(subject)
        assert len(report.findings) == 1
        assert_found(report, "error", "PettingZoo", name)


@pytest.mark.parametrize(
    ("subject", "phrase"),
    [
        (3, "this is no environment"),
        (lambda: object(), "this is no gymnasium.Env"),
        (lambda: SyncVectorEnv([CountingWorld]), "this is a vector environment"),
    ],
)
def test_what_is_no_environment_is_an_error(subject, phrase):
    report = check_env(subject)
    assert len(report.findings) == 1
    assert_found(report, "error", phrase)


# --- reports ----------------------------------------------------------------


def test_repeated_breach_is_one_finding_with_a_count():
    report = check_env(plain(reward=None)())
    (finding,) = report.errors
    assert finding.times > 10
    assert finding.where == "episode 0, step 1"
    assert f"(seen {finding.times} times)" in str(finding)


def test_report_shows_errors_first():
    report = check_env(plain(reward=None, look=lambda self: GOOD.astype(np.float64)))
    assert [finding.severity for finding in report.findings] == ["error", "warning", "note"]
    assert str(report).startswith("Changed does not pass: 1 error, 1 warning, 1 note\n- error: ")


def test_report_is_ok_with_warnings():
    report = Report("env", (Finding("warning", "reset", "text"),))
    assert report.ok
    assert report.warnings == report.findings
    assert str(report) == "env passes: 0 errors, 1 warning, 0 notes\n- warning: text"


# --- check_vector_env: good ones --------------------------------------------

MODES = list(AutoresetMode)


def worlds(count=3, **arguments):
    return [lambda tag=tag: CountingWorld(tag, **arguments) for tag in range(count)]


@pytest.mark.parametrize("infos", ["none", "numeric", "mixed", "sparse"])
@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_gymnasium_sync_gives_no_findings(mode, obs, infos):
    envs = SyncVectorEnv(worlds(obs=obs, infos=infos), autoreset_mode=mode)
    assert check_vector_env(envs, steps=50).findings == ()
    envs.close()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_every_action_space_can_be_driven(mode, action):
    envs = SyncVectorEnv(worlds(action=action, render_mode="rgb_array"), autoreset_mode=mode)
    assert check_vector_env(envs, steps=50).findings == ()


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_small_batches_give_no_findings(mode, num_envs):
    envs = SyncVectorEnv(worlds(num_envs), autoreset_mode=mode)
    assert check_vector_env(envs, steps=50).findings == ()


def test_declared_views_may_be_overwritten():
    assert check_vector_env(SyncVectorEnv(worlds(), copy=False), steps=50).findings == ()


def test_vector_env_is_left_open_and_at_a_fresh_reset():
    envs = SyncVectorEnv(worlds())
    check_vector_env(envs, steps=20, seed=5)
    assert not envs.closed
    assert [env.record()[:5] for env in envs.envs] == [(5 + i, i, 0, 0, 0) for i in range(3)]


def test_wrapped_vector_env_gives_no_errors():
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv(worlds()))
    assert check_vector_env(envs, steps=50).ok


# --- check_vector_env: broken ones ------------------------------------------


class Bent(SyncVectorEnv):
    """Gymnasium's own, with the result of each step bent by ``bend(self, *result)``."""

    bend = None

    def step(self, actions):
        return self.bend(*super().step(actions))


def bent(bend, mode=AutoresetMode.NEXT_STEP, **arguments):
    kind = type("Bent", (Bent,), {"bend": bend})
    return kind(worlds(**arguments), autoreset_mode=mode)


def without(infos, *keys):
    return {key: value for key, value in infos.items() if key not in keys}


def rows_reported_again(self, obs, rewards, ends, cuts, infos):
    self.late, late = ends | cuts, getattr(self, "late", np.zeros(3, bool))
    return obs, rewards, ends | late, cuts, infos


SAME = AutoresetMode.SAME_STEP

BENDS = {
    "four values": (lambda self, *r: r[:4], {}, ["step does not return 5 values"]),
    "rewards as a list": (lambda self, o, r, *x: (o, list(r), *x), {}, ["rewards are no array"]),
    "integer rewards": (
        lambda self, o, r, *x: (o, r.astype(int), *x),
        {},
        ["rewards have the wrong dtype", "float64", "got int64"],
    ),
    "rewards in a column": (
        lambda self, o, r, *x: (o, r[:, None], *x),
        {},
        ["rewards have the wrong shape", "got (3, 1)"],
    ),
    "integer flags": (
        lambda self, o, r, t, *x: (o, r, t.astype(np.uint8), *x),
        {},
        ["terminations have the wrong dtype", "got uint8"],
    ),
    "observations of another dtype": (
        lambda self, o, *x: (o.astype(np.int32), *x),
        {},
        ["obs has the wrong dtype", "Expected int64; got int32"],
    ),
    "observations of another shape": (
        lambda self, o, *x: (o[:2], *x),
        {},
        ["obs has the wrong shape", "Expected (3, 8); got (2, 8)"],
    ),
    "key lost": (
        lambda self, o, *x: (without(o, "flags"), *x),
        {"obs": "dict"},
        ["obs lacks the key 'flags'"],
    ),
    "infos as a list": (lambda self, *r: (*r[:4], [{}] * 3), {}, ["infos are no dict", "list"]),
    "infos as a list with final_obs due": (
        lambda self, *r: (*r[:4], [{}] * 3),
        {"mode": SAME},
        ["infos are no dict", "list"],
    ),
    "infos by number": (
        lambda self, *r: (*r[:4], {3: np.zeros(3)}),
        {},
        ["infos have a key that is not a str", "got 3"],
    ),
    "final_obs as a batch": (
        lambda self, *r: (*r[:4], r[4] | ({"final_obs": r[0]} if "final_obs" in r[4] else {})),
        {"mode": SAME},
        ["infos['final_obs'] is no array of observations"],
    ),
    "mask lost": (
        lambda self, *r: (*r[:4], without(r[4], "_gain")),
        {"infos": "numeric"},
        ["infos['gain'] has no mask"],
    ),
    "mask of numbers": (
        lambda self, *r: (*r[:4], r[4] | {"_gain": np.ones(3)}),
        {"infos": "numeric"},
        ["infos['_gain'] is no mask"],
    ),
    "info of one row": (
        lambda self, *r: (*r[:4], r[4] | {"gain": np.ones(1)}),
        {"infos": "numeric"},
        ["infos['gain'] is no batch"],
    ),
    "reward on the step that resets": (
        lambda self, o, r, *x: (o, r + 1, *x),
        {},
        ["rewards are not zero on the step that resets"],
    ),
    "end reported again": (
        rows_reported_again,
        {},
        ["terminations are not zero on the step that resets"],
    ),
    "final_obs lost": (
        lambda self, *r: (*r[:4], without(r[4], "final_obs", "_final_obs")),
        {"mode": SAME},
        ["infos['_final_obs'] does not mark", "In same_step mode"],
    ),
    "final_info lost": (
        lambda self, *r: (*r[:4], without(r[4], "final_info", "_final_info")),
        {"mode": SAME},
        ["infos['_final_info'] does not mark"],
    ),
    "final_obs for all": (
        lambda self, *r: (*r[:4], r[4] | {"final_obs": r[0], "_final_obs": np.ones(3, bool)}),
        {"mode": SAME},
        ["infos['_final_obs'] does not mark"],
    ),
    "final_obs not in the space": (
        lambda self, *r: (*r[:4], r[4] | {"final_obs": np.full(3, None)}),
        {"mode": SAME, "infos": "numeric"},
        ["final_obs has the wrong type", "got NoneType"],
    ),
    "own buffer": (
        lambda self, o, *x: (self._observations, *x),
        {},
        ["observations returned before are overwritten by this call (step 2)"],
    ),
    "own rewards": (
        lambda self, o, r, *x: (o, self._rewards, *x),
        {},
        ["rewards returned before are overwritten by this call (step 2)"],
    ),
}


@pytest.mark.parametrize("name", BENDS)
def test_bent_result_is_an_error(name):
    bend, arguments, phrases = BENDS[name]
    report = check_vector_env(bent(bend, **arguments), steps=50)
    assert not report.ok
    assert_found(report, "error", *phrases)


def test_float32_rewards_are_a_warning():
    envs = bent(lambda self, o, r, *x: (o, r.astype(np.float32), *x))
    report = check_vector_env(envs, steps=50)
    assert_found(report, "warning", "rewards have the wrong dtype", "got float32")


def test_last_observations_lost_to_a_reused_buffer_are_found():
    envs = SyncVectorEnv(worlds(reuse_buffer=True), autoreset_mode=SAME)
    report = check_vector_env(envs)
    assert_found(report, "warning", "final_obs always equals the first observation of the next")
    assert_found(report, "error", "infos returned before are overwritten")


class NoSeed(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(options=options)


class ResetsAll(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class ResetsAllBehindTheScenes(SyncVectorEnv):
    """Returns the right observations after a partial reset, but has reset the others too."""

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        if options is not None:
            for env in self.envs:
                env.reset()
        return result


class HearsActionsWhileResetting(SyncVectorEnv):
    def step(self, actions):
        resetting = self._autoreset_envs.copy()
        obs, *rest = super().step(actions)
        obs[resetting, 5] = actions[resetting]
        return obs, *rest


class SeedsAllAlike(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        seed = [seed] * self.num_envs if isinstance(seed, int) else seed
        return super().reset(seed=seed, options=options)


class AcceptsAnyCount(SyncVectorEnv):
    def step(self, actions):
        return super().step(np.resize(actions, self.num_envs))


class RefusesForGood(SyncVectorEnv):
    """After a wrong number of actions, every reset fails."""

    broken = False

    def step(self, actions):
        self.broken = self.broken or len(actions) != self.num_envs
        return super().step(actions)

    def reset(self, **arguments):
        if self.broken:
            raise RuntimeError("cannot go on")
        return super().reset(**arguments)


class ChangedByRefusal(RefusesForGood):
    """After a wrong number of actions, every seed is taken for another."""

    def reset(self, *, seed=None, options=None):
        moved = self.broken and isinstance(seed, int)
        return SyncVectorEnv.reset(self, seed=seed + 1 if moved else seed, options=options)


class OneFrame(SyncVectorEnv):
    def render(self):
        return super().render()[0]


@pytest.mark.parametrize(
    ("kind", "severity", "phrases"),
    [
        (NoSeed, "error", ["the same seed and actions give another trajectory"]),
        (ResetsAll, "error", ["a reset by reset_mask changes environments outside", "in env 1"]),
        (
            ResetsAllBehindTheScenes,
            "error",
            ["a reset by reset_mask changes environments outside", "after a reset of env 0"],
        ),
        (
            HearsActionsWhileResetting,
            "error",
            ["the action on the step that resets is not ignored"],
        ),
        (SeedsAllAlike, "warning", ["a list of seeds is not the same"]),
        (AcceptsAnyCount, "error", ["a wrong number of actions is accepted (step with 2 actions"]),
        (RefusesForGood, "error", ["reset raised RuntimeError (reset after a step with 2 actions"]),
        (ChangedByRefusal, "error", ["a refused step does harm (step with 2 actions"]),
        (OneFrame, "error", ["render gives no tuple of frames"]),
    ],
)
def test_broken_vector_env_is_found(kind, severity, phrases):
    report = check_vector_env(kind(worlds(render_mode="rgb_array")), steps=50)
    assert_found(report, severity, *phrases)
    assert len(report.findings) == 1


def test_frames_are_not_asked_for_without_a_render_mode():
    assert check_vector_env(OneFrame(worlds()), steps=50).findings == ()


def test_no_steps_check_the_reset_alone():
    assert check_vector_env(SyncVectorEnv(worlds()), steps=0).ok


def test_hang_on_a_wrong_number_of_actions_is_found():
    release = threading.Event()

    class Hangs(SyncVectorEnv):
        def step(self, actions):
            if len(actions) != self.num_envs:
                release.wait()
            return super().step(actions)

    report = check_vector_env(Hangs(worlds()), steps=20, timeout_s=0.2)
    release.set()
    assert_found(report, "error", "a wrong number of actions hangs", "no reply within 0.2 s")


@pytest.mark.parametrize(
    ("name", "value", "phrase"),
    [
        ("num_envs", 0, "num_envs is wrong"),
        ("single_action_space", None, "single_action_space is missing or no space"),
        ("closed", True, "this vector environment is closed"),
        ("metadata", {}, "metadata['autoreset_mode'] is no AutoresetMode"),
        ("metadata", {"autoreset_mode": "NextStep"}, "is no AutoresetMode"),
        ("observation_space", CountingWorld().observation_space, "observation_space is not the"),
    ],
)
def test_wrong_attribute_is_an_error(name, value, phrase):
    envs = SyncVectorEnv(worlds())
    setattr(envs, name, value)
    assert_found(check_vector_env(envs, steps=5), "error", phrase)


def test_other_bounds_in_the_batch_are_a_warning():
    envs = SyncVectorEnv([Plain, Plain])
    envs.observation_space = spaces.Box(-3, 3, (2, 2), np.float32)
    report = check_vector_env(envs, steps=5)
    assert_found(report, "warning", "observation_space is not the batch of single_observation_sp")


@pytest.mark.parametrize("subject", [CountingWorld(), None, CountingWorld])
def test_what_is_no_vector_env_is_an_error(subject):
    report = check_vector_env(subject)
    assert len(report.findings) == 1
    assert_found(report, "error", "this is no vector environment")


def test_raising_environment_inside_is_an_error_with_its_place():
    envs = SyncVectorEnv([CountingWorld, lambda: Saboteur("raise", at_step=2)])
    assert_found(check_vector_env(envs), "error", "step raised ValueError (step 2)")


def test_run_without_an_end_is_a_note():
    report = check_vector_env(SyncVectorEnv(worlds()), steps=2)
    assert_found(report, "note", "no episode ended within 2 steps")
