"""Verdict of a temporal run: whether the rounds separated anything.

It rests on the curvature of the contrast at the end of the rounds.  Rounds ask at W turned by a
public angle D = +-delta for every pair of components.  Near an optimum the answer is K = 2 kappa
(angle + D), so the product of K and D, weighted by the noise, estimates c, about 2 kappa.  D is
public and balanced: if K is noise alone, c over its standard error is exactly N(0, 1).
The run is judged first.  If it passes, each component is judged: it must be sparse at the start of
the rounds, or curved by itself, and common to the subjects.  Thresholds were measured
(docs/choosing.md).  All of this is post-processing of released answers and costs no privacy.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.linalg import above_diagonal
from cape.frozen import dataclass

RunVerdict = Literal["converged", "unconfirmed", "not_separated"]
JUDGED: Final = ("converged", "unconfirmed", "not_separated")

# Minimum delta of a wide dither
WIDE = 0.05
# Minimum z and c of a run: gate open and wide dither, gate open, gate shut.  With a shut gate the
# rounds have no start of their own and may end where the contrast is curved by chance.
_OPEN_WIDE, _OPEN, _SHUT = (3.2, 0.065), (4.0, 0.065), (4.0, 0.12)

# With a shut gate, minimum c over the mean squared log eigenvalue that whitening left.  Rounds can
# settle on the axes of that residual, whose curvature on smooth noise was up to .7 of it.
PER_RESIDUAL = 1.0

# Share of the minimum c that must remain without the most curved component.  A component of spikes
# with z 65 once raised c of nineteen components of noise to .13 (.025 without it).
WITHOUT_FIRST = 0.7

# Minimum overlap of subjects with a shut gate: with a wide dither; and with a narrow one, until c
# of a component has this standard error.  Drifts of five components had c .23 and less overlap.
_OVERLAP_WIDE, _OVERLAP, SURE_ERROR = 0.95, 0.9, 0.03

# Minimum z of a component's own curvature that confirms it by time alone: gate open, gate shut
OWN_Z = {True: 3.0, False: 0.0}

# Minimum share that subjects have in common: of a confirmed component, and in the mean of all
# confirmed ones.  Of 833 networks 11 had less than the first; directions beyond the networks had .3
# to .68.  Maps that lie elsewhere in every subject may be curved in time as well: their mean was
# .69 to .71, that of networks .80 and more, even if displaced by a pixel.
MIN_COMMON, MIN_MEAN_COMMON = 0.68, 0.76


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """Evidence of the dither for a run and for its components, in the solver's order."""

    gate: bool  # whether rounds began at the spatial components of the released subspace
    curvature: float  # c, about 2 kappa where something was separated
    z: float  # c over its standard error
    component_curvature: tuple[float, ...]  # c_i, from the pairs with component i
    component_error: float  # standard error of each c_i
    confirmed: tuple[int, ...] = ()  # confirmed components, from 0

    @property
    def status(self) -> RunVerdict:
        if self.confirmed:
            return "converged"
        return "unconfirmed" if self.gate else "not_separated"

    def ordered(self, order: Sequence[int]) -> Self:
        """Put components in a signed order, counted from 1."""
        old = [abs(k) - 1 for k in order]
        return replace(
            self,
            component_curvature=tuple(self.component_curvature[i] for i in old),
            confirmed=tuple(new for new, i in enumerate(old) if i in self.confirmed),
        )

    @property
    def components(self) -> tuple[str, ...]:
        """The verdict on each component, as words."""
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
    """Return the curvatures of R components, without confirming any."""
    # `response` (R (R - 1)/2,) is the sum over the dithered rounds of D_ij K_ij / s^2,
    # `information` that of delta^2 / s^2, the same for all pairs.
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


def judge_run(
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
    """Judge a run of R components, and each component, by the answers (`of_answers`)."""
    # `residual` is that of whitening (`Whitener`).  `sparse` are the components that were sparse at
    # the start of the rounds (`SpatialStart`).  `common` (R,) is the share of each map that
    # subjects have in common, if known; `overlap` is that of all maps together (`Subspace`).
    # Without a dithered round, no component is confirmed.
    R = n_components
    evidence = of_answers(response, information, n_components=R, gate=gate)
    min_z, min_c = (_OPEN_WIDE if dither >= WIDE else _OPEN) if gate else _SHUT
    min_overlap = 0.0
    if not gate:
        min_c = max(min_c, PER_RESIDUAL * residual)
        sure = evidence.component_error <= SURE_ERROR
        min_overlap = _OVERLAP_WIDE if dither >= WIDE else 0.0 if sure else _OVERLAP
    # c_ij = k_i + k_j, so a component without a source gets curvature from its partners.  This
    # difference and its error both have the factor (R - 2)/(R - 1): with R = 2 both are 0.
    own = np.asarray(evidence.component_curvature) - evidence.curvature * R / (2.0 * max(R - 1, 1))
    passed = (
        evidence.z >= min_z
        and evidence.curvature >= min_c
        and overlap >= min_overlap
        and _without_first(response, information, own) >= WITHOUT_FIRST * min_c
    )
    speaks = own >= OWN_Z[gate] * evidence.component_error
    if gate:
        speaks[list(sparse)] = True
    if common is not None:
        speaks &= common >= MIN_COMMON
        passed &= bool(np.sum(common[speaks]) >= MIN_MEAN_COMMON * np.count_nonzero(speaks))
    return replace(evidence, confirmed=tuple(np.flatnonzero(speaks).tolist()) if passed else ())


def _without_first(response: Array, information: float, own: Array) -> float:
    """Return c of the pairs without the most curved component; inf if there is one pair."""
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
