"""Public bases kept in a store, since each round is a new process and a basis takes seconds.

A basis is public.  The name of an entry is a digest of kind, feature space and columns; its key is
the program.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.data_store import DataStore


class KeptBases:
    """The bases of the store in `folder`; it keeps none if the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._store = DataStore.open(folder)

    def get(self, what: str, n_rows: int) -> Array | None:
        """Return B (D, d), bit for bit, read-only; None if it is not kept."""
        stored = None if self._store is None else self._store.get(_name(what), program_digest())
        return None if stored is None or len(stored.arrays[0]) != n_rows else stored.arrays[0]

    def put(self, what: str, B: Array) -> None:
        if self._store is not None:
            self._store.put(_name(what), program_digest(), [B])


def _name(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest() + ".basis"


@functools.cache
def program_digest() -> str:
    """Return digest of the code and versions of numpy and scipy, on which all numbers depend."""
    from importlib.metadata import version

    # A digest of the code: a version does not change with every edit.
    top, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for room in ("", "algorithms", "data", "settings", "space"):
        for path in sorted((top / room).glob("*.py")):
            digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {np.__version__} {version('scipy')}"
