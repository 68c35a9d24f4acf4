"""Does a checkpoint come back whole or not at all, whatever happened to it?"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from shoal.errors import ConfigError  # noqa: E402
from shoal.monitor import whole  # noqa: E402
from shoal.training import checkpoint  # noqa: E402
from shoal.training.checkpoint import (  # noqa: E402
    Checkpoint,
    newest,
    read,
    sweep,
    write,
)

ABOUT = {"step": 7, "text": "é☃", "none": None, "list": [1, 2.5, "x"], "big": 2**127 + 1}


def sample(step: int = 7) -> Checkpoint:
    tensors = {"weight": torch.arange(12.0).reshape(3, 4), "count": torch.tensor(step)}
    return Checkpoint(tensors, ABOUT | {"step": step})


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.about == other.about
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.safetensors"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def run(program: str, *arguments: Any, timeout_s: float = 60) -> str:
    """What a program prints that has its own process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- there and back ------------------------------------------------------------------------------

KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
KINDS += [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_tensors_come_back_as_they_were(kind: Any, shape: tuple[int, ...], path: Path) -> None:
    tensor = (torch.rand(shape) * 3).to(kind)
    write(path, Checkpoint({"a": tensor}, {}))
    found = read(path).tensors["a"]
    assert found.dtype == kind
    assert found.shape == shape
    assert torch.equal(found, tensor)


def test_what_is_said_about_them_comes_back_too(path: Path) -> None:
    write(path, sample())
    assert_same(read(path), sample())


def test_a_checkpoint_may_be_empty(path: Path) -> None:
    write(path, Checkpoint({}, {}))
    assert read(path) == Checkpoint({}, {})


def test_tensors_may_share_memory_and_lie_in_pieces(path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tied = {"a": whole, "again": whole, "turned": whole.T, "part": whole[1:, ::2]}
    tied |= {"grad": torch.nn.Parameter(whole), "many": torch.ones(1).expand(5)}
    write(path, Checkpoint(tied, {}))
    found = read(path).tensors
    for name, tensor in tied.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].is_contiguous()
    found["a"].zero_()
    assert torch.equal(found["again"], whole), "and what comes back shares nothing"
    assert not whole.eq(0).all()


def test_what_comes_back_can_be_written_to(path: Path) -> None:
    write(path, sample())
    read(path).tensors["weight"].add_(1)
    assert_same(read(path), sample())


def test_a_string_of_zeros_is_no_checksum(path: Path) -> None:
    about = {"checksum": "0" * 64, "zeros": 10**64}
    write(path, Checkpoint({"0" * 64: torch.ones(1)}, about))
    assert read(path).about == about


def test_others_can_read_it_too(path: Path) -> None:
    write(path, sample())
    assert safetensors.load_file(path).keys() == sample().tensors.keys()


def test_the_same_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name, sample())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_can_be_replaced_while_what_it_held_is_in_use(path: Path) -> None:
    write(path, sample(1))
    found = read(path)
    write(path, sample(2))
    path.unlink()
    assert_same(found, sample(1))


@pytest.mark.parametrize(
    ("tensors", "about"),
    [({"a": np.ones(3)}, {}), ({}, {"a": object()}), ({}, {"a": np.int64(1)})],
    ids=["array", "object", "numpy number"],
)
def test_what_cannot_be_kept_is_a_type_error_and_writes_nothing(
    tensors: Any, about: Any, path: Path
) -> None:
    with pytest.raises(TypeError):
        write(path, Checkpoint(tensors, about))
    assert names(path.parent) == []


# --- what is wrong with a file -------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    assert "there is no checkpoint" in refusal(tmp_path / "no.safetensors")
    assert "is a folder" in refusal(tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be read: Not a directory" in refusal(tmp_path / "file" / "a.safetensors")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" * 100, "is no checkpoint"),
        (b"hello", "is cut short"),
        (b"\x02" + bytes(7) + b"{}", "is damaged, or no checkpoint of Shoal"),
        (b"\x02" + bytes(7) + b"[]", "is damaged, or no checkpoint of Shoal"),
        (b"\x02" + bytes(7) + b"\xff\xff", "is damaged, or no checkpoint of Shoal"),
        (b"\x00\x00\x01" + bytes(5) + b"[" * 65536, "is damaged, or no checkpoint of Shoal"),
    ],
)
def test_what_is_no_checkpoint_is_told(content: bytes, says: str, path: Path) -> None:
    path.write_bytes(content)
    assert says in refusal(path)


def test_tensors_of_others_are_told_apart(path: Path) -> None:
    safetensors.save_file({"a": torch.ones(3)}, path, {"format": "pt"})
    assert "no checkpoint of Shoal" in refusal(path)


def test_a_file_that_was_cut_is_noticed_wherever_that_was(path: Path) -> None:
    write(path, sample())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert re.search("is empty|is cut short|is damaged", refusal(path)), length
    path.write_bytes(whole + b"\x00")
    assert "is damaged" in refusal(path)


def test_a_flipped_bit_is_noticed_wherever_it_is(path: Path) -> None:
    write(path, sample())
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 5, 7):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            refusal(path)
    path.write_bytes(whole)
    assert_same(read(path), sample())


def test_other_white_space_in_the_header_is_noticed(path: Path) -> None:
    """Which changes nothing that JSON would tell."""
    for length in range(8):  # until the header is filled up with spaces
        write(path, Checkpoint({"a": torch.ones(1)}, {"text": "x" * length}))
        raw = bytearray(path.read_bytes())
        end = 8 + int.from_bytes(raw[:8], "little")
        if raw[end - 1 : end] == b" ":
            break
    before = json.loads(raw[8:end])
    raw[end - 1 : end] = b"\n"
    assert json.loads(raw[8:end]) == before
    path.write_bytes(raw)
    assert "its checksum is another" in refusal(path)


def test_a_file_with_the_right_checksum_and_wrong_tensors_is_refused(path: Path) -> None:
    write(path, sample())
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    head = re.sub(rb'(checksum\\": \\")[0-9a-f]{64}', rb"\g<1>" + b"0" * 64, raw[:end])
    head = head.replace(b"F32", b"F64")
    forged = checkpoint._checksum(head, raw[end:]).encode()
    path.write_bytes(head.replace(b"0" * 64, forged, 1) + raw[end:])
    assert "holds no tensors" in refusal(path)


def test_a_newer_format_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 2)
        write(path, sample())
    told = refusal(path)
    assert "is of format 2, and this version of Shoal knows formats up to 1" in told
    assert "pip install -U" in told


def test_older_formats_are_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(old: Checkpoint) -> Checkpoint:
        return Checkpoint({"w": old.tensors["weight"]}, {"steps": old.about["step"]})

    def count(old: Checkpoint) -> Checkpoint:
        return Checkpoint(old.tensors, {"step": old.about["steps"] + 1})

    write(path, sample())
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    monkeypatch.setattr(checkpoint, "_MIGRATIONS", {1: rename, 2: count})
    found = read(path)
    assert found.tensors.keys() == {"w"}
    assert found.about == {"step": 8}


def test_a_format_that_is_too_old_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, sample())
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    assert "is of format 1, which is not read any more" in refusal(path)


# --- writing -------------------------------------------------------------------------------------


def test_nothing_else_is_left_beside_it(path: Path) -> None:
    write(path, sample(1))
    write(path, sample(2))
    assert names(path.parent) == [path.name]
    assert_same(read(path), sample(2))


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_its_mode_is_as_the_umask_says(umask: int, path: Path) -> None:
    before = os.umask(umask)
    try:
        write(path, sample())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_it_is_private_while_it_is_written(path: Path) -> None:
    seen = []

    def pieces() -> Any:
        (beside,) = path.parent.iterdir()
        seen.append((beside.name, beside.stat().st_mode & 0o777))
        yield b"content"

    whole.write(path, pieces())
    ((name, mode),) = seen
    assert mode == 0o600
    assert name != path.name
    assert path.read_bytes() == b"content"


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be synchronised")
def test_it_is_on_the_disk_before_it_bears_its_name_and_so_is_the_name_then(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, bool]] = []
    sync, rename = os.fsync, os.replace

    def watched_sync(fd: int) -> None:
        done.append(("sync", stat.S_ISDIR(os.fstat(fd).st_mode)))
        sync(fd)

    def watched_rename(old: Path, new: Path) -> None:
        done.append(("rename", old.stat().st_size > 0))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_rename)
    write(path, sample())
    assert done == [("sync", False), ("rename", True), ("sync", True)]


def test_a_folder_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "gone" / "a.safetensors", sample())
    assert names(tmp_path) == []


def test_a_name_that_is_a_folder_is_an_os_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write(path, sample())
    assert names(path.parent) == [path.name]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_an_os_error(path: Path) -> None:
    write(path, sample(1))
    path.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            write(path, sample(2))
    finally:
        path.parent.chmod(0o700)
    assert names(path.parent) == [path.name]
    assert_same(read(path), sample(1))


FULL = """
    import resource, sys, torch
    from shoal.training.checkpoint import Checkpoint, write

    for limit_bytes in (0, 10, 100_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        try:
            write(sys.argv[1], Checkpoint({"a": torch.ones(100_000)}, {"step": 2}))
        except OSError as problem:
            print(problem.strerror)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of file sizes")
def test_no_room_is_an_os_error_and_the_old_file_stays(path: Path) -> None:
    write(path, sample(1))
    assert run(FULL, path).splitlines() == ["File too large"] * 3
    assert names(path.parent) == [path.name]
    assert_same(read(path), sample(1))


def test_an_interruption_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    def pieces() -> Any:
        yield b"half"
        raise KeyboardInterrupt

    write(path, sample(1))
    with pytest.raises(KeyboardInterrupt):
        whole.write(path, pieces())
    assert names(path.parent) == [path.name]
    assert_same(read(path), sample(1))


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    import torch
    from shoal.training.checkpoint import Checkpoint, read, sweep, write

    torch.set_num_threads(1)  # threads do not survive a fork
    path, kills = Path(sys.argv[1]), int(sys.argv[2])
    both = [Checkpoint({"a": torch.full((50_000,), float(k))}, {"step": k}) for k in range(2)]
    write(path, both[0])
    torn = killed = 0
    while killed < kills or not torn:  # until one was struck while it wrote
        heard, says = os.pipe()
        child = os.fork()
        if child == 0:
            while True:
                for one in both:
                    write(path, one)
                    os.write(says, b".")
        os.close(says)
        for _ in range(random.randint(1, 3)):
            assert os.read(heard, 1)
        until = time.perf_counter() + random.uniform(0, 0.004)
        while time.perf_counter() < until:
            pass
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        os.close(heard)
        killed += 1
        found = read(path)
        assert torch.equal(found.tensors["a"], both[found.about["step"]].tensors["a"])
        torn += len(sweep(path.parent))
        assert os.listdir(path.parent) == [path.name]
    print(killed, torn)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL")
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(path: Path) -> None:
    killed, torn = map(int, run(KILLED, path, 20, timeout_s=100).split())
    assert killed >= 20
    assert torn >= 1


def test_sweeping_spares_what_is_being_written(path: Path) -> None:
    def pieces() -> Any:
        yield b"half"
        assert sweep(path.parent) == []
        yield b"whole"

    whole.write(path, pieces())
    assert path.read_bytes() == b"halfwhole"


def test_sweeping_removes_only_what_is_unfinished(path: Path) -> None:
    write(path, sample())
    stale = path.with_name(".a.safetensors.0123.unfinished")
    stale.write_bytes(b"half")
    assert sweep(path.parent) == [stale]
    assert names(path.parent) == [path.name]
    assert sweep(path.parent / "gone") == []


@pytest.mark.skipif(os.name == "nt", reason="locks of files")
def test_what_is_swept_before_it_was_locked_is_begun_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    lock, swept = fcntl.flock, []

    def lock_late(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and not swept:
            swept.extend(sweep(path.parent))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    write(path, sample())
    assert len(swept) == 1
    assert_same(read(path), sample())
    assert names(path.parent) == [path.name]


def test_writers_and_sweepers_do_not_disturb_each_other(path: Path) -> None:
    over = threading.Event()
    swept: list[Path] = []

    def go_on_sweeping() -> None:
        while not over.is_set():
            swept.extend(sweep(path.parent))

    sweeper = threading.Thread(target=go_on_sweeping)
    sweeper.start()
    try:
        for k in range(200):
            whole.write(path, [b"%d" % k])
    finally:
        over.set()
        sweeper.join()
    assert path.read_bytes() == b"199"


# --- the newest ----------------------------------------------------------------------------------


def test_the_highest_step_is_the_newest(tmp_path: Path) -> None:
    for name, step in (("c", 3), ("a", 20), ("b", 10)):
        write(tmp_path / f"{name}.safetensors", sample(step))
    (tmp_path / "notes.txt").write_text("not one of them")
    path, found = newest(tmp_path)
    assert path == tmp_path / "a.safetensors"
    assert_same(found, sample(20))


def test_of_two_with_the_same_step_the_later_counts(tmp_path: Path) -> None:
    for name, time_s in (("a", 2000), ("b", 1000)):
        write(tmp_path / f"{name}.safetensors", sample())
        os.utime(tmp_path / f"{name}.safetensors", (time_s, time_s))
    assert newest(tmp_path)[0].name == "a.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def forget_step(path: Path) -> None:
    write(path, Checkpoint({}, {"step": "many"}))


@pytest.mark.parametrize("spoil", [cut, empty, forget_step])
def test_unreadable_ones_are_passed_over_with_one_warning_each(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(4):
        write(tmp_path / f"{step}.safetensors", sample(step))
    for step in (2, 3):
        spoil(tmp_path / f"{step}.safetensors")
    path, found = newest(tmp_path)
    assert path.name == "1.safetensors"
    assert found.about["step"] == 1
    warned = [record for record in caplog.records if record.name == "shoal"]
    assert len(warned) == 2
    assert all("passed over a checkpoint" in record.getMessage() for record in warned)


def test_a_folder_without_one_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(ConfigError, match="there is no readable checkpoint in") as caught:
            newest(folder)
        assert str(folder) in str(caught.value)
    empty(tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="there is no readable checkpoint in"):
        newest(tmp_path)
    assert len(caplog.records) == 1


# --- what is not installed -----------------------------------------------------------------------


@pytest.mark.parametrize("package", ["torch", "safetensors.torch"])
def test_what_is_not_installed_is_told_with_the_command_that_installs_it(
    package: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=re.escape('pip install "shoal-rl[train]"')):
        write(path, sample())
    assert names(path.parent) == []
