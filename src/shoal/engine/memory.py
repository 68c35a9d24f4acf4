"""Shared memory without a name: nothing to leak, and Docker's small /dev/shm does not matter.

Linux has memfd for this; elsewhere it is a file in the temporary folder, unlinked at once.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import tempfile
import weakref

from shoal.engine.machine import free_memory_mb, is_portable
from shoal.errors import ConfigError

_MAP_FIXED = 0x10  # of Linux; the mmap module has no name for it


class Memory:
    """A block of memory behind a descriptor, which processes may inherit or be sent.

    The descriptor goes with this object, if it was not closed before.
    """

    fd = -1  # until there is one: Ctrl-C may come before

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> Memory:
        """An empty block; `resize` gives it room."""
        if not is_portable():
            return cls(os.memfd_create("shoal", os.MFD_CLOEXEC))
        fd, path = tempfile.mkstemp(prefix="shoal-")
        os.unlink(path)
        return cls(fd)

    def resize(self, nbytes: int, reserved: int | None = None) -> None:
        """Reserve room now, so that a lack of it is an error here and not a SIGBUS later.

        Of a memfd only `reserved` bytes are made at once, the rest when it is written to.
        """
        free_mb = free_memory_mb()
        if free_mb is not None and nbytes / 2**20 > free_mb:  # a memfd would take it all the same
            raise _too_large(nbytes, f"{free_mb:.0f} MiB are free")
        at_once = nbytes if reserved is None or is_portable() else reserved
        try:
            os.ftruncate(self.fd, max(nbytes, 1))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, 0, max(at_once, 1))
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise _too_large(nbytes, str(problem.strerror)) from problem

    def view(
        self, offset: int = 0, nbytes: int | None = None, *, writable: bool = True
    ) -> memoryview:
        """The block or, from a page's begin on, a part of it, mapped.

        It stays mapped for as long as anything refers to it; that takes no descriptor, but on the
        portable path.
        """
        size = os.fstat(self.fd).st_size - offset if nbytes is None else nbytes
        if not is_portable():
            return _mapped(self.fd, offset, size, writable)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(self.fd, size, access=access, offset=offset))

    def close(self) -> None:
        """Give up the descriptor; what is mapped stays."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    __del__ = close


def _mapped(fd: int, offset: int, size: int, writable: bool) -> memoryview:
    """What `mmap.mmap` does, which keeps a duplicate of the descriptor (before Python 3.13)."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = _mmap(None, size, protection, mmap.MAP_SHARED, fd, offset)
    block = (ctypes.c_char * size).from_address(address)
    weakref.finalize(block, _libc().munmap, ctypes.c_void_p(address), size).atexit = False
    view = memoryview(block).cast("B")
    return view if writable else view.toreadonly()


def make_private(view: memoryview) -> None:
    """What is mapped here, in whole pages, belongs to this process alone from now on.

    It stays where it is, so whoever refers to it notices nothing. (What another thread writes into
    it in this very moment may be lost.)
    """
    kept, address = bytes(view), ctypes.addressof(ctypes.c_char.from_buffer(view))
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    _mmap(address, len(view), protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED)
    view[:] = kept


def _mmap(
    address: int | None, size: int, protection: int, flags: int, fd: int = -1, offset: int = 0
) -> int:
    where: int = _libc().mmap(address, size, protection, flags, fd, ctypes.c_long(offset))
    if where == ctypes.c_void_p(-1).value:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return where


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _too_large(nbytes: int, why: str) -> ConfigError:
    return ConfigError(
        f"The rows of all environments need {nbytes / 2**20:.0f} MiB of memory, which is more than "
        f"there is ({why}). Use fewer environments, or smaller observations."
    )
