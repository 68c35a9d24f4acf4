"""After whatever broke off a call, the next one gets its own answer."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make, Setting
from faults.recovering import infos_of
from shoal import ConfigError, ContractError, Faults, WorkerDied, WorkerTimeout
from shoal.testing import CountingWorld
from shoal.vector.gym import AsyncVectorEnv

NUM_ENVS = 4
SRC = str(Path(shoal.__file__).parents[1])


class Bomb:
    """Pickles, but cannot be unpickled by the caller."""

    def __reduce__(self) -> Any:
        return os.strerror, ("no number",)


class Talker(CountingWorld):
    """Answers with what the caller cannot always take."""

    def who(self, text: str) -> str:
        return f"env {self.tag} {text}"

    def bomb(self) -> Any:
        return Bomb() if self.tag == 0 else f"old answer of {self.tag}"

    def die_talking(self) -> Any:
        """Announces a large answer and dies before it is sent."""
        if self.tag:
            return "x" * (8 << 20)
        os.kill(os.getpid(), signal.SIGKILL)


def talkers() -> list[Any]:
    return [functools.partial(Talker, tag) for tag in range(NUM_ENVS)]


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


@pytest.fixture
def processes() -> Any:
    with shoal.make(talkers(), backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        yield envs


def test_an_answer_that_cannot_be_read_leaves_no_other_behind(processes: Any) -> None:
    with pytest.raises(TypeError):
        processes.call("bomb")
    assert processes.call("who", "fresh") == tuple(f"env {i} fresh" for i in range(NUM_ENVS))
    processes.step(zeros())


def test_a_death_beside_a_large_answer_leaves_nothing_behind(processes: Any) -> None:
    with pytest.raises(WorkerDied):
        processes.call("die_talking")
    assert processes.call("who", "fresh", env_ids=[2, 3]) == ("env 2 fresh", "env 3 fresh")


def test_an_argument_that_cannot_be_sent_changes_nothing(make: Make, setting: Setting) -> None:
    envs = make(talkers())
    envs.reset(seed=0)
    if setting.backend == "process":
        with pytest.raises(TypeError, match="pickle"):
            envs.call("who", threading.Lock())
    assert envs.call("who", "fresh")[3] == "env 3 fresh"
    envs.step(zeros())


def test_ctrl_c_in_a_step_leaves_everything_usable(make: Make) -> None:
    class Slow(CountingWorld):
        slow = False

        def step(self, action: Any) -> Any:
            if self.slow:
                self.work_s = 0.5
            return super().step(action)

    envs = make([functools.partial(Slow, tag) for tag in range(NUM_ENVS)])
    envs.reset(seed=0)
    envs.set_attr("slow", True)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        envs.step(zeros())
    timer.join()
    envs.set_attr("slow", False)
    envs.set_attr("work_s", 0.0)
    observations, _ = envs.reset(seed=50)
    assert observations[:, 0].tolist() == [50, 51, 52, 53]
    _, rewards, *_ = envs.step(zeros())
    assert len(rewards) == NUM_ENVS
    assert [record.step for record in envs.call("record")] == [1] * NUM_ENVS


def test_infos_of_a_failed_step_do_not_show_up_later(make: Make) -> None:
    class Failing(CountingWorld):
        def step(self, action: Any) -> Any:
            result = super().step(action)
            if self.tag == 3 and action == 4:
                raise ValueError("no")
            return (*result[:4], {f"text {action}": "odd"})

    envs = make([functools.partial(Failing, tag) for tag in range(NUM_ENVS)])
    envs.reset(seed=0)
    with pytest.raises(shoal.EnvRaised):
        envs.step(np.full(NUM_ENVS, 4))
    assert envs.step(np.full(NUM_ENVS, 1))[4].keys() == {"text 1", "_text 1"}


def test_a_second_thread_gets_an_error_not_an_answer(make: Make) -> None:
    envs = make([functools.partial(CountingWorld, tag, work_s=0.3) for tag in range(2)])
    envs.reset(seed=0)
    begun, problems = threading.Event(), []

    def step() -> None:
        begun.set()
        envs.step(np.zeros(2, dtype=np.int64))

    thread = threading.Thread(target=step)
    thread.start()
    begun.wait()
    while thread.is_alive():
        try:
            envs.call("tag")
        except ContractError as error:
            problems.append(str(error))
    thread.join()
    assert any("another thread" in problem for problem in problems)
    assert envs.call("tag") == (0, 1)


def test_a_second_thread_cannot_begin_or_end_anothers_step(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, gate = threading.Event(), threading.Event()

    class Waiting(CountingWorld):
        def step(self, action: Any) -> Any:
            assert gate.wait(5)
            return super().step(action)

    with AsyncVectorEnv([Waiting], backend="thread") as envs:
        pool, zero = envs._pool, np.zeros(1, dtype=np.int64)
        envs.reset(seed=0)
        envs.step_async(zero)
        wait = pool._traffic.has_answered
        monkeypatch.setattr(
            pool._traffic, "has_answered", lambda *args: inside.set() or wait(*args)
        )
        thread = threading.Thread(target=envs.step_wait)
        thread.start()
        assert inside.wait(5)
        with pytest.raises(ContractError, match="another thread"):
            pool.start_step(zero)
        with pytest.raises(ContractError, match="another thread"):
            pool.finish()
        gate.set()
        thread.join()
        assert envs.step(zero)[0][0, 4] == 2


@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize("kind", [AsyncVectorEnv, shoal.make])
def test_infos_have_their_names_after_ctrl_c_between_two_workers(
    kind: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Labelled(CountingWorld):
        """Each of its steps has an info that no step before it had."""

        min_steps = max_steps = 20

        def step(self, action: Any) -> Any:
            *results, _ = super().step(action)
            return *results, {f"step {self._record.step}": float(self.tag)}

    worlds = [functools.partial(Labelled, tag) for tag in range(2)]
    with kind(worlds, backend=backend, num_workers=2) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, dtype=np.int64))
        traffic = envs._pool._traffic
        launch = traffic.launch

        launched = []

        def launch_first(seat: Any, *args: Any) -> None:
            if launched:
                raise KeyboardInterrupt
            launched.append(seat)
            launch(seat, *args)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(traffic, "launch", launch_first)
            envs.step(np.zeros(2, dtype=np.int64))
        for _ in range(4):
            infos = envs.step(np.zeros(2, dtype=np.int64))[4]
            records = envs.call("record")
            expected = [{f"step {record.step}": float(record.tag)} for record in records]
            assert infos_of(infos, [0, 1]) == expected
        assert sorted(record.step for record in records) == [5, 6]


def test_a_fork_of_the_caller_may_not_use_them() -> None:
    with shoal.make(CountingWorld, 2, backend="process") as envs:
        envs.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            try:
                envs.call("tag")
            except ContractError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert envs.call("tag") == (0, 0)


def test_a_module_that_makes_environments_when_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "top_make.py").write_text(
        "import gymnasium, shoal\n"
        "class Env(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
        "envs = shoal.make(Env, 2, backend='process')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import top_make"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SRC},
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "makes environments when it is imported" in done.stderr


def test_a_module_that_takes_for_ever_to_import_runs_into_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_module.py").write_text(
        "import os, time\n"
        "from shoal.testing import CountingWorld\n"
        f"while os.getpid() != {os.getpid()}:\n"
        "    time.sleep(0.1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerTimeout, match="slow_module"):
        shoal.make(
            "slow_module:CountingWorld",
            2,
            backend="process",
            faults=Faults(start_timeout_s=1.0),
        )


def test_long_last_words_do_not_stop_anyone() -> None:
    class Chatty(CountingWorld):
        def step(self, action: Any) -> Any:
            if self.tag == 1:
                os.write(2, (b"y" * 1000 + b"\n") * 2000)
                os._exit(1)
            for _ in range(2000):
                print("x" * 100)
            return super().step(action)

    worlds = [functools.partial(Chatty, tag) for tag in range(2)]
    with shoal.make(worlds, backend="process", num_workers=2, on_failure="raise") as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="exited with code 1") as caught:
            envs.step(np.zeros(2, dtype=np.int64))
    assert len(str(caught.value)) < 10_000


def test_a_quick_environment_is_never_taken_for_a_hanging_one() -> None:
    with shoal.make(
        CountingWorld, 64, backend="process", num_workers=1, step_timeout_s=0.05
    ) as envs:
        envs.reset(seed=0)
        pause = threading.Event()
        for _ in range(20):
            envs.step(np.zeros(64, dtype=np.int64))
            pause.wait(0.06)


def test_workers_close_side_by_side(tmp_path: Path) -> None:
    class Slow(CountingWorld):
        def close(self) -> None:
            threading.Event().wait(0.5)
            (tmp_path / f"closed-{self.tag}").touch()

    worlds = [functools.partial(Slow, tag) for tag in range(4)]
    envs = shoal.make(worlds, backend="process", num_workers=4)
    envs.reset(seed=0)
    envs.close(timeout_s=1.8)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_views_and_flags_of_a_sent_step_belong_together(backend: str) -> None:
    with shoal.make(
        CountingWorld, 2, backend=backend, num_workers=2, copy=False, autoreset="same_step"
    ) as envs:
        envs.reset(seed=0)
        envs.send(np.array([1]), env_ids=[0])
        mask = {"reset_mask": np.array([False, True])}
        envs.reset(options=dict(mask))
        envs.reset(options=dict(mask))
        batch = envs.recv()
        assert batch.observations[0, 4] == 1
        assert batch.rewards[0] != 0


def test_a_fork_made_in_a_thread_outlives_it() -> None:
    made: list[shoal.VectorEnv] = []
    maker = threading.Thread(
        target=lambda: made.append(
            shoal.make(CountingWorld, 2, backend="process", num_workers=2, start_method="fork")
        )
    )
    maker.start()
    maker.join()
    with made[0] as envs:
        envs.reset(seed=0)
        threading.Event().wait(0.2)
        assert envs.call("tag") == (0, 0)


def test_make_refuses_what_auto_could_not_keep() -> None:
    with shoal.make(CountingWorld, 1, step_timeout_s=5.0) as envs:
        assert envs.stats()["backend"] == "process"
    with pytest.raises(ConfigError, match="step_timeout_s needs workers that can be ended"):
        shoal.make(CountingWorld, 1, backend="serial", step_timeout_s=5.0)
