"""A script run by a worker: what its template has imported need not be imported again, which was most of the time.

It runs in the interpreter of the system under test: Python 3.8 and numpy must be enough for it.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from typing import Any, NoReturn

from driftnet.run.sandbox.inside import FATAL


def status(words: list[str]) -> int:
    """The exit status of the Python script words[0] with these arguments, below 0 where a signal ended it.

    A script that starts itself again, by `subprocess.Popen`, has a process of the same kind.
    """
    return _Forked([sys.executable, *words]).wait()


class _Forked:
    """What a script needs of `subprocess.Popen`: a process forked off this one, with the script of the command."""

    def __init__(self, command: list[str], *, cwd: Any = ".", stdout: Any = None, stderr: Any = None, **_: Any) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            _be(command[1:], cwd, {1: stdout, 2: stderr})

    def wait(self, timeout: float = 0.0) -> int:
        """How it ended. It has as long as the call of the worker."""
        ended = os.waitpid(self.pid, 0)[1]
        return -os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended)


def _be(words: list[str], cwd: Any, files: dict[int, Any]) -> NoReturn:
    """Be the script, as `python` is, to the end of this process. files: by the descriptor that they are to have."""
    code = 1
    try:
        for number in FATAL:
            signal.signal(number, signal.SIG_DFL)  # the worker may hold its crashes, which a script's own are not
        os.setsid()
        for descriptor, file in files.items():
            if file is not None:
                os.dup2(file.fileno(), descriptor)
        os.chdir(cwd)
        tempfile.tempdir = None  # the environment says where
        sys.argv, subprocess.Popen = words, _Forked  # type: ignore[assignment, misc]
        runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
