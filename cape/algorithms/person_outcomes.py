"""Outcomes of one person that are compared between groups: connectivity, spectra, amplitudes.

They follow from one person's data and public maps and are not released.  Time courses are (R, T).
An outcome that cannot be computed (constant course, sampling too slow) is NaN, and the person adds
zeros.  Band power and fALFF need courses without a low-pass filter.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.subjects import connectivity, fisher, spectrum
from cape.settings.measures import POWER_BANDS, Measure, outcome_names

# Hz; fALFF is the share of slow amplitudes in those up to MAX_HZ (Zou et al. 2008, J. Neurosci.
# Methods 172)
SLOW: Final = (0.01, 0.08)
MAX_HZ: Final = 0.25


def outcomes_of_person(measure: Measure, S: Array, tr: float) -> Array:
    """Return the outcomes (K,) of courses (R, T); `tr` in s, 0 if unknown."""
    if S.shape[1] == 0:
        return np.full(len(outcome_names(measure)), np.nan)
    if measure.kind == "fnc":
        return edges(S)
    if measure.kind == "domains":
        return domain_means(edges(S), measure.domains)
    if measure.kind == "power":
        return log_band_power(S, tr, POWER_BANDS).ravel()
    return falff(S, tr) if measure.kind == "falff" else log_amplitudes(S)


def courses(X: Data, maps: Array) -> Array:
    """Time courses (R, T) of public maps (D, R) in data (D, T): least squares with a constant."""
    # This is the first step of dual regression (Filippini et al. 2009, PNAS 106); maps are in their
    # standard deviations, so that the courses do not depend on units.  Of maps that are regions of
    # an atlas, one value inside and 0 outside, the courses are means over them: the constant would
    # be the mean of what no region covers, and regions that cover all would depend on it.
    return np.asarray(regressor(maps).T @ X.astype(np.float64))


def regressor(maps: Array) -> Array:
    """Return B (D, R) with which `courses` of data X are B' X."""
    inside = maps != 0
    if are_regions(maps):
        return np.asarray(inside / inside.sum(axis=0))
    centred = maps.astype(np.float64) - maps.mean(axis=0, dtype=np.float64)
    return np.asarray(np.linalg.pinv(centred / centred.std(axis=0)).T)


def are_regions(maps: Array) -> bool:
    """Tell whether maps (D, R) are regions: each of one value, no two at one place."""
    inside = maps != 0
    return bool(inside.sum(axis=1).max() <= 1 and (maps == inside * maps.max(axis=0)).all())


def edges(S: Array) -> Array:
    """Fisher z of the correlations of all pairs of courses, (R (R - 1) / 2,), row by row."""
    z = fisher(connectivity(S))
    constant = ~(S.std(axis=1) > 0.0)  # or not finite
    z[constant, :] = z[:, constant] = np.nan
    return np.asarray(z[np.triu_indices(len(z), 1)])


def domain_means(z: Array, domains: Sequence[str]) -> Array:
    """Return means of edges z (`edges`) within and between domains, as `domain_names` has them."""
    # A domain of one network has no edges within.
    named = list(dict.fromkeys(domains))
    domain_of = np.array([named.index(domain) for domain in domains])
    rows, columns = np.triu_indices(len(domains), 1)
    ends = np.sort(np.stack([domain_of[rows], domain_of[columns]]), axis=0)
    firsts, seconds = np.triu_indices(len(named))
    pairs = zip(firsts.tolist(), seconds.tolist(), strict=True)
    blocks = (z[(ends[0] == i) & (ends[1] == j)] for i, j in pairs)
    return np.array([block.mean() for block in blocks if block.size])


def log_band_power(S: Array, tr: float, bands: Sequence[tuple[float, float]]) -> Array:
    """Decadic logarithm of the share of a course's power in each band (Hz), shape (R, bands)."""
    # A share does not depend on the scale of the image.  The total excludes frequency 0.
    if tr <= 0.0 or S.shape[1] < 2:
        return np.full((len(S), len(bands)), np.nan)
    spectra = spectrum(S, tr)
    return log_shares(spectra.power, spectra.frequency, bands)


def log_shares(power: Array, frequency: Array, bands: Sequence[tuple[float, float]]) -> Array:
    """Return `log_band_power` of spectra (R, F), whose frequencies (F,) in Hz begin at 0."""
    total = power[:, 1:].sum(axis=1)
    shares = []
    for low, high in bands:
        inside = (frequency > 0) & (frequency >= low) & (frequency < high)
        reached = high <= frequency[-1] * (1 + 1e-9) and inside.any()
        shares.append(power[:, inside].sum(axis=1) if reached else np.full(len(power), np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log10(np.stack(shares, axis=1) / total[:, None])
    return np.where(np.isfinite(log), log, np.nan)


def falff(S: Array, tr: float) -> Array:
    """Amplitudes at .01 to .08 Hz over those up to .25 Hz, (R,); NaN where `tr` is above 2 s."""
    T = S.shape[1]
    frequency = np.fft.rfftfreq(T, tr) if tr > 0 and T else np.zeros(1)
    if frequency[-1] <= 0 or frequency[-1] < MAX_HZ - 1.0 / (T * tr):
        return np.full(len(S), np.nan)
    amplitude = np.abs(np.fft.rfft(S - S.mean(axis=1, keepdims=True), axis=1))
    slow = (frequency >= SLOW[0]) & (frequency <= SLOW[1])
    whole = (frequency > 0) & (frequency <= MAX_HZ)
    total = amplitude[:, whole].sum(axis=1)
    share = np.full(len(S), np.nan)
    np.divide(amplitude[:, slow].sum(axis=1), total, out=share, where=total > 0)
    return share


def log_amplitudes(S: Array) -> Array:
    """Natural logarithm of the standard deviation of each course, shape (R,)."""
    spread = S.std(axis=1)
    log = np.full(len(S), np.nan)
    np.log(spread, out=log, where=spread > 0)
    return log
