"""The public feature space of the D rows of data.

Parties compare digests first; labels are sent only if all digests agree.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from dataclasses import field, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.errors import MessageError
from cape.frozen import dataclass
from cape.markers import HEX_32, NOTHING, SPACE_FORM
from cape.settings.words import CIFTI

if TYPE_CHECKING:  # a round on an ordinary mask imports no more than it needs
    from cape.space.grayordinates import Structure

# Separates labels and templates that are packed into one text; not a character of base64
DOT = "."

# Maximum of D x K: 2.4 MB of float32, which each party keeps in its 4 MiB cache between rounds
MAX_TEMPLATE_NUMBERS = 600_000
# .. of maps that stay at the sites: 256 MB, 200 maps of a brain at 2 mm
MAX_OWN_NUMBERS = 64_000_000

# Maximum of voxels in a grid to unpack; a brain at 1 mm has 7.2 million.
MAX_LABELS = 2**24

# Column of a table of maps that names its rows, the features
FEATURE = "feature"

# Fields that follow from labels
OF_LABELS = ("digest", "n_features", "kind", "affine")

# Prefix of the MNI's average brains, which differ by a few millimetres
MNI152 = "MNI152"


def is_mni(template_space: str) -> bool:
    return template_space.startswith(MNI152)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSpace:
    """The public feature space: the meaning of the D features of a person's data.

    Attributes
    ----------
    kind : str
        What the features are: voxels of a mask, parcels of an atlas, columns of array files
        (matrix), or those of CIFTI files (grayordinates, parcels).
    n_features : int
        D.
    shape : tuple of int
        The grid (of CIFTI that of its voxels), the axes of a 2-D image, or () for columns.
    affine : tuple of float
        The 4 x 4 affine in mm, row by row, rounded to 1e-4; () without a grid.
    template_space : str
        Such as MNI152NLin2009cAsym; empty if unknown.
    n_templates : int
        K, the number of public template maps.
    digest : str
        SHA-256 on which all sites must agree.

    Examples
    --------
    >>> cape.FeatureSpace.of_matrix(900, (30, 30)).n_features
    900
    >>> inside = np.zeros((5, 6, 5), dtype=np.int32)
    >>> inside[1:4, 1:5, 1:4] = 1
    >>> affine = np.diag([8.0, 8.0, 8.0, 1.0])  # mm
    >>> cape.FeatureSpace.of_labels("mask", inside, affine).n_features
    36
    """

    # Texts declare their content, as part of a reply (`cape.markers`).
    kind: Literal["mask", "atlas", "matrix", "grayordinates", "parcels"]
    shape: tuple[int, ...]
    affine: tuple[float, ...]
    # base64 of zlib of int32 little-endian labels in C order (a mask has labels 0 and 1); for CIFTI
    # of the bytes of a `cape.space.grayordinates.Structure`.  With templates, a dot and base64 of
    # zlib of float32 (D, K) follow.  Empty in `join`, where digests are compared before labels.
    packed: Annotated[str, NOTHING]
    n_features: int
    digest: Annotated[str, HEX_32]
    n_templates: int = field(default=0, metadata={"omittable": True})
    # Digest of the same space without its templates; empty if it has none
    without_templates: Annotated[str, HEX_32] = field(default="", metadata={"omittable": True})
    template_space: Annotated[str, SPACE_FORM] = field(default="", metadata={"omittable": True})

    @property
    def in_mni(self) -> bool:
        """Whether coordinates are known to be those of an MNI152 brain."""
        return self.on_grid and is_mni(self.template_space)

    @property
    def on_grid(self) -> bool:
        """Whether the features are voxels of one grid, or parcels made of them."""
        return self.kind in ("mask", "atlas")

    @property
    def of_cifti(self) -> bool:
        """Whether the features are those of CIFTI files."""
        return is_cifti(self.kind)

    @classmethod
    def of_labels(
        cls,
        kind: Literal["mask", "atlas"],
        labels: npt.NDArray[np.int32],
        affine: Array,
        template_space: str = "",
    ) -> FeatureSpace:
        """Return the space of a label image (x, y, z); labels > 0 are inside.

        A mask's digest is the SHA-256 of ``cape-mask-1``, shape (3 x int32 LE), affine
        (16 x float64 LE, rounded to 1e-4, -0 -> 0) and the packed bits of the mask in C order.
        """
        # The digest must not depend on the last bits of an affine or on -0.
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
            template_space=template_space,
        )

    @classmethod
    def of_matrix(
        cls, n_features: int, image_shape: tuple[int, ...] = (), names: tuple[str, ...] = ()
    ) -> FeatureSpace:
        """Return the space of columns or of a 2-D image (row-major); `names` enter the digest."""
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

    @classmethod
    def of_structure(
        cls, structure: Structure, shape: tuple[int, ...] = (), affine: Array | None = None
    ) -> FeatureSpace:
        """Return the space of a CIFTI axis; `shape` and `affine` are the grid of its voxels.

        Digest: SHA-256 of ``cape-grayordinates-1``, shape and affine as of a mask, and the bytes of
        the structure.
        """
        rounded = np.zeros(0) if affine is None else np.round(affine, 4) + 0.0
        parts = (
            b"cape-grayordinates-1",
            np.asarray(shape, dtype="<i4").tobytes(),
            rounded.astype("<f8").tobytes(),
            structure.raw,
        )
        return cls(
            kind="parcels" if structure.names else "grayordinates",
            shape=shape,
            affine=tuple(float(a) for a in rounded.ravel()),
            packed=base64.b64encode(zlib.compress(structure.raw, 9)).decode(),
            n_features=structure.n_features,
            digest=hashlib.sha256(b"".join(parts)).hexdigest(),
        )

    def structure(self) -> Structure:
        """Return the structure of the features (CIFTI only); MessageError if absent or invalid."""
        return _structure(self.packed.partition(DOT)[0], self.shape)

    def labels(self) -> npt.NDArray[np.int32]:
        """Return the label image, shape `shape` (masks and atlases only)."""
        size = prod(self.shape)
        if len(self.shape) != 3 or not 0 < size <= MAX_LABELS or min(self.shape) < 1:
            raise MessageError("E202", problem="labels: no grid of allowed size")
        raw = _unpacked(self.packed.partition(DOT)[0], 4 * size, "labels")
        return np.frombuffer(raw, dtype="<i4").reshape(self.shape).astype(np.int32)

    def with_templates(self, templates: Array) -> FeatureSpace:
        """Return the space with template maps (D, K), kept as float32.

        Digest: SHA-256 of ``cape-templates-1``, the space's, K (int32 LE), float32 LE in C order.
        """
        stored = np.ascontiguousarray(templates, dtype="<f4")
        n = stored.shape[1]
        # Large maps are never sent, and to compress them takes longer than to read them.
        effort = 9 if stored.size <= MAX_TEMPLATE_NUMBERS else 0
        head = f"cape-templates-1 {self.digest}".encode() + np.int32(n).astype("<i4").tobytes()
        raw = stored.tobytes()
        return replace(
            self,
            packed=self.packed + DOT + base64.b64encode(zlib.compress(raw, effort)).decode(),
            digest=hashlib.sha256(head + raw).hexdigest(),
            n_templates=n,
            without_templates=self.digest,
        )

    def templates(self) -> Array:
        """Return the template maps, shape (D, K) float64; MessageError if there are none."""
        size = 4 * self.n_features * self.n_templates
        if not 0 < size <= 4 * MAX_OWN_NUMBERS:
            raise MessageError("E202", problem="templates: none, or more than allowed")
        raw = _unpacked(self.packed.partition(DOT)[2], size, "templates")
        maps = np.frombuffer(raw, dtype="<f4").reshape(self.n_features, self.n_templates)
        return maps.astype(np.float64)

    def outline(self) -> FeatureSpace:
        """Return the space without its labels, for comparison before labels are sent."""
        return replace(self, packed="")

    def filled(self, packed: str) -> FeatureSpace:
        """Return the space with labels, and with templates if any are there.

        MessageError if they do not match its digests.
        """
        plain, _, maps = packed.partition(DOT)
        templated = bool(self.n_templates)
        # Labels and templates have digests of their own: check the space without templates first.
        whole = replace(self, packed=plain, n_templates=0)
        if templated:
            whole = replace(whole, digest=self.without_templates)
        if self.kind == "matrix":
            if plain:
                raise MessageError("E202", problem="labels: a matrix has none")
        else:
            # Trust the labels only: they came from a peer.
            rebuilt = whole._rebuilt()
            if any(getattr(rebuilt, name) != getattr(whole, name) for name in OF_LABELS):
                raise MessageError("E202", problem="labels: not those of the agreed digest")
        if not maps:
            return replace(self, packed=plain)
        if self.n_features * self.n_templates > MAX_TEMPLATE_NUMBERS:
            raise MessageError("E202", problem="templates: more than allowed")
        full = replace(whole, without_templates="").with_templates(
            replace(self, packed=packed).templates()
        )
        if full.digest != self.digest:
            raise MessageError("E202", problem="templates: not those of the agreed digest")
        return replace(self, packed=packed)

    def _rebuilt(self) -> FeatureSpace:
        """Return the space derived from the labels."""
        affine = np.array(self.affine)
        if self.kind == "mask" or self.kind == "atlas":
            if affine.shape != (16,):
                raise MessageError("E202", problem="labels: no affine")
            return FeatureSpace.of_labels(self.kind, self.labels(), affine)
        grid = affine.reshape(4, 4) if affine.shape == (16,) else None
        return FeatureSpace.of_structure(self.structure(), self.shape, grid)


def packed_space(labels: str, maps: str) -> str:
    return f"{labels}{DOT}{maps}" if maps else labels


def coordinates(space: FeatureSpace) -> Array:
    """Position of each voxel or parcel centre in mm, (D, 3); (D, 0) without a grid."""
    if not space.on_grid:
        return np.zeros((space.n_features, 0))
    labels = space.labels()
    ijk = np.argwhere(labels > 0).astype(np.float64)
    if space.kind == "atlas":
        ijk = means_by_parcel(ijk, labels)
    affine = np.asarray(space.affine).reshape(4, 4)
    # Rounded, so that an affine read from a file gives the same positions; + 0.0 removes -0.
    mm: Array = np.round(ijk @ affine[:3, :3].T + affine[:3, 3], 4) + 0.0
    return mm


def has_neighbours(space: FeatureSpace) -> bool:
    """Whether features have neighbours, so that the sparseness of a map is meaningful.

    Parcels and columns of a table have none: networks of real parcels are no sparser than noise.
    """
    return space.kind in ("mask", "grayordinates") or len(space.shape) == 2


def means_by_parcel(values: Array, labels: npt.NDArray[np.int32]) -> Array:
    """Mean of values (voxels in parcels, K) over each parcel, by ascending label."""
    parcel = np.unique(labels[labels > 0], return_inverse=True)[1].ravel()
    sums = np.stack([np.bincount(parcel, weights=column) for column in values.T], axis=1)
    return np.asarray(sums / np.bincount(parcel)[:, None])


def is_cifti(kind: str) -> bool:
    return kind in CIFTI


@functools.lru_cache(maxsize=2)
def _structure(packed: str, shape: tuple[int, ...]) -> Structure:
    from cape.space.grayordinates import MAX_STRUCTURE_BYTES, from_peer, voxels_fit

    structure = from_peer(_unpacked_at_most(packed, MAX_STRUCTURE_BYTES, "labels"))
    if not voxels_fit(structure, shape):
        raise MessageError("E202", problem="labels: voxels outside their grid")
    return structure


def _unpacked(text: str, size: int, what: str) -> bytes:
    """Return the bytes that a peer packed into a text; MessageError unless there are `size`."""
    raw = _unpacked_at_most(text, size, what)
    if len(raw) != size:
        raise MessageError("E202", problem=f"{what}: not as many as the space needs")
    return raw


def _unpacked_at_most(text: str, size: int, what: str) -> bytes:
    try:
        # One extra byte detects a longer text without unpacking it fully.
        raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (ValueError, zlib.error) as err:
        raise MessageError("E202", problem=f"{what}: not packed numbers") from err
    return raw
