"""Sparse maps that need not be orthogonal: a dictionary that starts at the maps of spatial ICA.

ICA keeps maps uncorrelated over the brain.  Networks that overlap then come out as one map, and the
one that the mean signal took with it stays away.  A dictionary has no such rule: each feature is
the sum of few maps.  Least squares need no more of people's data than their mean second moment, and
the released mean F is one: features are the columns of ``F^(1/2) B'``.

After Mairal et al., online dictionary learning (2009), and its use on brains from a start of ICA
(Varoquaux et al. 2013, Mensch et al. 2016), here with whole steps in turn.
"""

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.left_right import symmetric_root
from cape.frozen import dataclass

# Measured on four generators (docs/choosing.md)
PENALTY = 0.1  # of a map's value, over the root mean square of a feature
STEPS = 13
# From this step on, maps with less of the energy than so much of a strong one are left out: they
# split others.
PRUNED_FROM = 10
LEAST_ENERGY = 0.3
# Share of further components at the start: of two networks that overlap one is among the last.
MORE = 0.3
_SWEEPS = 100
_TOLERANCE = 1e-4  # of values of a map, over the largest
_RIDGE = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Maps:
    """Maps ``B C`` (D, n) of std 1 over the features."""

    C: Array  # (d, n)
    of: npt.NDArray[np.intp]  # (n,): the map at the start that each of them comes from


def started_with(n_components: int, d: int) -> int:
    """Return the number of ICA components for n maps in d directions."""
    return min(int(np.ceil((1.0 + MORE) * n_components)), d)


def sparse_maps(F: Array, B: Array, C: Array, n_components: int, *, strength: Array) -> Maps:
    """Return the n sparse maps of the most energy times strength, from those of a start ``B C``."""
    # F (d, d) PSD; B (D, d) of full rank; C (d, k) and its strength (k,), k >= n.  If fewer than n
    # are left, those of C follow that gave none, by descending strength.
    S, gram = symmetric_root(F), B.T @ B
    penalty = PENALTY * np.sqrt(np.sum(F * gram) / len(B))
    A = B @ C
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    alive = np.arange(A.shape[1])
    for step in range(1, STEPS + 1):
        size = A.T @ A
        ridge = _RIDGE * np.trace(size) / len(size) * np.eye(len(size))
        L = np.linalg.solve(size + ridge, A.T @ B @ S).T
        norm = np.linalg.norm(L, axis=0)
        L /= np.where(norm > 0.0, norm, 1.0)
        A = _coded(B @ (S @ L), L.T @ L, A * norm, penalty)
        energy = np.sum(A**2, axis=0)
        if not energy.any():
            A, alive = A[:, :0], alive[:0]
            break
        least = LEAST_ENERGY * np.sum(energy**2) / energy.sum() if step >= PRUNED_FROM else 0.0
        A, alive = A[:, energy > least], alive[energy > least]
    energy = np.sum(A**2, axis=0) * strength[alive]
    chosen = np.argsort(-energy, kind="stable")[:n_components]
    refined = np.linalg.solve(gram, B.T @ A[:, chosen])
    others = np.setdiff1d(np.arange(C.shape[1]), alive)
    others = others[np.argsort(-strength[others], kind="stable")][: n_components - len(chosen)]
    C = np.concatenate([refined, C[:, others]], axis=1)
    return Maps(C=C / np.std(B @ C, axis=0), of=np.concatenate([alive[chosen], others]))


def _coded(P: Array, gram: Array, A: Array, penalty: float) -> Array:
    """Return A (D, k) with the least ``tr(A gram A')/2 - tr(P A') + penalty |A|_1``, from A."""
    # By descent along one map after the other; the diagonal of `gram` (k, k) is 1.
    A = A.copy()
    for _ in range(_SWEEPS):
        before = A.copy()
        for k in range(A.shape[1]):
            r = P[:, k] - A @ gram[:, k] + A[:, k]
            A[:, k] = np.sign(r) * np.maximum(np.abs(r) - penalty, 0.0)
        if np.max(np.abs(A - before)) <= _TOLERANCE * np.max(np.abs(A)):
            break
    return A
