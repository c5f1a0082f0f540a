"""Did the rounds separate anything?  The answer is the curvature of the contrast where they end.

Rounds ask at W turned by a public angle D of +-delta for every pair of components.  Near an optimum
the answer is K = 2 kappa (angle + D): its product with D, weighed by the noise, estimates c, about
2 kappa.  D is public and balanced, so if K is noise only, c over its error is exactly N(0, 1).
The run is judged first, and where it passes, every component: it must be sparse where the rounds
began or curved by itself, and common to the subjects.  Thresholds are measured
(docs/temporal-ica.md).  Post-processing of released answers, and free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.linalg import above_diagonal
from cape.frozen import dataclass

RunVerdict = Literal["converged", "unconfirmed", "not_separated"]
JUDGED: Final = ("converged", "unconfirmed", "not_separated")

# Smallest z and c of a run: with an open gate and a wide dither, with an open gate, and with a shut
# one, where rounds come from nowhere and may end in a place that is curved by chance.
WIDE = 0.05
_OPEN_WIDE, _OPEN, _SHUT = (3.2, 0.065), (4.0, 0.065), (4.0, 0.12)

# With a shut gate rounds also settle on the axes of what whitening has left, which are curved by up
# to .7 of its mean squared log eigenvalue on smooth noise (measured, where this threshold is above
# the plain one); sources must show more.
PER_RESIDUAL = 1.0

# Part of the least c that must be left without the component that is curved most: one of spikes had
# 65 errors by itself and lent c .13 to nineteen that were noise (.025 without it).
WITHOUT_FIRST = 0.7

# With a shut gate the run is also judged by what all maps together have in common: drifts of five
# components once had c .23 there, with an overlap below this.  Least overlap with the wide dither,
# and with the narrow one until c of a component has this standard error.
_OVERLAP_WIDE, _OVERLAP, SURE_ERROR = 0.95, 0.9, 0.03

# z of a component's own curvature from which time alone speaks for it: gate open, gate shut
OWN_Z = {True: 3.0, False: 0.0}

# Least share of a confirmed component that subjects have in common, and the least mean of all that
# are confirmed.  Of 833 networks 11 had less, directions beyond the networks there are .3 to .68.
# Maps that every subject has elsewhere may be curved in time as well: their mean was .69 to .71,
# that of networks .80 and more, also where they lie elsewhere by a pixel.
MIN_COMMON, MIN_MEAN_COMMON = 0.68, 0.76


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """Evidence of the dither for a run and for its components, in the solver's order."""

    gate: bool  # whether rounds began at the spatial components of the released subspace
    curvature: float  # c, about 2 kappa where something was separated
    z: float  # c over its standard error
    component_curvature: tuple[float, ...]  # c_i, of the pairs with component i
    component_error: float  # standard error of every c_i
    confirmed: tuple[int, ...] = ()  # components that were confirmed, from 0

    @property
    def status(self) -> RunVerdict:
        if self.confirmed:
            return "converged"
        return "unconfirmed" if self.gate else "not_separated"

    def ordered(self, order: Sequence[int]) -> Confirmation:
        """Put components into a signed order, counted from 1."""
        before = [abs(k) - 1 for k in order]
        return replace(
            self,
            component_curvature=tuple(self.component_curvature[i] for i in before),
            confirmed=tuple(at for at, i in enumerate(before) if i in self.confirmed),
        )

    @property
    def components(self) -> tuple[str, ...]:
        """A word for every component."""
        others = {
            "converged": "not confirmed",
            "unconfirmed": "spatial set",
            "not_separated": "not separated",
        }[self.status]
        n = len(self.component_curvature)
        return tuple("confirmed" if i in self.confirmed else others for i in range(n))


def of_answers(
    response: Array, information: float, *, n_components: int, gate: bool
) -> Confirmation:
    """Return the curvatures of R components, none of which is confirmed yet.

    `response` (R (R - 1)/2,): sum over the dithered rounds of D_ij K_ij / s^2; `information`: sum
    of delta^2 / s^2, the same for all pairs.
    """
    R, scale = n_components, max(information, np.finfo(float).tiny)
    n_pairs, partners = max(len(response), 1), max(R - 1, 1)
    total = float(response.sum())
    by_component = _matrix(response, R).sum(axis=1)
    return Confirmation(
        gate=gate,
        curvature=total / (scale * n_pairs),
        z=total / float(np.sqrt(scale * n_pairs)),
        component_curvature=tuple((by_component / (scale * partners)).tolist()),
        component_error=float(1.0 / np.sqrt(scale * partners)),
    )


def judge(
    response: Array,
    information: float,
    *,
    n_components: int,
    gate: bool,
    dither: float,
    residual: float = 0.0,
    sparse: Sequence[int] = (),
    common: Array | None = None,
    overlap: float = 1.0,
) -> Confirmation:
    """Judge a run of R components by its answers (`of_answers`), and each component.

    `residual`: what whitening left (`Whitener`); `sparse`: components that were sparse where the
    rounds began (`SpatialStart`); `common` (R,): share of each map that subjects have in common, if
    it is known; `overlap`: that of all maps together (`Subspace`).  Without a dithered round
    nothing was separated.
    """
    R = n_components
    found = of_answers(response, information, n_components=R, gate=gate)
    least_z, least_c = (_OPEN_WIDE if dither >= WIDE else _OPEN) if gate else _SHUT
    least_overlap = 0.0
    if not gate:
        least_c = max(least_c, PER_RESIDUAL * residual)
        sure = found.component_error <= SURE_ERROR
        least_overlap = _OVERLAP_WIDE if dither >= WIDE else 0.0 if sure else _OVERLAP
    # c_ij = k_i + k_j, so partners lend curvature to a component without a source.  This
    # difference and its error both have the factor (R - 2)/(R - 1): of two none speaks alone.
    own = np.asarray(found.component_curvature) - found.curvature * R / (2.0 * max(R - 1, 1))
    passed = (
        found.z >= least_z
        and found.curvature >= least_c
        and overlap >= least_overlap
        and _without_first(response, information, own) >= WITHOUT_FIRST * least_c
    )
    speaks = own >= OWN_Z[gate] * found.component_error
    if gate:
        speaks[list(sparse)] = True
    if common is not None:
        speaks &= common >= MIN_COMMON
        passed &= bool(np.sum(common[speaks]) >= MIN_MEAN_COMMON * np.count_nonzero(speaks))
    return replace(found, confirmed=tuple(np.flatnonzero(speaks).tolist()) if passed else ())


def _without_first(response: Array, information: float, own: Array) -> float:
    """Return c of the pairs without the component that is curved most; inf of one pair."""
    R = len(own)
    if R <= 2:
        return np.inf
    others = np.arange(R) != int(np.argmax(own))
    pairs = _matrix(response, R)[np.ix_(others, others)]
    return float(pairs.sum()) / (max(information, np.finfo(float).tiny) * (R - 1) * (R - 2))


def _matrix(response: Array, R: int) -> Array:
    """Return the answers of all pairs as a symmetric matrix (R, R)."""
    matrix = np.zeros((R, R))
    matrix[above_diagonal(R)] = response
    return matrix + matrix.T
