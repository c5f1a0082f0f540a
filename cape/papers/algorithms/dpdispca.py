"""What a DPdisPCA site sends: the leading part of its own noisy second moment.

Source: Imtiaz and Sarwate, DPdisPCA (Alg. 1).
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array


def leading_factor(moment: Array, rank: int) -> Array:
    """Return P_s = U_R Sigma_R^(1/2) (D, R) of a site's noisy second moment (D, D), Alg. 1.

    Of the largest eigenvalues; negative ones count as 0.
    """
    # Deviation: the SVD of the authors' scripts takes a large negative noise eigenvalue for a
    # direction, docs/deviations.md no. 11.
    values, vectors = np.linalg.eigh(moment)
    top = np.argsort(values)[::-1][:rank]
    return np.asarray(vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0)))
