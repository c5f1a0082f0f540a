"""What a DPdisPCA site sends: the leading part of its own noisy second moment.

Source: Imtiaz and Sarwate, DPdisPCA (Alg. 1).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cape.algorithms.estimators import Array

Order = Literal["signed", "absolute"]


def leading_factor(moment: Array, rank: int, *, order: Order = "signed") -> Array:
    """Return P_s = U_R Sigma_R^(1/2) (D, R) of a site's noisy second moment (D, D), Alg. 1.

    "signed": largest eigenvalues, negative ones count as 0.  "absolute": as the authors' scripts,
    whose SVD takes a large negative noise eigenvalue for a direction.
    """
    # Deviation: "signed" by default, docs/deviations.md no. 11.
    values, vectors = np.linalg.eigh(moment)
    by_size = np.argsort(np.abs(values) if order == "absolute" else values)
    top = by_size[::-1][:rank]
    size = np.abs(values[top]) if order == "absolute" else np.maximum(values[top], 0.0)
    return np.asarray(vectors[:, top] * np.sqrt(size))
