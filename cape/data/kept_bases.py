"""Public bases kept in a store between processes: one of a brain takes seconds, each round is new.

A basis is public and is never asked of anybody.  The name of an entry is a digest of all that it
follows from: kind, feature space, columns, and the program.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cape.algorithms.estimators import Array

if TYPE_CHECKING:  # most rounds ask for no basis
    from cape.data.data_store import DataStore


class KeptBases:
    """The bases of the store in `folder`; nothing is kept where that cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @functools.cached_property
    def _store(self) -> DataStore | None:
        from cape.data.data_store import DataStore

        return DataStore.open(self._folder)

    def get(self, what: str, n_rows: int) -> Array | None:
        """Return B (D, d), with the bits that it had; None if it is not there."""
        found = None if self._store is None else self._store.get(_name(what))
        return None if not found else np.frombuffer(found, dtype="<f8").reshape(n_rows, -1).copy()

    def put(self, what: str, B: Array) -> None:
        if self._store is not None:
            self._store.put(_name(what), np.ascontiguousarray(B, dtype="<f8").tobytes())


def _name(what: str) -> str:
    return hashlib.sha256(f"{program()} {what}".encode()).hexdigest() + ".basis"


@functools.cache
def program() -> list[str]:
    """Return what numbers depend on besides settings and files: readers here, numpy, scipy."""
    from importlib.metadata import version

    # Of the code, not of a version, which stays while code changes.
    top, found = Path(__file__).resolve().parents[1], hashlib.sha256()
    for room in ("", "algorithms", "data", "settings", "space"):
        for path in sorted((top / room).glob("*.py")):
            found.update(path.read_bytes())
    return [found.hexdigest(), np.__version__, version("scipy")]
