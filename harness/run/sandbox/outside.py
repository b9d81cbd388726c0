"""What runs outside where files are hidden: a process that starts the sandbox, and removes what a killed parent left.

From inside nobody can remove the folder that he is shown: there it is a mount point. Only the standard library may be
imported here, as little of it as can be: it runs as a script beside each template, and `inside` uses it in older
Pythons.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time

SWEEPS = 100
TICK_MS, PATIENCE = 100, 10
"""How often it is looked whether the parent lives, once the socket is closed; and for how many looks a sandbox may
outlive it."""


def stand_by(parent: int, control: int, folder: str, above: str, command: list[str]) -> int:
    """Run `command` and wait for it; its wait status. Where the process `parent` has gone by then, remove `folder`, and
    `above` if nobody holds that.

    control   file descriptor of the command's socket to the parent, which is closed when that ends
    """
    pid = os.posix_spawn(command[0], command, os.environ)
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(control, 0)  # POLLHUP, which needs no asking for
    wait, left = None, PATIENCE
    while ended not in (ready := [descriptor for descriptor, _ in poll.poll(wait)]):
        if control in ready:
            poll.unregister(control)
            wait = TICK_MS
        left -= os.getppid() != parent
        if left < 0:
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(ended)
    if os.getppid() != parent:
        _remove(folder)
        sweep(above, SWEEPS)
    return status


def sweep(folder: str, tries: int = 1) -> None:
    """Remove what a runner that was killed has left, for nobody else may be there. One that lives holds it, and the
    forks of one that was killed do for a moment."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        for _ in range(tries):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
                break
            time.sleep(0.02)


def _remove(folder: str) -> None:
    import shutil  # a third of the time that this script takes, and hardly ever needed

    shutil.rmtree(folder, ignore_errors=True)


def end_like(status: int) -> None:
    """End this process as one did that has this wait status. Of bwrap an exit status above 128 is the signal that its
    child died of."""
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    with contextlib.suppress(OSError, ValueError):  # no signal has that number, or a handler; SIGKILL never has
        signal.signal(code - 128, signal.SIG_DFL)
    if 128 < code < 128 + signal.NSIG:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # as in `inside`: one dump is enough
        os.kill(os.getpid(), code - 128)
    sys.exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _parent, _control, _folder, _above, *_command = sys.argv[1:]
    end_like(stand_by(int(_parent), int(_control), _folder, _above, _command))
