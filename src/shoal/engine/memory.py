"""Shared memory without a name: nothing to leak, and Docker's small /dev/shm does not matter.

Linux has memfd for this; elsewhere it is a file in the temporary folder, unlinked at once.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile

from shoal.engine.machine import free_memory_mb, is_portable
from shoal.errors import ConfigError


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

    def resize(self, nbytes: int) -> None:
        """Reserve room now, so that a lack of it is an error here and not a SIGBUS later."""
        free_mb = free_memory_mb()
        if free_mb is not None and nbytes / 2**20 > free_mb:  # a memfd would take it all the same
            raise _too_large(nbytes, f"{free_mb:.0f} MiB are free")
        try:
            os.ftruncate(self.fd, max(nbytes, 1))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, 0, max(nbytes, 1))
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise _too_large(nbytes, str(problem.strerror)) from problem

    def view(self, *, writable: bool = True) -> memoryview:
        """The block, mapped; it stays mapped for as long as anything refers to it."""
        size = os.fstat(self.fd).st_size
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(self.fd, size, access=access))

    def close(self) -> None:
        """Give up the descriptor; what is mapped stays."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    __del__ = close


def _too_large(nbytes: int, why: str) -> ConfigError:
    return ConfigError(
        f"The rows of all environments need {nbytes / 2**20:.0f} MiB of memory, which is more than "
        f"there is ({why}). Use fewer environments, or smaller observations."
    )
