"""``--log-file``: copy the output of a command, with times, to a file readable by its user."""

import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from cape.settings.config import VERSION

# Colours and cursor movements
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Copied:
    """A text stream that also writes complete lines to a log."""

    def __init__(self, stream: TextIO, log: TextIO) -> None:
        self._stream, self._log, self._line = stream, log, ""

    def __getattr__(self, name: str) -> Any:  # isatty, encoding, fileno
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._line += CONTROL.sub("", text)
        *lines, self._line = self._line.split("\n")
        for line in lines:
            note(self._log, line)
        return self._stream.write(text)


def note(log: TextIO, line: str) -> None:
    log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")
    log.flush()


@contextmanager
def logged(path: Path | None, words: Sequence[str]) -> Iterator[None]:
    """Append all output to `path`; mode 0600, because it names data files."""
    if path is None:
        yield
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    streams = sys.stdout, sys.stderr
    with os.fdopen(handle, "a", encoding="utf-8") as log:
        note(log, f"{versions()}: cape {' '.join(words)}")
        sys.stdout, sys.stderr = (Copied(stream, log) for stream in streams)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams


def versions() -> str:
    """Return the versions of cape, Python and the system."""
    return f"cape {VERSION}, Python {platform.python_version()}, {platform.platform()}"
