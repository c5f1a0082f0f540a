"""Run ``cape`` as where the system is not POSIX: ``python without_posix.py WORDS [+ WORDS]...``.

What Windows lacks is taken away before `cape` is imported: modules, functions and constants of `os`
and `signal`, opening a folder, paths below an open folder, /proc.  `msvcrt` is played by the real
locks.  What libraries of others need for themselves is loaded before.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import signal
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = (
    "numpy", "scipy.linalg", "scipy.stats", "scipy.special", "scipy.optimize", "scipy.ndimage",
    "matplotlib.pyplot", "nibabel", "cryptography.hazmat.primitives.ciphers.aead", "typer",
    "rich.console", "jinja2", "h5py", "simplejson", "asyncio", "subprocess", "tempfile",
    "concurrent.futures.process", "multiprocessing.pool", "pathlib", "tomllib", "scipy.sparse",
)  # fmt: skip
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix")
OF_OS = (
    "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups", "setgroups",
    "setuid", "seteuid", "setegid", "setresuid", "setresgid", "fchmod", "fchown", "chown", "lchown",
    "sched_getaffinity", "sched_setaffinity", "getpgid", "setsid", "killpg", "mkfifo", "mknod",
    "sysconf", "nice", "getloadavg", "uname", "posix_fallocate",
    "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_SYNC", "O_NONBLOCK",
)  # fmt: skip
OF_SIGNAL = ("SIGKILL", "SIGALRM", "SIGUSR1", "SIGHUP", "alarm", "setitimer", "pthread_sigmask")
O_BINARY = 1 << 30


def take_away() -> None:
    """Leave this process what Windows has."""
    for library in LIBRARIES:
        importlib.import_module(library)
    # rmtree chooses, as it is loaded, whether it opens folders: on Windows it never does.
    os.supports_dir_fd.clear()
    importlib.reload(shutil)
    locks, flags, opened = fcntl.flock, (fcntl.LOCK_EX | fcntl.LOCK_NB), os.open

    def locking(handle: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (2, 1)
        try:
            locks(handle, flags)
        except BlockingIOError:  # what Windows says of a byte that somebody holds
            raise PermissionError(13, "Permission denied") from None

    played: Any = types.ModuleType("msvcrt")
    played.locking, played.LK_NBLCK = locking, 2
    sys.modules["msvcrt"] = played
    for module in MODULES:
        sys.modules[module] = None  # type: ignore[assignment]
    for place, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(place, name):
                delattr(place, name)
    os.O_BINARY = O_BINARY  # type: ignore[attr-defined]
    os.open = _windows_open(opened)  # type: ignore[assignment]
    here = Path.read_text

    def read_text(self: Path, *arguments: Any, **names: Any) -> str:
        if self.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(str(self))
        return here(self, *arguments, **names)

    Path.read_text = read_text  # type: ignore[method-assign]


def _windows_open(opened: Callable[..., int]) -> Callable[..., int]:
    def open_file(path: Any, flags: int, mode: int = 0o777, **names: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        ours = "cape" in sys._getframe(1).f_globals.get("__name__", "")
        assert flags & O_BINARY or not ours, f"{path}: would turn line ends on Windows"
        return opened(path, flags & ~O_BINARY, mode, **names)

    return open_file


if __name__ == "__main__":
    take_away()
    # Text of files is UTF-8 here and something else there, unless it is said.
    warnings.filterwarnings("error", category=EncodingWarning, module="cape")
    from cape.cli import main

    commands = " ".join(sys.argv[1:]).split(" + ")
    raise SystemExit(next((code for words in commands if (code := main(words.split()))), 0))
