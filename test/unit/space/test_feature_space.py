"""The public feature space: its digest, and labels that are unpacked within bounds."""

import base64
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

from cape.errors import MessageError
from cape.space.feature_space import MAX_LABELS, FeatureSpace

LABELS = np.arange(24, dtype=np.int32).reshape(2, 3, 4) % 5
SPACE = FeatureSpace.of_labels("atlas", LABELS, np.diag([3.0, 3, 3, 1]))


def packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def test_labels_come_back_and_only_with_the_agreed_digest() -> None:
    outline = SPACE.outline()
    assert (outline.packed, outline.digest) == ("", SPACE.digest)
    assert outline.filled(SPACE.packed) == SPACE
    assert np.array_equal(SPACE.labels(), LABELS)
    other = FeatureSpace.of_labels("atlas", LABELS[::-1].copy(), np.diag([3.0, 3, 3, 1]))
    for wrong in (other.packed, ""):
        with pytest.raises(MessageError, match="E202"):
            outline.filled(wrong)
    with pytest.raises(MessageError, match="not those of the agreed digest"):
        replace(outline, n_features=9).filled(SPACE.packed)
    with pytest.raises(MessageError, match="no affine"):
        replace(outline, affine=()).filled(SPACE.packed)


def test_a_matrix_has_no_labels() -> None:
    matrix = FeatureSpace.of_matrix(6)
    assert matrix.filled("") == matrix
    with pytest.raises(MessageError, match="a matrix has none"):
        matrix.filled(SPACE.packed)


@pytest.mark.parametrize(
    "change",
    [
        {"packed": "!"},
        {"packed": packed(LABELS.tobytes())[:-6]},
        {"packed": packed(LABELS.tobytes()[:-4])},
        {"packed": packed(LABELS.tobytes() + b"\0")},
        {"packed": base64.b64encode(b"no zlib").decode()},
        {"shape": (2, 3)},
        {"shape": (2, 3, 0)},
        {"shape": (-2, -3, 4)},
        {"shape": (2**40, 2**40, 1)},
    ],
)
def test_labels_that_do_not_fit_their_grid_are_refused(change) -> None:
    with pytest.raises(MessageError, match="E202 message refused: labels"):
        replace(SPACE, **change).labels()


def test_no_more_is_unpacked_than_the_grid_holds() -> None:
    """One megabyte of text that unpacks to a gigabyte: refused within a few times the grid."""
    bomb = base64.b64encode(zlib.compress(bytes(2**28), 9)).decode()
    tracemalloc.start()
    try:
        for shape in ((100, 100, 10), (MAX_LABELS + 1, 1, 1)):
            with pytest.raises(MessageError, match="labels"):
                replace(SPACE, shape=shape, packed=bomb).labels()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**22
