"""`shoal.train`, `shoal.load`, `shoal.evaluate`: training from Python as from the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from shoal.algos.agent import Agent, MakeNetwork
from shoal.algos.company import Company
from shoal.monitor import Undertaking
from shoal.monitor.console import is_seen
from shoal.training import request, save
from shoal.training.calibrate import one_env_steps_per_s
from shoal.training.checkpoint import Checkpoint
from shoal.training.config import PPORun
from shoal.training.envs import find_env
from shoal.training.evaluate import Evaluation, warn_of_cut
from shoal.training.evaluate import evaluate as play_episodes
from shoal.training.folder import Folder
from shoal.training.lineup import Troupe, company_of, described
from shoal.training.loop import Callback
from shoal.training.players import Members, Player, player_of
from shoal.training.ppo import Training, threads
from shoal.training.run import BEST, Conduct, Run
from shoal.training.settings import dump_yaml, to_mapping
from shoal.training.spaces import space_of
from shoal.vector.source import Source


def train(
    what: str | PPORun = "ppo",
    *,
    env: Source | None = None,
    policy: MakeNetwork | None = None,
    callbacks: Sequence[Callback] = (),
    shows: bool | None = None,
    **overrides: Any,
) -> Run:
    """Train an agent; returns what the run has left: its folder, the agent and a summary.

    `what` is an algorithm's name or a whole configuration, `env` anything that `shoal.make` takes;
    other keywords are fields of the configuration, of whichever group (`n_envs=8`,
    `learning_rate=1e-3`). `policy` makes the network: called with the observation space and the
    number of parameters that actions need, it returns a `torch.nn.Module`. A callback is called
    after every update, and can stop the run, change things and write metrics. Progress is shown
    where there is a terminal or a notebook; `shows` decides otherwise.
    """
    config = request.settle(what, env, overrides)
    request.check_packages(config)
    checkpoint = request.checkpoint_of(config)
    source = request.source_of(env, config, config.run.resume_from)
    folder = request.folder_of(config, checkpoint)
    config = request.in_folder(config, folder)
    with (
        _opened(config, source, policy, folder, checkpoint) as training,
        threads(config.run.num_threads, training.agent),
    ):
        alone = _pace_alone(config, source, policy)
        undertaking = _undertaking(config, training, folder)
        conduct = Conduct(training, folder, config.output, undertaking, to_mapping(config), alone)
        return conduct.run(callbacks, is_seen() if shows is None else shows)


def _opened(
    config: PPORun,
    source: Source,
    policy: MakeNetwork | None,
    folder: Folder,
    checkpoint: Checkpoint | None,
) -> Training:
    """The run's parts, ready to go on; where they cannot be made no empty folder is left."""
    with ExitStack() as on_failure:
        on_failure.callback(folder.discard)
        training = on_failure.enter_context(Training(config, source, policy, folder.videos))
        if checkpoint is not None:
            training.resume(checkpoint)
        folder.write_config(dump_yaml(config))
        on_failure.pop_all()
    return training


def _pace_alone(config: PPORun, source: Source, policy: MakeNetwork | None) -> float | None:
    if not config.output.calibrate or config.envs.n_envs == 1:
        return None
    return one_env_steps_per_s(config, source, policy)


def _undertaking(config: PPORun, training: Training, folder: Folder) -> Undertaking:
    stats = training.envs.stats()
    return Undertaking(
        algorithm="PPO",
        env=config.envs.env,
        num_envs=config.envs.n_envs,
        backend=stats["backend"],
        start_method=stats["start_method"],
        total_steps=config.goal.total_steps,
        total_episodes=config.goal.num_episodes,
        log_interval=config.output.log_interval,
        device=str(training.device),
        folder=folder.root,
        first_step=training.source.step,
        first_episode=training.source.episodes.num_ended,
    )


def load(path: str | Path, policy: MakeNetwork | None = None) -> Player | Members:
    """The agent of a run's folder (its best) or of a checkpoint, ready to `act`.

    Where there were several agents, each is asked by its name: `act(observation, agent=...)`. A
    policy that was given to `train` has to be given here, too: no code is kept in a checkpoint.
    """
    agent, troupe = _agent(*_found(path), policy)
    if isinstance(agent, Agent):
        return Player(agent)
    assert troupe is not None
    return Members(agent, troupe)


def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    env: Source | None = None,
    policy: MakeNetwork | None = None,
    seed: int = 0,
    deterministic: bool = True,
    against: Literal["auto", "itself", "random"] = "auto",
    max_steps: int | None = None,
) -> Evaluation:
    """How the agent of a run's folder or checkpoint does, on its own environment or another.

    Its own is made as the checkpoint says: name it yourself where you do not trust the file. Where
    agents take turns it plays `against` random players, from each seat in turn, or itself. Episodes
    that do not end are left after `max_steps` (None: the run's `eval_max_steps`).
    """
    found, checkpoint = _found(path)
    config = request.config_of(checkpoint, found)
    source = request.source_of(env, config, found)
    agent, troupe = _agent(found, checkpoint, policy)
    factory = find_env(source, config.envs.env_kwargs).factories[0]
    space = space_of(checkpoint.about["observation_space"])
    player = player_of(
        agent, troupe, space, deterministic=deterministic, seed=seed, against=against
    )
    most = config.output.eval_max_steps if max_steps is None else max_steps
    fitting = _fitting(factory, checkpoint)
    evaluation = play_episodes(player, fitting, episodes, seed=seed, max_steps=most)
    if evaluation.num_cut:
        warn_of_cut(evaluation, most)
    return evaluation


def _found(path: str | Path) -> tuple[Path, Checkpoint]:
    return save.find(Path(path), BEST)


def _agent(
    path: Path, checkpoint: Checkpoint, policy: MakeNetwork | None
) -> tuple[Agent | Company, Troupe | None]:
    about, config = checkpoint.about, request.config_of(checkpoint, path)
    agent: Agent | Company
    troupe = None
    if about.get("cast") is None:
        spaces = space_of(about["observation_space"]), space_of(about["action_space"])
        agent = Agent(*spaces, config.network, policy)
    else:
        troupe = described(about["cast"], config.envs.policies, config.ppo.central_critic)
        agent = company_of(troupe, config.network, policy)
    save.load_weights(agent, checkpoint)
    return agent, troupe


def _fitting(make_env: Callable[[], Any], checkpoint: Checkpoint) -> Callable[[], Any]:
    """The same; ConfigError where it makes environments that the checkpoint is not for."""

    def make() -> Any:
        env = make_env()
        try:
            save.check_spaces(checkpoint.about, env.observation_space, env.action_space)
        except BaseException:
            env.close()
            raise
        return env

    return make
