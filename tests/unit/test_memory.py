"""Is shared memory shared, nameless, and given back?"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.engine.memory import Memory
from shoal.errors import ConfigError


@pytest.fixture(params=["linux", "portable"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Either kind of memory; temporary files go where the test can look."""
    monkeypatch.setenv("SHOAL_PORTABLE", "1" if request.param == "portable" else "0")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return str(request.param)


@pytest.fixture
def memory() -> Iterator[Memory]:
    one = Memory.create()
    yield one
    one.close()


def names() -> set[str]:
    """Everything with a name in which memory could be left behind; semaphores are not memory."""
    folders = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    found = {str(file) for folder in folders if folder.exists() for file in folder.iterdir()}
    return {name for name in found if "/sem." not in name}


def in_child(work: object) -> int:
    """The exit status of a forked child that runs `work`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_two_mappings_are_the_same_memory(memory: Memory) -> None:
    memory.resize(100)
    one, other = memory.view(), memory.view(writable=False)
    one[7] = 42
    assert other[7] == 42
    assert len(one) == len(other) == 100


def test_what_a_forked_child_writes_is_seen_here(memory: Memory) -> None:
    memory.resize(4096)
    view = memory.view()
    view[0] = 1

    def work() -> None:
        assert view[0] == 1
        view[1] = 2  # through the mapping that came with the fork
        memory.view()[2] = 3  # through one of its own

    assert in_child(work) == 0
    assert bytes(view[:3]) == b"\x01\x02\x03"


def test_a_descriptor_alone_is_enough_to_map_it(memory: Memory) -> None:
    memory.resize(10)
    memory.view()[3] = 9
    other = Memory(os.dup(memory.fd))
    assert other.view()[3] == 9
    other.close()


def test_a_read_only_view_cannot_be_written(memory: Memory) -> None:
    memory.resize(10)
    view = memory.view(writable=False)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_growing_keeps_what_is_there_and_adds_zeros(memory: Memory) -> None:
    memory.resize(10)
    memory.view()[:3] = b"abc"
    memory.resize(5000)
    view = memory.view()
    assert len(view) == 5000
    assert bytes(view[:3]) == b"abc"
    assert not any(view[3:])


def test_no_bytes_are_possible(memory: Memory) -> None:
    memory.resize(0)
    assert len(memory.view()) >= 0


def test_it_has_no_name_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where nobody else puts anything
    before = names()
    memory = Memory.create()
    memory.resize(5000)
    view = memory.view()
    assert names() - before == set()
    view.release()
    memory.close()
    assert names() - before == set()


def test_on_linux_it_is_no_file_of_any_disk(memory: Memory, kind: str) -> None:
    where = os.readlink(f"/proc/self/fd/{memory.fd}")
    assert where.startswith("/memfd:shoal" if kind == "linux" else tempfile.gettempdir())
    assert where.endswith("(deleted)")


def test_a_program_that_is_started_does_not_inherit_it(memory: Memory) -> None:
    assert not os.get_inheritable(memory.fd)


def test_what_is_mapped_outlives_the_descriptor() -> None:
    memory = Memory.create()
    memory.resize(10)
    view = memory.view()
    memory.close()
    view[0] = 5
    assert view[0] == 5


def test_closing_gives_the_descriptor_back_and_twice_is_safe() -> None:
    memory = Memory.create()
    fd = memory.fd
    memory.close()
    memory.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_view_that_is_dropped_is_unmapped(memory: Memory) -> None:
    size = 1237 * mmap.PAGESIZE  # no other mapping is likely to have this length
    memory.resize(size)

    def mappings() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        bounds = [line.split()[0].split("-") for line in lines]
        return sum(int(end, 16) - int(start, 16) == size for start, end in bounds)

    view = memory.view()
    assert mappings() == 1
    del view
    gc.collect()
    assert mappings() == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_a_lack_of_memory_is_an_error_that_says_how_much_was_needed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    # Stands for a machine without enough memory; asking this one for too much could end it.
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ConfigError, match=r"need 3 MiB .*fewer environments") as caught:
        memory.resize(3 << 20)
    assert isinstance(caught.value.__cause__, OSError)


def test_other_errors_of_the_system_get_out_as_they_are() -> None:
    memory = Memory.create()
    memory.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        memory.resize(10)
