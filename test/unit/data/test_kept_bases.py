"""Bases of brains are built once on a computer, with the same bits, not by every process.

Belongs to `cape/data/data_store.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cape.data.data_store import KeptBases
from cape.settings.resolved import BasisKind
from cape.space import public_basis
from cape.space.feature_space import FeatureSpace

GRID = np.diag([10.0, 10.0, 10.0, 1.0])


@pytest.fixture
def fresh() -> Iterator[None]:
    """What this process remembers goes: as in a process of its own."""
    public_basis._smooth_basis.cache_clear()
    yield
    public_basis._smooth_basis.cache_clear()
    public_basis._shelves.clear()


def basis_of(inside: np.ndarray, n_basis: int, kind: BasisKind = "dct") -> np.ndarray:
    space = FeatureSpace.of_labels("mask", inside.astype(np.int32), GRID)
    found = public_basis._smooth_basis(kind, space, (), n_basis, wide=False)
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("kind", ["dct", "kernel"])
def test_a_basis_is_built_by_one_process_and_found_by_the_next(
    kind: BasisKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten processes of a run took the same kernel apart: a quarter of its time.

    It has the layout that it was built with: products of another may differ in their last bits, and
    a run with a store from one without.
    """
    inside = np.ones((4, 5, 6), dtype=bool)
    built = basis_of(inside, 7, kind)
    public_basis._smooth_basis.cache_clear()
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    assert np.array_equal(basis_of(inside, 7, kind), built)
    public_basis._smooth_basis.cache_clear()
    monkeypatch.setitem(public_basis._BUILD, kind, pytest.fail)  # nobody builds it again
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    found = basis_of(inside, 7, kind)
    assert np.array_equal(found, built)
    assert found.strides == built.strides
    assert not found.flags.writeable


@pytest.mark.usefixtures("fresh")
def test_another_mask_and_another_number_of_columns_have_their_own(tmp_path: Path) -> None:
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    inside = np.ones((4, 5, 6), dtype=bool)
    less = inside.copy()
    less[0, 0, 0] = False
    shapes = [basis_of(mask, n).shape for mask, n in ((inside, 7), (less, 7), (inside, 6))]
    assert shapes == [(120, 7), (119, 7), (120, 6)]
