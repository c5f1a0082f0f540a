"""Soft projectors: the answer of a subject in a run without privacy.

A projector of rank R answers with exactly R directions.  If a subject has fewer above its noise,
the others are noise; if it has more, they are lost.  Without privacy no bound on the norm is
needed, so every direction counts by its share of signal.
"""

import numpy as np

from cape.algorithms.estimators import Array

MAX_RANK = 45  # directions of a subject
NOISE_FLOORS = 2.0  # directions below so many noise floors do not count
# Number of the eigenvalue that is the noise floor, at most.  The median of a long run lies in the
# tail of a smooth basis, far below the noise of the leading directions: at 400 volumes it lost a
# network (r .849 beside .903).
FLOOR_AT = 60
_ROUNDING = 1e-7  # eigenvalues below this share of the trace


def soft_root(Y: Array) -> Array:
    """Return L (d, k), ``L L'`` the soft projector of a centred subject Y (d, T)."""
    # Its eigenvalues are ``max(0, 1 - 2 m / l_i)``, l_i those of ``Y Y'`` and m the noise floor:
    # their median or, in a long run, the `FLOOR_AT`-th.  k is 0 if Y is zero or not finite.
    peak = float(np.max(np.abs(Y), initial=0.0))
    if not np.isfinite(peak) or peak == 0.0:
        return np.zeros((len(Y), 0))
    U, size, _ = np.linalg.svd(Y / peak, full_matrices=False)
    values = size**2
    kept = values[values > _ROUNDING * values.sum()]
    floor = NOISE_FLOORS * float(kept[min(len(kept) // 2, FLOOR_AT)])
    weights = 1.0 - floor / kept[:MAX_RANK]
    k = int(np.count_nonzero(weights > 0.0))
    return np.asarray(U[:, :k] * np.sqrt(weights[:k]))


def soft_projector(Y: Array) -> Array:
    """Return the matrix (d, d) of a centred subject Y (d, T), PSD with eigenvalues below 1."""
    root = soft_root(Y)
    return np.asarray(root @ root.T)
