"""Does everyone import only downwards? The picture is in pyproject.toml, import-linter holds it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = {
    "Box2D",
    "agilerl",
    "mujoco",
    "pettingzoo",
    "pyboy",
    "ray",
    "stable_baselines3",
    "torch",
    "wandb",
}


def test_every_layer_imports_only_from_those_below() -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_contract_covers_every_module_and_every_optional_package() -> None:
    layers, optional = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert layers["exhaustive"]
    assert layers["containers"] == ["shoal"]
    assert set(optional["forbidden_modules"]) == OPTIONAL


def test_the_order_of_layers_is_that_of_the_design() -> None:
    layers, _ = PYPROJECT["tool"]["importlinter"]["contracts"]
    order = [name.strip(" ()") for layer in layers["layers"] for name in re.split("[|:]", layer)]
    # "training": `shoal.train` is the function.
    design = [
        "cli",
        "training",
        "algos",
        "monitor",
        "rollout",
        "vector",
        "envs",
        "engine",
        "layout",
    ]
    assert [name for name in order if name in design] == design
    assert order[-4:] == ["layout", "seeding", "extras", "errors"]


def test_the_core_needs_only_three_packages() -> None:
    names = {need.split(">")[0].split("[")[0] for need in PYPROJECT["project"]["dependencies"]}
    assert names == {"numpy", "gymnasium", "cloudpickle"}


def test_what_is_optional_has_an_extra() -> None:
    extras = set(PYPROJECT["project"]["optional-dependencies"])
    kinds = {"train", "multiagent", "mujoco", "gameboy", "ray", "sb3", "wandb", "video"}
    assert extras == kinds | {"dev", "all"}
    (everything,) = PYPROJECT["project"]["optional-dependencies"]["all"]
    assert set(everything.split("[")[1].rstrip("]").split(",")) == kinds


def test_there_is_one_training_loop() -> None:
    """Whoever calls `learner.update` makes a second one; what only measures that is no loop."""
    source = ROOT / "src" / "shoal"
    found = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and _names_a_learner(node.func)
    }
    assert found == {"training/loop.py", "training/calibrate.py"}


def _names_a_learner(called: ast.expr) -> bool:
    """As in `learner.update` or `self._learner.update`."""
    if not (isinstance(called, ast.Attribute) and called.attr == "update"):
        return False
    owner = called.value
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return "learner" in name.lower()
