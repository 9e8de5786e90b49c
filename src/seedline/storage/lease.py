"""The right to write: an exclusive `flock` on a file, which the kernel takes back from a dead process."""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress

from seedline.errors import SessionBusyError

_held: weakref.WeakSet[Lease] = weakref.WeakSet()
_fork_hooks: list[int] = []


class Lease:
    """A held lock. The file exists while the lock does, and names its owner for whoever is refused."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: str, session_id: str) -> Lease:
        """Take the lock at once. Raises `SessionBusyError` naming the owner, or `OSError`."""
        _hook_fork()
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            lease = cls(path, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner may have unlinked the file between our opening and locking it.
                if lease.is_held():
                    _sign(descriptor)
                    _held.add(lease)
                    return lease
            except BlockingIOError:
                owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                os.close(descriptor)
                raise SessionBusyError(f"{owner} is writing it", place=path, session_id=session_id) from None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def is_held(self) -> bool:
        """False once it was released, or somebody took the file away."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def release(self) -> None:
        """Give the lock free and remove its file. May be called again."""
        if self.is_held():
            with suppress(OSError):
                os.unlink(self.path)  # while the lock is held: whoever waits for this file finds it gone
        self.forget()

    def forget(self) -> None:
        """Close the descriptor only: the lock stays with the process that took it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)


def _hook_fork() -> None:
    """A forked child shares its parent's locks and would keep them alive after the parent's death."""
    if not _fork_hooks:
        _fork_hooks.append(os.getpid())
        os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for lease in list(_held):
        lease.forget()
