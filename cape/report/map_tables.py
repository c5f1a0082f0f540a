"""From the released maps A to pictures and tables of numbers: z-scores, peaks, volumes.

Everything here is post-processing of released quantities and of the public feature space.
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.component_order import peaks, variance_explained, z_scores
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One row of components.tsv.

    Attributes
    ----------
    name : str
        C01, C02 ...
    share : float
        Share of retained variance, from released matrices; not explained variance of the data.
    skewness, kurtosis : float
        Of the map over the features; kurtosis is excess (0 for a Gaussian).
    peak_feature : int
        Number of the strongest feature, from 1 (voxel of the mask in C order, parcel, column).
    peak_mm : tuple of float
        x, y, z of the peak; empty without a grid.
    peak_z : float
        z-score there, with its sign.
    """

    name: str
    share: float
    skewness: float
    kurtosis: float
    peak_feature: int
    peak_mm: tuple[float, ...]
    peak_z: float


def names(n_components: int) -> tuple[str, ...]:
    """Return C01 ... CRR."""
    width = max(2, len(str(n_components)))
    return tuple(f"C{k:0{width}d}" for k in range(1, n_components + 1))


def describe(released: Array, space: FeatureSpace) -> tuple[Component, ...]:
    """Return the numbers of each map.

    Parameters
    ----------
    released : ndarray, shape (D, R)
        Maps A in their final order and sign.
    space : FeatureSpace
        Gives the coordinates of the features.
    """
    z = z_scores(released)
    share, at = variance_explained(released), peaks(z)
    skewness, kurtosis = np.mean(z**3, axis=0), np.mean(z**4, axis=0) - 3.0
    where = coordinates(space)
    return tuple(
        Component(
            name=name,
            share=float(share[k]),
            skewness=float(skewness[k]),
            kurtosis=float(kurtosis[k]),
            peak_feature=int(at[k]) + 1,
            peak_mm=tuple(float(x) for x in where[at[k]]),
            peak_z=float(z[at[k], k]),
        )
        for k, name in enumerate(names(released.shape[1]))
    )


def coordinates(space: FeatureSpace) -> Array:
    """Return the place of each feature in mm, shape (D, 3): voxel, or centre of the parcel.

    Shape (D, 0) without a grid.
    """
    if space.kind == "matrix":
        return np.zeros((space.n_features, 0))
    labels = space.labels()
    ijk = np.argwhere(labels > 0).astype(np.float64)
    if space.kind == "atlas":
        owner = np.unique(labels[labels > 0], return_inverse=True)[1].ravel()
        count = np.bincount(owner)
        ijk = np.stack([np.bincount(owner, weights=axis) / count for axis in ijk.T], axis=1)
    affine = np.asarray(space.affine).reshape(4, 4)
    mm: Array = np.round(ijk @ affine[:3, :3].T + affine[:3, 3], 4) + 0.0
    return mm


def volume(z: Array, space: FeatureSpace) -> Data:
    """Return the maps as one image, shape (x, y, z, R), float32; atlases are painted by label.

    Parameters
    ----------
    z : ndarray, shape (D, R)
        Rows: voxels of the mask in C order, or labels in ascending order.
    """
    labels = space.labels()
    inside = labels > 0
    image = np.zeros((*space.shape, z.shape[1]), dtype=np.float32)
    if space.kind == "atlas":
        owner = np.unique(labels[inside], return_inverse=True)[1].ravel()
        image[inside] = z[owner]
    else:
        image[inside] = z
    return image
