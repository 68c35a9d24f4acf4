"""The counting world shows every misrouting, and a saboteur fails just as and when it was told."""

import copy
import pickle
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.testing import CountingRecord, CountingWorld, Saboteur, decode
from shoal.testing.forms import ACTIONS, OBSERVATIONS
from shoal.testing.leaf import frozen, same
from shoal.testing.saboteurs import (
    BAD_DATA,
    EXIT_CODE,
    RAISES,
    WHENS,
    NeedsArgsError,
    UnpicklableError,
)
from shoal.testing.worlds import reward_of

DECODABLE = [form for form in OBSERVATIONS if form != "discrete"]


def run_episode(world, seed=None, action=0, **arguments):
    """All observations and rewards of one episode, and how it ended."""
    observation, _ = world.reset(seed=seed, **arguments)
    observations, rewards, ended = [frozen(observation)], [], (False, False)
    while not any(ended):
        observation, reward, *ended, _ = world.step(action)
        observations.append(frozen(observation))
        rewards.append(reward)
    return observations, rewards, tuple(ended)


# --- the counting world -----------------------------------------------------


@pytest.mark.parametrize("form", DECODABLE)
def test_every_form_says_where_it_was_made(form):
    world = CountingWorld(5, obs=form)
    world.reset(seed=11, options={"task": 4})
    observation, *_ = world.step(2)
    record = decode(observation)
    assert record[:6] == (11, 5, 0, 0, 1, 4)
    assert record == world.record()


@pytest.mark.parametrize("reuse_buffer", [False, True])
@pytest.mark.parametrize("form", OBSERVATIONS)
def test_observations_are_in_their_space(form, reuse_buffer):
    world = CountingWorld(obs=form, reuse_buffer=reuse_buffer)
    for seed in (3, None, None):
        observations, _, _ = run_episode(world, seed)
        assert all(observation in world.observation_space for observation in observations)


def test_discrete_form_differs_between_environments():
    seen = {int(CountingWorld(tag, obs="discrete").reset(seed=0)[0]) for tag in range(20)}
    assert len(seen) == 20


@pytest.mark.parametrize("form", OBSERVATIONS)
def test_reused_buffers_hold_the_same_values_as_fresh_ones(form):
    fresh = run_episode(CountingWorld(obs=form), seed=1)
    assert same(run_episode(CountingWorld(obs=form, reuse_buffer=True), seed=1), fresh)


@pytest.mark.parametrize("form", ["vector", "dict", "pixels"])
def test_reused_buffer_is_overwritten_and_a_fresh_one_is_not(form):
    for reuse_buffer in (True, False):
        world = CountingWorld(obs=form, reuse_buffer=reuse_buffer)
        first, _ = world.reset(seed=0)
        before = frozen(first)
        second, *_ = world.step(0)
        assert (second is first) == reuse_buffer
        assert same(first, before) != reuse_buffer


def test_same_seed_and_actions_give_the_same_episode():
    assert same(run_episode(CountingWorld(), seed=8), run_episode(CountingWorld(), seed=8))
    assert not same(run_episode(CountingWorld(), seed=8), run_episode(CountingWorld(), seed=9))


def test_seeded_reset_makes_a_used_world_new():
    world = CountingWorld()
    first = run_episode(world, seed=8)
    run_episode(world)
    assert same(run_episode(world, seed=8), first)


def test_episodes_are_uneven_and_end_in_all_three_ways():
    world = CountingWorld()
    runs = [run_episode(world, 0 if episode == 0 else None) for episode in range(60)]
    lengths = {len(rewards) for _, rewards, _ in runs}
    assert min(lengths) >= 3
    assert max(lengths) <= 20
    assert len(lengths) > 8
    assert {ended for *_, ended in runs} == {(True, False), (False, True), (True, True)}


def test_seed_stays_and_episode_goes_up():
    world = CountingWorld()
    world.reset(seed=7)
    shown = [decode(world.reset()[0]) for _ in range(3)]
    assert [(r.seed, r.episode) for r in shown] == [(7, 1), (7, 2), (7, 3)]


def test_first_reset_without_a_seed_works():
    assert decode(CountingWorld().reset()[0])[:5] == (-1, 0, 0, 0, 0)


def test_task_lasts_one_episode():
    world = CountingWorld()
    observations, _, _ = run_episode(world, seed=0, options={"task": 9})
    assert {decode(observation).task for observation in observations} == {9}
    assert decode(world.reset()[0]).task == 0


@pytest.mark.parametrize("form", ACTIONS)
def test_reward_is_that_of_the_action_received(form):
    world = CountingWorld(action=form)
    world.reset(seed=5)
    space = world.action_space
    space.seed(0)
    first, second = space.sample(), space.sample()
    _, reward, *_ = world.step(first)
    assert reward == reward_of(space, first, seed=5, step=1)
    assert reward != reward_of(space, second, seed=5, step=1)
    assert reward != reward_of(space, first, seed=5, step=2)
    assert reward != reward_of(space, first, seed=6, step=1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=3), st.permutations([0, 1, 2]))
def test_checksum_tells_orders_of_actions_apart(actions, order):
    def heard(sequence):
        world = CountingWorld()
        world.reset(seed=0)
        return [decode(world.step(action)[0]).heard for action in sequence][-1]

    other = [actions[i] for i in order if i < len(actions)]
    assert (heard(other) == heard(actions)) == (other == actions)


def test_cast_to_the_action_space_changes_nothing():
    world = CountingWorld(action="box")
    single = np.array([0.1, -0.7, 0.3], np.float32)
    double = single.astype(np.float64)
    world.reset(seed=0)
    _, first, *_ = world.step(single)
    world.reset(seed=0)
    assert world.step(double)[1] == first


def test_action_of_another_structure_is_refused():
    world = CountingWorld(action="box")
    world.reset(seed=0)
    with pytest.raises(ValueError, match="wrong shape: expected \\(3,\\), got \\(2,\\)"):
        world.step(np.zeros(2, np.float32))


def test_bonus_shows_in_the_reward():
    world = CountingWorld()
    world.reset(seed=0)
    world.bonus = 100.0
    assert world.step(0)[1] == 100.0 + reward_of(world.action_space, 0, seed=0, step=1)


def test_stepping_without_a_running_episode_is_an_error():
    world = CountingWorld()
    with pytest.raises(RuntimeError, match="without a running episode"):
        world.step(0)
    run_episode(world, seed=0)
    with pytest.raises(RuntimeError, match="Call reset first"):
        world.step(0)


def test_without_history_an_episode_is_a_function_of_the_generator():
    world, other = CountingWorld(history=False), CountingWorld(history=False)
    run_episode(world, seed=3)
    other.reset(seed=99)
    other.np_random.bit_generator.state = copy.deepcopy(world.np_random.bit_generator.state)
    assert same(run_episode(other), run_episode(world))


def infos_of(form, tag=0):
    world = CountingWorld(tag, infos=form)
    infos = [world.reset(seed=0)[1]]
    infos += [world.step(0)[4] for _ in range(3)]
    return infos


def test_numeric_infos_have_one_type_a_key_at_every_step():
    for info in infos_of("numeric"):
        kinds = {key: type(value) for key, value in info.items()}
        assert kinds == {
            "step": int,
            "fraction": float,
            "even": bool,
            "gain": np.float32,
            "trail": np.ndarray,
        }


def test_mixed_infos_hold_objects_and_dicts_too():
    kinds = {type(value) for value in infos_of("mixed")[1].values()}
    assert {str, type(None), dict, list, int, np.ndarray} <= kinds


def test_sparse_infos_differ_between_steps_and_environments():
    assert len({tuple(info) for info in infos_of("sparse")}) > 1
    assert [set(info) for info in infos_of("sparse", 0)] != [
        set(info) for info in infos_of("sparse", 1)
    ]


def test_infos_none_are_empty():
    assert infos_of("none") == [{}] * 4


def test_picture_shows_the_step():
    world = CountingWorld(3, render_mode="rgb_array")
    world.reset(seed=0)
    world.reset()
    world.step(0)
    frame = world.render()
    assert (frame.dtype, frame.shape) == (np.uint8, (8, 8, 3))
    assert frame[0, 0].tolist() == [1, 1, 3]
    assert CountingWorld().render() is None


def test_work_takes_the_time_given():
    world = CountingWorld(work_s=0.01)
    world.reset(seed=0)
    begin = time.perf_counter()
    world.step(0)
    assert time.perf_counter() - begin >= 0.01


@pytest.mark.parametrize("argument", ["obs", "action", "infos"])
def test_unknown_form_is_named_with_the_known_ones(argument):
    with pytest.raises(ValueError, match=f"unknown {argument}='odd': expected one of"):
        CountingWorld(**{argument: "odd"})


def test_echo_and_closes_tell_what_was_called():
    world = CountingWorld(4)
    assert world.echo(1, two=2) == (4, (1,), {"two": 2})
    world.close()
    assert world.closes == 1


def test_record_fields_are_the_vector_in_order():
    world = CountingWorld()
    observation, _ = world.reset(seed=0)
    assert CountingRecord(*observation.tolist()) == decode(observation)


# --- saboteurs --------------------------------------------------------------

RAISED = {
    "raise": ValueError,
    "raise_unpicklable": UnpicklableError,
    "raise_needs_args": NeedsArgsError,
    "raise_percent": ValueError,
    "keyboard_interrupt": KeyboardInterrupt,
    "sys_exit": SystemExit,
}


def drive_to(env, episode, step):
    """Be one step before ``step`` of ``episode``."""
    env.reset(seed=0)
    for _ in range(episode):
        env.reset()
    for _ in range(step - 1):
        env.step(0)


@pytest.mark.parametrize("how", RAISES)
def test_saboteur_raises_at_its_step_and_not_before(how):
    env = Saboteur(how, at_episode=1, at_step=2)
    drive_to(env, episode=1, step=2)
    with pytest.raises(RAISED[how]):
        env.step(0)
    env.step(0)


def test_messages_with_percent_signs_and_places():
    env = Saboteur("raise_percent")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"in step \(episode 0, step 1\) with %s %d"):
        env.step(0)


def test_exceptions_resist_pickling_as_promised():
    with pytest.raises(TypeError):
        pickle.dumps(UnpicklableError("text"))
    data = pickle.dumps(NeedsArgsError("text", "detail"))
    with pytest.raises(TypeError):
        pickle.loads(data)


PHASES = {
    "construct": lambda: Saboteur("raise", "construct"),
    "reset": lambda: Saboteur("raise", "reset").reset(),
    "render": lambda: Saboteur("raise", "render").render(),
    "call": lambda: Saboteur("raise", "call").poke(),
    "close": lambda: Saboteur("raise", "close").close(),
}


@pytest.mark.parametrize("when", PHASES)
def test_saboteur_fails_in_its_phase(when):
    with pytest.raises(ValueError, match=f"sabotage in {when}"):
        PHASES[when]()


@pytest.mark.parametrize("when", [when for when in WHENS if when != "construct"])
def test_saboteur_does_all_else_well(when):
    env = Saboteur("raise", when, at_episode=1, at_step=2)
    env.reset(seed=0)
    env.step(0)
    others = {"render": env.render, "call": env.poke, "close": env.close}
    results = [method() for phase, method in others.items() if phase != when]
    assert "well" in results or when == "call"


def test_reset_fails_in_its_episode_only():
    env = Saboteur("raise", "reset", at_episode=1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="episode 1"):
        env.reset()
    env.reset()


def test_marker_file_makes_the_failure_happen_once(tmp_path):
    marker = tmp_path / "failed"
    for expected in (True, False):
        env = Saboteur("raise", once_path=marker)
        env.reset(seed=0)
        assert marker.exists() != expected
        if expected:
            with pytest.raises(ValueError, match="sabotage"):
                env.step(0)
        else:
            env.step(0)


@pytest.mark.parametrize("when", ["reset", "step"])
@pytest.mark.parametrize("how", BAD_DATA)
def test_bad_data_comes_once_and_from_a_good_world(how, when):
    env = Saboteur(how, when, at_episode=1, at_step=1)
    good = [env.reset(seed=0)[0], env.step(0)[0]]
    bad = env.reset()[0]
    if when == "step":
        good.append(bad)
        bad = env.step(0)[0]
    good.append(env.step(0)[0])
    assert all(observation in env.observation_space for observation in good)
    if how == "inf":
        assert np.isinf(bad["half"]).any()
    elif how == "none_obs":
        assert bad is None
    else:
        assert bad not in env.observation_space


def test_broadcastable_shape_would_be_repeated_by_numpy():
    env = Saboteur("broadcastable_shape", "reset")
    observation, _ = env.reset(seed=0)
    assert np.broadcast_to(observation, env.observation_space.shape).shape == (8,)


def test_any_environment_can_be_spoiled():
    env = Saboteur("nan", env=gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    assert np.isnan(env.step(0)[0]).any()


def test_leak_grows_from_its_step_on():
    env = Saboteur("leak", at_step=2)
    env.leak_bytes = 1000
    env.reset(seed=0)
    sizes = []
    for _ in range(3):
        env.step(0)
        sizes.append(sum(map(len, env.leaked)))
    assert sizes == [0, 1000, 2000]


def test_print_writes_to_both_streams(capfd):
    env = Saboteur("print")
    env.reset(seed=0)
    env.step(0)
    out, err = capfd.readouterr()
    assert out == "sabotage in step (episode 0, step 1), to stdout\n"
    assert err == "sabotage in step (episode 0, step 1), to stderr\n"


def run_alone(how, first_lines=""):
    """The saboteur in a process of its own; returns what ``subprocess.run`` does."""
    script = (
        "from shoal.testing import Saboteur\n"
        f"env = Saboteur({how!r})\nenv.reset(seed=0)\n{first_lines}\nenv.step(0)\n"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="other exit codes")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("os_exit", EXIT_CODE),
        ("sigkill", -signal.SIGKILL),
        ("sigsegv", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
    ],
)
def test_deaths_leave_their_exit_codes(how, code):
    assert run_alone(how).returncode == code


@pytest.mark.parametrize("how", ["hang_sleep", "hang_spin"])
def test_hangs_stay_where_they_are(how):
    watch = "import faulthandler; faulthandler.dump_traceback_later(0.3, exit=True)"
    result = run_alone(how, watch)
    assert result.returncode == 1
    assert f"in _{how}" in result.stderr


@pytest.mark.parametrize(
    ("how", "when", "message"),
    [
        ("odd", "step", "unknown how='odd'"),
        ("raise", "odd", "unknown when='odd'"),
        ("none_obs", "close", "spoils observations: expected when='reset' or 'step'"),
    ],
)
def test_plans_that_make_no_sense_are_refused(how, when, message):
    with pytest.raises(ValueError, match=message):
        Saboteur(how, when)
