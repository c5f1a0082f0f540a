"""How much of a map is the noise that was added, and how many components rise above it.

First-order propagation of public noise, so it costs no budget.  Noise of the subspace release turns
directions out of it (spiked symmetric matrix: s_off^2 / theta^2 per outside coordinate); noise of
the last whitening look and the rounds mixes maps.  After a spatial start three coefficients were
fitted to planted maps (13 kinds of data, docs/temporal-ica.md), and the curvature that the verdict
found says how much of an error the rounds still corrected.  Where nothing was separated, or
outside its conditions, nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.pca import rank_guard
from cape.algorithms.quasi_newton import (
    CURVATURE,
    SLOPE,
    START_ANGLE,
    dense_g,
    filter_gain,
    tuned_constants,
)
from cape.algorithms.verdict import Verdict
from cape.computations import planner_of
from cape.computations.ica.settings import IcaConfig
from cape.forecast.rule import ForecastRule, g_eff
from cape.forecast.temporal import FEW_ROUNDS
from cape.frozen import dataclass
from cape.privacy.cost import total_of
from cape.protocol.outcome import IcaOutcome
from cape.settings.config import PRODUCT

# Largest number of components that can be asked for
MOST = 50
# Weights of the three errors of a map after a spatial start (outside of the subspace, symmetric and
# skew mixing), with what they were fitted with: the least share of a map that is kept, the angle of
# the start, and the most that the curvature of the verdict counts, in units of kappa_0
FITTED = (0.45, 2.5, 1.0)
LEAST_KEPT = 0.1
ANGLE_OF_START = 0.06
STEEPEST = 1.2
# Standard deviations of a two-sided 95 % band
LEVEL = 1.96
# How far, at most, the mean expected correlation was from the real one in the test, and the share
# of features inside the band from 95 %
MARGIN_R = 0.05
MARGIN_BAND = 0.07


def bands(outcome: IcaOutcome) -> tuple[Array, Array]:
    """Return of each map (k,) the |z| of a 95 % band of its noise, and its r with that without.

    Where `why_not` gives a reason they may be wrong.
    """
    kept = _kept(outcome)
    return LEVEL * np.sqrt(1.0 - kept), np.sqrt(kept)


def _kept(outcome: IcaOutcome) -> Array:
    """Share of each map (k,) that is not noise."""
    noise, own = _noise(outcome), outcome.A.var(axis=0)
    others = (own.sum() - own) / own
    outside = _off_subspace(outcome, noise["pca"][0]) / own
    # U <- expm(-A/2) U: half of the noise of the last look stays, symmetric.
    looks = noise["whitening"]
    symmetric = (looks[-1] / math.sqrt(2.0) / 2.0) ** 2 if looks else 0.0
    if outcome.verdict is None or not outcome.verdict.gate:
        error = outside + (symmetric + _rotation(noise["iterate"])) * others
        return np.asarray(np.maximum(0.0, 1.0 - error))
    parts = (outside, symmetric * others, _filtered(noise["iterate"], outcome.verdict) * others)
    error = sum(w * np.minimum(1.0, part) for w, part in zip(FITTED, parts, strict=True))
    return np.asarray(np.clip(1.0 - error, LEAST_KEPT, 1.0))


def why_not(outcome: IcaOutcome) -> str:
    # Empty if a band can be given.  Each refusal is a condition under which the test on planted
    # maps found the band wrong, and one that is too narrow is worse than none.
    settings, k = outcome.settings, outcome.A.shape[1]
    strength = _noise_strength(outcome)
    if strength is None:
        return "no noise was added"
    if outcome.computation != PRODUCT or settings.get("score") != "volatility":
        return f"it was checked against planted maps for {PRODUCT} with its own score only"
    done = sum(record.phase == "iterate" for record in outcome.trace)
    verdict = outcome.verdict
    if verdict is None or done < FEW_ROUNDS:
        return "too few rounds were released"
    if verdict.status == "not_separated":
        return "nothing was separated, so the maps are an arbitrary mixture"
    if not verdict.gate:
        if strength < dense_g(k):
            return "at this budget the maps mostly show noise, and the band would be too narrow"
        if outcome.rank_status not in ("gap", "reduced"):
            return "the spectrum has no clear gap, so what lies outside the maps is not known"
    # One more may be chance; two mean that signal was left outside the maps.
    if above_edge(outcome.eigenvalues, outcome.edge) > k + 1:
        return "more directions than components stand above the noise edge"
    return ""


def _noise_strength(outcome: IcaOutcome) -> float | None:
    events = outcome.roster.plan
    if not events or not all(event.private for event in events):
        return None
    # Of the plan, not of the ledger: a run that ends early has the noise of its plan all the same.
    return effective_size(outcome, math.sqrt(total_of(events).mu2 or 0.0))


def effective_size(outcome: IcaOutcome, mu: float) -> float:
    roster, noise_shares = outcome.roster, outcome.noise_shares
    size, n_sites = roster.n_subjects, roster.n_sites
    return g_eff(n_subjects=size, mu=mu, noise_shares=noise_shares, n_sites=n_sites)


def above_edge(eigenvalues: Array, edge: float) -> int:
    return int(np.count_nonzero(eigenvalues > edge)) if edge > 0 else 0


def _noise(outcome: IcaOutcome) -> dict[str, list[float]]:
    """Noise std on each entry of every released mean, by phase."""
    sizes = {entry.site: entry.n_subjects for entry in outcome.roster.sites}
    stds: dict[str, list[float]] = {}
    events = {(event.phase, event.round): event for event in outcome.ledger.events}
    for record in outcome.trace:
        # A sum of fewer sites has the noise of fewer, over fewer subjects.
        present = record.survivors or tuple(sizes)
        event = events[record.phase, record.round]
        std = event.noise_std(len(present), sum(sizes[site] for site in present))
        stds.setdefault(record.phase, []).append(std)
    return stds


def _off_subspace(outcome: IcaOutcome, noise_std: float) -> Array:
    """Mean squared error per feature (k,) from directions outside the subspace."""
    k = outcome.A.shape[1]
    values = np.sort(outcome.eigenvalues)[::-1]
    d = len(values)
    # Off the diagonal an entry stands in the released vector times sqrt 2 (svec).
    s_off = noise_std / math.sqrt(2.0)
    # An observed spike x = theta + s_off^2 d / theta over the mean of the rest.
    x = values[:k] - (values[k:].mean() if d > k else 0.0)
    theta = (x + np.sqrt(np.maximum(x * x - 4.0 * s_off**2 * d, 0.0))) / 2.0
    per_coordinate = s_off**2 / np.maximum(theta, 1e-12) ** 2
    mixing = np.linalg.inv(outcome.W @ outcome.U)  # A = B V (W U)^-1
    n_features = outcome.A.shape[0]
    return np.asarray((mixing**2).T @ per_coordinate * (d - k) / n_features)


def _filtered(rounds: Sequence[float], verdict: Verdict) -> float:
    """Variance of the angle between two components after the rounds of the filter."""
    # How much of an error a round of gain g takes away: g, if answers are as steep as it believes.
    slope = min(max(verdict.curvature / SLOPE, 0.0), STEEPEST)
    error, variance = ANGLE_OF_START**2, START_ANGLE**2
    if verdict.status == "unconfirmed":  # the run ended with the start
        return error
    for noise_std in rounds:
        angle_noise = noise_std / SLOPE
        gain, variance = filter_gain(variance, angle_noise)
        error = (1.0 - gain * slope) ** 2 * error + (gain * angle_noise) ** 2
    return error


def _rotation(rounds: Sequence[float]) -> float:
    """Variance of the angle between two components after all rounds."""
    constants, kappa = tuned_constants(MOST, math.inf), CURVATURE["volatility"]
    variance = 0.0
    for t, noise_std in enumerate(rounds):
        progress = t / (len(rounds) - 1) if len(rounds) > 1 else 0.0
        ratio = constants.alpha_last / constants.alpha_first
        alpha = constants.alpha_first * ratio**progress
        added = (alpha * noise_std / (2.0 * kappa)) ** 2
        # The first step starts from an arbitrary rotation: there is no error of before to keep.
        variance = added if t == 0 else (1.0 - alpha) ** 2 * variance + added
    return variance


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOrderHint:
    """What the released spectrum says of the number of components, and what the budget does."""

    suggested: int | None = None  # None where the spectrum does not tell
    noisy: bool = False  # whether the spectrum carries noise, and so has an edge
    above: int = 0  # eigenvalues above the noise edge
    requested: int  # in the settings
    budget_text: str = ""
    doubtful: bool = False  # clearly too few, or more than the budget was ever seen to give

    @property
    def too_few(self) -> bool:
        return self.above > self.requested


def requested_of(settings: Mapping[str, object], n_components: int) -> int:
    """Return R of the settings; where they leave it to G, `n_components`, those that were found."""
    return int(str(settings.get("n_components") or n_components))


def config_of(computation: str, settings: Mapping[str, object], requested: int) -> IcaConfig | None:
    """Return the settings of a run as its computation reads them; None of one without a plan."""
    if (planner := planner_of(computation)) is None:
        return None
    # Not checked again: a page is made of what lies in the folder.
    known = {option.name for option in fields(planner.config)}
    own = {name: value for name, value in settings.items() if name in known}
    values: dict[str, Any] = {"epsilon": 0.0, "delta": 0.0, **own, "n_components": requested}
    return planner.config(**values)


def rule_of(
    computation: str, settings: Mapping[str, object], requested: int
) -> ForecastRule | None:
    """Return the rule by which a run was planned, None for a computation without a forecast."""
    planner, config = planner_of(computation), config_of(computation, settings, requested)
    if planner is None or config is None:
        return None
    # The size of the basis changes nothing of what a report asks of the rule.
    return planner.rule(config, config.n_basis or config.max_features)


def hint(
    eigenvalues: Array,
    rule: ForecastRule | None,
    *,
    requested: int,
    edge: float,
    n_components: int,
    g: float | None,
) -> ModelOrderHint:
    """Read the released spectrum (d,); `edge` is the top of noise alone, 0 without.

    A number is suggested for more directions above the edge than were asked for, or a clear gap.
    Eigenvalues under the edge say nothing against R: 13 to 16 of 20 networks that came back stood
    above it at G 110 and 170.
    """
    values = np.sort(eigenvalues)[::-1]
    if edge <= 0.0 or values.size < 3:
        return ModelOrderHint(requested=requested)
    above, rank = above_edge(values, edge), rank_guard(values, requested, edge)
    suggested = rank.k if rank.status in ("gap", "reduced") else None
    budget_text, most = "", MOST
    if g is not None and rule is not None:
        budget_text, most = rule.largest_text(g), rule.largest_possible(g)
    return ModelOrderHint(
        # A projector of each subject holds `requested` directions, so that a run that asks for too
        # few can only say "at least".
        suggested=min(MOST, above) if above > requested else suggested,
        noisy=True,
        above=above,
        requested=requested,
        budget_text=budget_text,
        doubtful=above > requested or n_components > most,
    )
