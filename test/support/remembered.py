"""Nulls of runs without a brain, by their public seed: simulated once for all tests."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from cape.algorithms import left_right
from cape.algorithms.left_right import Field, Null

_simulate = left_right.simulated_null
_known: dict[str, Null] = {}


def _remembered(
    field_of: Callable[[float], Field],
    white: np.ndarray,
    basis: np.ndarray | None,
    J: np.ndarray,
    *,
    n_components: int,
    global_signal: bool,
) -> Null:
    """Return `left_right.simulated_null` of the same places, basis, mirror and cleaning."""
    drawn = [field_of(s)(np.random.default_rng(0), 1) for s in left_right.SIGMAS_MM]
    said = hashlib.sha256(f"{n_components} {global_signal} {basis is None}".encode())
    for array in (white, J, *drawn, *(() if basis is None else (basis,))):
        said.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    name = said.hexdigest()
    if name not in _known:
        _known[name] = _simulate(
            field_of, white, basis, J, n_components=n_components, global_signal=global_signal
        )
    return _known[name]


@contextmanager
def remembered_nulls() -> Iterator[None]:
    """Simulate each null once: it takes seconds of every small run with images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(left_right, "simulated_null", _remembered)
        yield
