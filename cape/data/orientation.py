"""Images that are turned front to back or upside down, with a header that does not say so.

Such an image covers the mask as well as a right one.  Its mean image, compared with the mask as it
is stored and turned in three ways, tells: of 40 real people all fitted best as stored, by .07 at
least.  Each way is also moved back and forth and up and down, as an image that is resampled after
it was turned lies elsewhere: unmoved, 40 of 210 such turns were not told.  Both sides are joined
first, so that a lesion of one side does not decide.  Left and right look alike: an image that is
mirrored is not found.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.data.space import Grid
from cape.space.feature_space import is_mni

_Spectra = npt.NDArray[np.complexfloating]

# Corners of a box around the brain and distance of its points, mm; x is symmetric.
LOW, HIGH, STEP = (-96.0, -138.0, -84.0), (96.0, 102.0, 114.0), 6.0
# Turns of the axes y and z, and their words
TURNS: Final[dict[str, tuple[int, ...]]] = {
    "": (),
    "front to back": (1,),
    "upside down": (2,),
    "front to back and upside down": (1, 2),
}
MOVES: Final = np.arange(-4, 5)  # of the points, along y and along z
# The best turn must fit better by so much.
MARGIN: Final = 0.01
# Least difference between the mask and itself turned: other masks do not tell.
LEAST_TOLD: Final = 0.05
# Least likeness of the best turn: images without a brain tell nothing.
LEAST_FIT: Final = 0.4
BRIGHT: Final = 0.75  # quantile of the signal that counts as 1


def in_mni(grid: Grid) -> bool:
    """Whether a grid is that of a mask in MNI space, where `way_turned` tells."""
    return is_mni(grid.template_space) and grid.sizes.size == grid.parcel.size


def way_turned(mean: Array, affine: Array, grid: Grid) -> str:
    """Return in which way a mean image (x, y, z) is turned; "" as stored, or if it cannot be told.

    `affine` (4, 4) is the image's own; `grid` that of a mask in MNI space.
    """
    from scipy import ndimage

    inside = _at(grid.inside.astype(np.float64), grid.affine)[0]
    mask = np.asarray(ndimage.gaussian_filter(inside, 1.0))
    everywhere = np.ones(mask.shape, dtype=bool)
    alike = {
        word: _likeness(_flipped(mask, axes), everywhere, mask) for word, axes in TURNS.items()
    }
    if 1.0 - max(r for word, r in alike.items() if word) < LEAST_TOLD:
        return ""
    edges = np.linalg.norm(affine[:3, :3], axis=0)
    if not (np.all(np.isfinite(edges)) and np.all(edges > 0.0)):
        return ""
    # The stored axis of y and of z
    along = np.argmax(np.abs(affine[:3, :3] / edges), axis=1)
    # Of fine images each point of the box stands for several voxels.
    sizes = [max(1, int(STEP / edge)) for edge in edges]
    size = np.abs(np.nan_to_num(mean, posinf=0.0, neginf=0.0))
    signal = np.asarray(ndimage.uniform_filter(size, sizes))
    fits = {}
    for word, axes in TURNS.items():
        values, seen = _at(np.flip(signal, tuple(int(along[a]) for a in axes)), affine)
        lit = values[values > 0.0]
        if not lit.size:
            return ""
        values = np.minimum(values / np.quantile(lit, BRIGHT), 1.0)
        values, seen = np.maximum(values, values[::-1]), seen | seen[::-1]
        fits[word] = _likeness(values, seen, mask)
    best = max(fits, key=lambda word: fits[word])
    told = fits[best] >= LEAST_FIT and fits[best] > fits[""] + MARGIN
    return best if told else ""


def _at(volume: Array, affine: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return a volume at the points of the box, 0 outside of it, and which lie in it."""
    from scipy import ndimage

    axes = [np.arange(a, b + STEP, STEP) for a, b in zip(LOW, HIGH, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    inverse = np.linalg.inv(affine)
    place = np.moveaxis(points @ inverse[:3, :3].T + inverse[:3, 3], -1, 0)
    ends = np.array(volume.shape)[:, None, None, None] - 0.5
    seen = np.all((place >= -0.5) & (place < ends), axis=0)
    return np.asarray(ndimage.map_coordinates(volume, place, order=1, mode="nearest") * seen), seen


def _flipped(volume: Array, axes: tuple[int, ...]) -> Array:
    """Turn a brain in the box about its middle."""
    inside = np.argwhere(volume > 0.5)
    if not inside.size:
        return volume
    for axis in axes:
        ends = int(inside[:, axis].min() + inside[:, axis].max())
        shift = ends - (volume.shape[axis] - 1)
        volume = np.roll(np.flip(volume, axis), shift, axis)
    return volume


def _likeness(values: Array, seen: npt.NDArray[np.bool_], mask: Array) -> float:
    """Return the largest correlation of values, where they are seen, with the mask over `MOVES`."""
    spectra = [np.conj(np.fft.rfft2(a)) for a in (values * seen, seen)]
    others = [np.fft.rfft2(a) for a in (mask, mask * mask)]

    def moved(one: _Spectra, other: _Spectra) -> Array:
        """Return sums of products of two volumes, the first moved along y and z."""
        every = np.fft.irfft2(np.sum(one * other, axis=0), s=mask.shape[1:])
        return np.asarray(every[np.ix_(MOVES, MOVES)])

    n, total = int(seen.sum()), float(values[seen].sum())
    there = moved(spectra[1], others[0])
    cross = moved(spectra[0], others[0]) - total * there / n
    spread = (float(np.sum(values[seen] ** 2)) - total**2 / n) * (
        moved(spectra[1], others[1]) - there**2 / n
    )
    size = np.sqrt(np.maximum(spread, 0.0))
    return float(np.max(np.divide(cross, size, out=np.zeros_like(cross), where=size > 1e-9)))
