"""The spatial recipe: from a released mean of projectors to maps, by mirror, rotation and claims.

A capegica run applies it to its one release.  A temporal run on images applies it to its first
release, which is the same mean, and shows the maps as well (`free_set`).  Only the aggregator runs
this, as the last step of a stage, because FastICA on another host could stop at another step.
"""

from __future__ import annotations

import math
import pkgutil
import tomllib
from dataclasses import replace

import numpy as np

from cape.algorithms.bagging import BAG_SCORE, bagged, sampled_rows, split_half_of, suggested_order
from cape.algorithms.claims import (
    MOST_HALVED,
    MOST_PEOPLE,
    Calibrated,
    SplitHalf,
    claims_of,
    cohort,
)
from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.dictionary import sparse_maps, started_with
from cape.algorithms.estimators import Array
from cape.algorithms.left_right import CLEAR_Z, LeftRight, Mirror, left_right
from cape.algorithms.linalg import smat
from cape.algorithms.pca import FreeSet
from cape.algorithms.spatial import SpatialScore
from cape.computations.ica.mirror import mirror_of, null_of
from cape.computations.ica.model import IcaModel
from cape.computations.ica.settings import LeftRightConfig, SpatialConfig
from cape.forecast.one_release import spatial_basis_size, spatial_components
from cape.protocol.model import joined
from cape.protocol.outcome import SpatialSet
from cape.protocol.wire import decode_document
from cape.settings.resolved import resolve
from cape.space.public_basis import Basis, in_basis, public_basis

# G from which left and right are averaged only where noise hides their difference: a plain average
# loses networks of one side, at any G.
MIN_ODD_G = 350.0

# Directions in which halves of people are compared.  In finer ones patterns that are no networks
# are alike in all people, too: of two cohorts of 10 networks 27 of 40 maps were, and 22 in these.
MOST_DIRECTIONS = 300

# Constants of the claims and the measurements behind them
CALIBRATED = decode_document(
    tomllib.loads((pkgutil.get_data(__package__, "claims.toml") or b"").decode()), Calibrated
)


def rotated(
    F: Array,
    B: Basis | None,
    n_components: int,
    *,
    noise_std: float,
    mirror: Mirror | None,
    test: LeftRight | None,
    q: float,
    rank: int,
    symmetry: str,
    kind: str,
    n_subjects: int,
    score: SpatialScore = BAG_SCORE,
    suggest: bool = False,
) -> FreeSet:
    """Apply the recipe to a released mean F (d, d): mirror, bagged maps, claims."""
    # `rank` is R of the projectors, `q` the `claims.cohort` of the mean before any mirroring,
    # `kind` that of the feature space; `suggest`: without noise also suggest a number of
    # components.
    clear = test is not None and test.z >= CLEAR_Z
    # A mirror removes noise; without noise it is not needed.
    wanted = symmetry == "assume" or (symmetry == "auto" and clear and noise_std > 0)
    J = mirror.J if mirror is not None and wanted else None
    g = math.sqrt(2.0 * rank) / noise_std if noise_std else math.inf
    # Without noise, the rest of F can tell apart networks that overlap.  Where left and right
    # cannot be compared, sparseness is judged, so maps must not be made sparse.
    sparse = kind == "mask" and test is not None and noise_std == 0
    n_started = started_with(n_components, len(F)) if sparse else n_components
    bag = bagged(
        F,
        B,
        n_started,
        noise_std=noise_std,
        n_subjects=n_subjects,
        J=J,
        keep_odd=symmetry == "auto" and g >= MIN_ODD_G,
        score=score,
    )
    C, stability = bag.C, bag.stability
    if sparse:
        refined = sparse_maps(F, sampled_rows(B, len(F)), C, n_components, strength=stability)
        C, stability = refined.C, stability[refined.of]
    maps = np.asarray(C if B is None else B @ C)
    order = arrange(maps, stability)
    C, maps = apply_order(order, C, 1), apply_order(order, maps, 1)
    stability = stability[np.abs(order) - 1]
    claims = None
    if clear and mirror is not None and noise_std > 0:
        claims = claims_of(
            maps,
            C,
            F,
            mirror.J,
            stability=stability,
            q=q,
            noise_std=noise_std,
            rank=rank,
            mirrored=J is not None,
            kind=kind,
            rule=CALIBRATED.rule,
        )
    split_half = None
    if clear and mirror is not None and noise_std == 0 and n_subjects <= MOST_PEOPLE:
        k = min(len(F), MOST_DIRECTIONS)
        rows = sampled_rows(B, len(F))[:, :k]
        n, halved = min(n_started, k), min(n_subjects, MOST_HALVED)
        r = split_half_of(F[:k, :k], rows, C[:k], n_components=n, n_subjects=halved)
        suggested = suggested_order(F[:k, :k], rows, n_subjects=n_subjects) if suggest else None
        split_half = SplitHalf.of(r, C, mirror.J, q=q, n_components=suggested)
    return FreeSet(
        directions=C,
        converged=bag.converged,
        test=test,
        mirrored=J is not None,
        claims=claims,
        split_half=split_half,
        stability=tuple(stability.tolist()),
    )


def free_set(config: LeftRightConfig, model: IcaModel, mean: Array) -> FreeSet | None:
    """Return the spatial components of a released mean (svec); None if the recipe does not apply.

    They are made in the number of smooth directions that suits the noise of the release, whatever
    the basis of the run.  On real brains they were better than the maps of the rounds
    (docs/choosing.md).
    """
    roster = joined(model)
    space, d = roster.space, roster.n_basis
    smooth = resolve(config).basis in ("dct", "none")
    if space.kind not in ("mask", "atlas") or not smooth or model.subspace is None:
        return None
    R, noise_std = config.n_components, model.subspace.noise_std
    g = math.sqrt(2.0 * R) / noise_std if noise_std else math.inf
    n = min(spatial_components(g), R)
    k = min(spatial_basis_size(g, n), d)
    brains = as_spatial(config, k)
    K, F = public_basis(resolve(brains), space, k), smat(mean)
    C = _between(K, public_basis(resolve(config), space, d), d)
    mirror, test, q = mirror_of(brains, space, k), None, 0.0
    if mirror is not None:
        # The test uses the mean as released, whose noise is known exactly.
        weighed = C.T @ mirror.weighed @ C
        null = null_of(config, space, d, Mirror(J=weighed, weighed=weighed), R)
        test = left_right(
            F, weighed, null, noise_std=noise_std, n_subjects=roster.n_subjects, n_components=R
        )
        q = cohort(F, test, noise_std=noise_std, n_subjects=roster.n_subjects, rank=R)
    maps = rotated(
        C @ F @ C.T,
        K,
        n,
        noise_std=noise_std,
        mirror=mirror,
        test=test,
        q=q,
        rank=R,
        symmetry=config.symmetry,
        kind=space.kind,
        n_subjects=roster.n_subjects,
    )
    V, mixing = np.linalg.qr(maps.directions)  # rounded as the maps of a capegica run
    return replace(maps, directions=V @ mixing)


def as_spatial(config: LeftRightConfig, k: int) -> SpatialConfig:
    """Return the settings of the recipe's own basis, of k directions."""
    return SpatialConfig.of(config, n_basis=k)


def _between(K: Basis | None, B: Basis | None, d: int) -> Array:
    """Return ``K' B``, shape (k, d); None is the identity."""
    if K is None or B is None:
        rows = np.eye(d) if B is None else B @ np.eye(d)
        return in_basis(K, rows)
    # In parts, because an interpolated basis is too large for memory.
    parts = [in_basis(K, B @ np.eye(d)[:, i : i + 16]) for i in range(0, d, 16)]
    return np.concatenate(parts, axis=1)


def set_of(config: LeftRightConfig, model: IcaModel) -> SpatialSet | None:
    """Return the free set of a run for the report; None if there is none."""
    if model.subspace is None or (free := model.subspace.free) is None:
        return None
    space, k = joined(model).space, len(free.directions)
    K = public_basis(resolve(as_spatial(config, k)), space, k)
    return SpatialSet(
        A=free.directions if K is None else np.asarray(K @ free.directions),
        sparseness=None,
        recipe=True,
        n_basis=k,
        **free.said(),
    )
