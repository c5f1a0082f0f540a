"""The public feature space of a run: what the D rows of every subject's data are.

Sites compare digests first; the labels of a mask or atlas travel only when all of them agree.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.errors import MessageError

MOST_LABELS = 2**24
"""Largest grid, voxels: a brain at 1 mm has 7.2 million; nothing larger is ever unpacked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSpace:
    """The public feature space: what the D rows of a subject's data are.

    Attributes
    ----------
    kind : {"mask", "atlas", "matrix"}
        Voxels of a mask, parcels of a label image, columns of array files.
    shape : tuple of int
        Grid (3 axes), axes of a 2-D image, or () for plain columns.
    affine : tuple of float
        16 numbers of the 4 x 4 affine, mm, row-major, rounded to 1e-4; () without a grid.
    packed : str
        base64 of zlib of int32 little-endian labels in C order (a mask has labels 0 and 1); empty
        in `join`, where digests are compared before any site shows its mask.
    n_features : int
        D.
    digest : str
        SHA-256 that all sites must agree on.
    """

    kind: Literal["mask", "atlas", "matrix"]
    shape: tuple[int, ...]
    affine: tuple[float, ...]
    packed: str
    n_features: int
    digest: str

    @classmethod
    def of_labels(
        cls, kind: Literal["mask", "atlas"], labels: npt.NDArray[np.int32], affine: Array
    ) -> FeatureSpace:
        """Return the space of a label image (x, y, z); labels > 0 are inside.

        A mask's digest is the SHA-256 of ``cape-mask-1``, shape (3 x int32 LE), affine
        (16 x float64 LE, rounded to 1e-4, -0 -> 0) and the packed bits of the mask in C order.
        """
        rounded = np.round(affine, 4) + 0.0
        inside = labels > 0
        bits = np.packbits(inside).tobytes() if kind == "mask" else labels.astype("<i4").tobytes()
        parts = (
            f"cape-{kind}-1".encode(),
            np.asarray(labels.shape, dtype="<i4").tobytes(),
            rounded.astype("<f8").tobytes(),
            bits,
        )
        n = int(inside.sum()) if kind == "mask" else int(np.unique(labels[inside]).size)
        raw = zlib.compress(labels.astype("<i4").tobytes(), 9)
        return cls(
            kind=kind,
            shape=tuple(int(n) for n in labels.shape),
            affine=tuple(float(a) for a in rounded.ravel()),
            packed=base64.b64encode(raw).decode(),
            n_features=n,
            digest=hashlib.sha256(b"".join(parts)).hexdigest(),
        )

    @classmethod
    def of_matrix(
        cls, n_features: int, image_shape: tuple[int, ...] = (), names: tuple[str, ...] = ()
    ) -> FeatureSpace:
        """Return the space of plain columns, or of a 2-D image (row-major).

        The names of the columns, if they have any, enter the digest: they must agree everywhere.
        """
        text = f"cape-matrix-1 {n_features} {image_shape}"
        if names:
            text += f" {json.dumps(names)}"
        return cls(
            kind="matrix",
            shape=image_shape,
            affine=(),
            packed="",
            n_features=n_features,
            digest=hashlib.sha256(text.encode()).hexdigest(),
        )

    def labels(self) -> npt.NDArray[np.int32]:
        """Return the label image, shape `shape` (masks and atlases only)."""
        size = prod(self.shape)
        if len(self.shape) != 3 or not 0 < size <= MOST_LABELS or min(self.shape) < 1:
            raise MessageError("E202", problem="labels: no grid of allowed size")
        try:
            unpacking = zlib.decompressobj()
            raw = unpacking.decompress(base64.b64decode(self.packed, validate=True), 4 * size + 1)
        except (binascii.Error, zlib.error) as err:
            raise MessageError("E202", problem="labels: not packed labels") from err
        if len(raw) != 4 * size:
            raise MessageError("E202", problem="labels: they do not fit the grid")
        return np.frombuffer(raw, dtype="<i4").reshape(self.shape).astype(np.int32)

    def outline(self) -> FeatureSpace:
        """Return the space without its labels: what may be compared before they are shown."""
        return replace(self, packed="")

    def filled(self, packed: str) -> FeatureSpace:
        """Return the space with labels; MessageError unless they are those of its digest."""
        whole = replace(self, packed=packed)
        if self.kind == "matrix":
            if packed:
                raise MessageError("E202", problem="labels: a matrix has none")
            return self
        affine = np.array(self.affine)
        if affine.shape != (16,):
            raise MessageError("E202", problem="labels: no affine")
        found = FeatureSpace.of_labels(self.kind, whole.labels(), affine)
        if (found.digest, found.n_features) != (self.digest, self.n_features):
            raise MessageError("E202", problem="labels: not those of the agreed digest")
        return whole
