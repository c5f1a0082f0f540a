"""Did the rounds separate anything?  The answer is the curvature of the contrast where they end.

Rounds ask at W turned by a public angle D of +-delta for every pair of components.  Near an optimum
the answer is K = 2 kappa (angle + D): its product with D, weighed by the noise, estimates c, about
2 kappa.  D is public and balanced, so if K is noise only, c over its error is exactly N(0, 1).
Thresholds are measured (docs/temporal-ica.md).  Post-processing of released answers, and free.
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

# Smallest z and c of a confirmed run: with an open gate and a wide dither, with an open gate, and
# with a shut one, where rounds come from nowhere and may end in a place that is curved by chance.
WIDE = 0.05
_OPEN_WIDE, _OPEN, _SHUT = (3.2, 0.065), (4.0, 0.08), (4.0, 0.12)

# With a shut gate rounds also settle on the axes of what whitening has left, which are curved by up
# to .7 of its mean squared log eigenvalue on smooth noise (measured, where this threshold is above
# the plain one); sources must show more.
PER_RESIDUAL = 1.0

# Time courses may well confirm a set that is too coarse: q .10 to .12 where a third of the subjects
# had other maps, or networks lay elsewhere by a pixel.  The less subjects have in common, the more
# of a set is noise.  Least overlap with the wide dither, and with the narrow one until c of a
# component has this standard error (R 20: G 205 with an open gate), from where on q was below .07.
_OVERLAP_WIDE, _OVERLAP, SURE_ERROR = 0.95, 0.9, 0.03

# A component's own verdict: smallest z, and the largest standard error of its c with which enough
# good components reach it (measured: nine of ten from G 170 on at R = 20).
COMPONENT_Z = 2.0
COMPONENT_ERROR = 0.038


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the answers to the dither say of a run and of its components, in the solver's order."""

    status: RunVerdict
    gate: bool  # whether rounds began at the spatial components of the released subspace
    curvature: float  # c, about 2 kappa where something was separated
    z: float  # c over its standard error
    component_curvature: tuple[float, ...]  # c_i, of the pairs with component i
    component_error: float  # standard error of every c_i

    def ordered(self, order: Sequence[int]) -> Verdict:
        """Put components into a signed order, counted from 1."""
        curvature = tuple(self.component_curvature[abs(k) - 1] for k in order)
        return replace(self, component_curvature=curvature)

    @property
    def components(self) -> tuple[str, ...]:
        """A word for every component."""
        k = len(self.component_curvature)
        if self.status != "converged":
            return (("spatial set" if self.gate else "not separated"),) * k
        if self.component_error > COMPONENT_ERROR:
            return ("run confirmed",) * k
        least = COMPONENT_Z * self.component_error
        words = ("not confirmed", "confirmed")
        return tuple(words[c >= least] for c in self.component_curvature)


def judge(
    response: Array,
    information: float,
    *,
    n_components: int,
    gate: bool,
    dither: float,
    residual: float = 0.0,
    overlap: float = 1.0,
) -> Verdict:
    """Verdict of a run of R components.

    `response` (R (R - 1)/2,): sum over the dithered rounds of D_ij K_ij / s^2; `information`: sum
    of delta^2 / s^2, the same for all pairs; `residual`: what whitening left (`Whitener`);
    `overlap`: what subjects have in common (`Subspace`).
    Without a dithered round nothing was separated.
    """
    R, pairs = n_components, len(response)
    scale = max(information, np.finfo(float).tiny)
    of_pairs = np.zeros((R, R))
    of_pairs[above_diagonal(R)] = response
    by_component = (of_pairs + of_pairs.T).sum(axis=1)
    c = float(response.sum()) / (scale * max(pairs, 1))
    z = float(response.sum()) / float(np.sqrt(scale * max(pairs, 1)))
    least_z, least_c = (_OPEN_WIDE if dither >= WIDE else _OPEN) if gate else _SHUT
    if not gate:
        least_c = max(least_c, PER_RESIDUAL * residual)
    error = float(1.0 / np.sqrt(scale * max(R - 1, 1)))
    least_overlap = _OVERLAP_WIDE if dither >= WIDE else _OVERLAP if error > SURE_ERROR else 0.0
    confirmed = z >= least_z and c >= least_c and overlap >= least_overlap
    return Verdict(
        status="converged" if confirmed else "unconfirmed" if gate else "not_separated",
        gate=gate,
        curvature=c,
        z=z,
        component_curvature=tuple((by_component / (scale * max(R - 1, 1))).tolist()),
        component_error=error,
    )
