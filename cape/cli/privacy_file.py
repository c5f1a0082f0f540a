"""Reading a privacy.json that somebody hands over: whatever is wrong with it is one error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cape.errors import CapeError, ConfigError

# What reading a document trips over that is not of the expected form.
WRONG = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


@contextmanager
def privacy_document(path: Path) -> Iterator[Any]:
    """Yield the JSON of a file; what its reader trips over inside the block says so too.

    Raises
    ------
    ConfigError
        E017: the file, or what it holds, is not that of a run.  Errors of ours pass as they are.
    OSError
        The file cannot be read.
    """
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except CapeError:
        raise
    except WRONG as err:
        raise ConfigError("E017", detail=f"{path}: {type(err).__name__}: {err}") from err
