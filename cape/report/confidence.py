"""Share of a map that is added noise, and the number of components above the noise edge.

Public noise is propagated to first order, which costs no budget.  Noise of the subspace release
turns its directions (spiked symmetric matrix: s_off^2 / theta^2 per outside coordinate); noise of
the last whitening look and of the rounds mixes maps.  After a spatial start three coefficients were
fitted to planted maps (13 kinds of data, docs/choosing.md), and the curvature of the verdict
tells how much of an error the rounds corrected.  `why_not` names the conditions without a band.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from cape.algorithms import quasi_newton
from cape.algorithms.estimators import Array
from cape.algorithms.pca import rank_guard
from cape.algorithms.verdict import Confirmation
from cape.computations import planner_of
from cape.computations.ica.settings import IcaConfig
from cape.forecast.rule import MAX_COMPONENTS, ForecastRule, g_eff
from cape.forecast.temporal import MIN_ROUNDS
from cape.frozen import dataclass
from cape.privacy.cost import total_of
from cape.privacy.ledger import by_exchange
from cape.protocol.outcome import IcaOutcome
from cape.settings.config import PRODUCT

# Weights of the three errors of a map after a spatial start (outside of the subspace, symmetric and
# skew mixing), and the constants of their fit: smallest share of a map that is kept, angle of the
# start, and largest curvature that counts, in units of kappa_0
FITTED = (0.45, 2.5, 1.0)
MIN_KEPT = 0.1
ANGLE_OF_START = 0.06
MAX_SLOPE = 1.2
# Standard deviations of a two-sided 95 % band
BAND_WIDTH = 1.96
# Largest errors on planted maps: of the mean expected correlation, and of the share of features
# inside the band, whose nominal value is 95 %
MARGIN_R = 0.05
MARGIN_BAND = 0.07


def bands(outcome: IcaOutcome) -> tuple[Array, Array]:
    """Return for each map (k,) its 95 % noise band in |z|, and its r with the map without noise."""
    # Both may be wrong if `why_not` gives a reason.
    noise, variance = _noise(outcome), outcome.A.var(axis=0)
    others = (variance.sum() - variance) / variance
    outside = _off_subspace(outcome, noise["pca"][0]) / variance
    # U <- expm(-A/2) U leaves half of the last look's noise, a symmetric error.
    looks = noise["whitening"]
    symmetric = (looks[-1] / math.sqrt(2.0) / 2.0) ** 2 if looks else 0.0
    # The share of each map that is not noise
    if outcome.verdict is None or not outcome.verdict.gate:
        error = outside + (symmetric + _rotation(noise["iterate"])) * others
        signal = np.maximum(0.0, 1.0 - error)
    else:
        parts = (outside, symmetric * others, _filtered(noise["iterate"], outcome.verdict) * others)
        error = sum(w * np.minimum(1.0, part) for w, part in zip(FITTED, parts, strict=True))
        signal = np.clip(1.0 - error, MIN_KEPT, 1.0)
    return BAND_WIDTH * np.sqrt(1.0 - signal), np.sqrt(signal)


def why_not(outcome: IcaOutcome) -> str:
    # Empty if a band can be given.  Each reason is a condition under which the band was wrong on
    # planted maps: a band that is too narrow is worse than none.
    settings, k = outcome.settings, outcome.A.shape[1]
    strength = _noise_strength(outcome)
    if strength is None:
        return "no noise was added"
    if outcome.computation != PRODUCT or settings.get("score") != "volatility":
        return f"it was checked against planted maps for {PRODUCT} with its own score only"
    done = sum(record.phase == "iterate" for record in outcome.trace)
    verdict = outcome.verdict
    if verdict is None or done < MIN_ROUNDS:
        return "too few rounds were released"
    if verdict.status == "not_separated":
        return "nothing was separated, so the maps are an arbitrary mixture"
    if not verdict.gate:
        if strength < quasi_newton.dense_g(k):
            return "at this budget the maps mostly show noise, and the band would be too narrow"
        if outcome.rank_status not in ("gap", "reduced"):
            return "the spectrum has no clear gap, so what lies outside the maps is not known"
    # One direction more may be chance; two more mean that the maps miss signal.
    if above_edge(outcome.eigenvalues, outcome.edge) > k + 1:
        return "more directions than components stand above the noise edge"
    return ""


def _noise_strength(outcome: IcaOutcome) -> float | None:
    events = outcome.roster.plan
    if not events or not all(event.private for event in events):
        return None
    # Take the plan, not the ledger: a run that ends early has the noise of its plan.
    return effective_size(outcome, math.sqrt(total_of(events).mu2 or 0.0))


def effective_size(outcome: IcaOutcome, mu: float) -> float:
    roster, noise_shares = outcome.roster, outcome.noise_shares
    size, n_sites = roster.n_subjects, roster.n_sites
    return g_eff(n_subjects=size, mu=mu, noise_shares=noise_shares, n_sites=n_sites)


def above_edge(eigenvalues: Array, edge: float) -> int:
    return int(np.count_nonzero(eigenvalues > edge)) if edge > 0 else 0


def _noise(outcome: IcaOutcome) -> dict[str, list[float]]:
    """Return the noise std per entry of every released mean, by phase."""
    sizes = {entry.site: entry.n_subjects for entry in outcome.roster.sites}
    stds: dict[str, list[float]] = {}
    events = by_exchange(outcome.ledger.events)
    for record in outcome.trace:
        # After a dropout both the noise and the number of subjects are those of the survivors.
        present = record.survivors or tuple(sizes)
        n_present = sum(sizes[site] for site in present)
        stds.setdefault(record.phase, []).extend(
            event.noise_std(len(present), n_present) for event in events[record.phase, record.round]
        )
    return stds


def _off_subspace(outcome: IcaOutcome, noise_std: float) -> Array:
    """Return the mean squared error per feature (k,) from directions outside the subspace."""
    k = outcome.A.shape[1]
    values = np.sort(outcome.eigenvalues)[::-1]
    d = len(values)
    # svec multiplies off-diagonal entries by sqrt 2.
    s_off = noise_std / math.sqrt(2.0)
    # An observed spike x = theta + s_off^2 d / theta over the mean of the rest.
    x = values[:k] - (values[k:].mean() if d > k else 0.0)
    theta = (x + np.sqrt(np.maximum(x * x - 4.0 * s_off**2 * d, 0.0))) / 2.0
    per_coordinate = s_off**2 / np.maximum(theta, 1e-12) ** 2
    mixing = np.linalg.inv(outcome.W @ outcome.U)  # A = B V (W U)^-1
    n_features = outcome.A.shape[0]
    return np.asarray((mixing**2).T @ per_coordinate * (d - k) / n_features)


def _filtered(rounds: Sequence[float], verdict: Confirmation) -> float:
    """Return the variance of the angle between two components after the filter's rounds."""
    # A round of gain g corrects the share g * slope of an error; slope is 1 if its model is right.
    slope = min(max(verdict.curvature / quasi_newton.SLOPE, 0.0), MAX_SLOPE)
    error, variance = ANGLE_OF_START**2, quasi_newton.START_ANGLE**2
    if verdict.status == "unconfirmed":  # the run ended with the start
        return error
    for noise_std in rounds:
        angle_noise = noise_std / quasi_newton.SLOPE
        gain, variance = quasi_newton.filter_gain(variance, angle_noise)
        error = (1.0 - gain * slope) ** 2 * error + (gain * angle_noise) ** 2
    return error


def _rotation(rounds: Sequence[float]) -> float:
    """Return the variance of the angle between two components after all rounds."""
    constants, kappa = (
        quasi_newton.tuned_constants(MAX_COMPONENTS, math.inf),
        quasi_newton.CURVATURE["volatility"],
    )
    variance = 0.0
    for t, noise_std in enumerate(rounds):
        progress = t / (len(rounds) - 1) if len(rounds) > 1 else 0.0
        ratio = constants.alpha_last / constants.alpha_first
        alpha = constants.alpha_first * ratio**progress
        added = (alpha * noise_std / (2.0 * kappa)) ** 2
        # The first step starts from an arbitrary rotation: no earlier error remains.
        variance = added if t == 0 else (1.0 - alpha) ** 2 * variance + added
    return variance


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOrderHint:
    """Evidence on the number of components, from the released spectrum and the budget."""

    suggested: int | None = None  # None if the spectrum does not tell
    noisy: bool = False  # whether the spectrum carries noise, and so has an edge
    above: int = 0  # eigenvalues above the noise edge
    requested: int  # in the settings
    budget_text: str = ""
    doubtful: bool = False  # too few, or more than ever came back at this budget


def requested_of(settings: Mapping[str, object], n_components: int) -> int:
    """Return R of the settings, or `n_components`, the number found, if they leave R to G."""
    return int(str(settings.get("n_components") or n_components))


def config_of(computation: str, settings: Mapping[str, object], requested: int) -> IcaConfig | None:
    """Return the settings of a run as its computation reads them; None without a planner."""
    if (planner := planner_of(computation)) is None:
        return None
    # The settings are not checked again: pages are made from any result folder.
    names = {option.name for option in fields(planner.config)}
    given = {name: value for name, value in settings.items() if name in names}
    values: dict[str, Any] = {"epsilon": 0.0, "delta": 0.0, **given, "n_components": requested}
    return planner.config(**values)


def rule_of(
    computation: str, settings: Mapping[str, object], requested: int
) -> ForecastRule | None:
    """Return the rule by which a run was planned, None for a computation without a forecast."""
    planner, config = planner_of(computation), config_of(computation, settings, requested)
    if planner is None or config is None:
        return None
    # A report asks the rule nothing that depends on the size of the basis.
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
    """Read the released spectrum (d,); `edge` is the largest eigenvalue of noise alone, 0 without.

    A number is suggested if more directions than requested stand above the edge, or at a clear
    gap.  Eigenvalues below the edge are no reason against R: of 20 networks that came back, 13 to
    16 stood above it at G 110 and 170.
    """
    values = np.sort(eigenvalues)[::-1]
    if edge <= 0.0 or values.size < 3:
        return ModelOrderHint(requested=requested)
    above, rank = above_edge(values, edge), rank_guard(values, requested, edge)
    suggested = rank.k if rank.status in ("gap", "reduced") else None
    budget_text, max_components = "", MAX_COMPONENTS
    if g is not None and rule is not None:
        budget_text, max_components = rule.largest_text(g), rule.largest_possible(g)
    return ModelOrderHint(
        # A subject's projector holds `requested` directions: if that is too few, this is a minimum.
        suggested=min(MAX_COMPONENTS, above) if above > requested else suggested,
        noisy=True,
        above=above,
        requested=requested,
        budget_text=budget_text,
        doubtful=above > requested or n_components > max_components,
    )
