"""Outcomes of one person that groups are compared in: connectivity, spectra, amplitudes.

Each follows from one person's data and public maps alone, and nothing of it is a release.  Time
courses are (R, T); what cannot be computed (a constant course, a sampling too slow) is NaN, and its
person adds zeros.  Band power and fALFF want courses without a low-pass filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.subjects import connectivity, fisher, spectrum
from cape.frozen import dataclass

# Hz; fALFF is what slow amplitudes are of all (Zou et al. 2008, J. Neurosci. Methods 172)
SLOW: Final = (0.01, 0.08)
FASTEST: Final = 0.25

# Public unit of an edge, in Fisher z: people's spread is near it
UNIT_OF_Z: Final = 0.2

Kind = Literal["fnc", "domains", "power", "falff", "loadings"]
# What each kind is in, and its public unit: about the spread between people
UNITS: Final[dict[Kind, tuple[str, float]]] = {
    "fnc": ("Fisher z", UNIT_OF_Z),
    "domains": ("Fisher z", UNIT_OF_Z),
    "power": ("log10 of the part of the power", 0.2),
    "falff": ("part of the amplitude", 0.05),
    "loadings": ("log of the standard deviation", 0.3),
}
# Hz: the two parts that a repetition time of 2 s reaches
BANDS: Final = ((0.01, 0.1), (0.1, 0.25))


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """What is measured of the time courses of a person; all but the courses is public."""

    kind: Kind
    networks: tuple[str, ...]  # R
    domains: tuple[str, ...] = ()  # R: of each network; of kind domains alone
    bands: tuple[tuple[float, float], ...] = BANDS

    @property
    def names(self) -> tuple[str, ...]:
        """K names of outcomes, which follow from nobody's data."""
        if self.kind == "fnc":
            return edge_names(self.networks)
        if self.kind == "domains":
            n_edges = len(self.networks) * (len(self.networks) - 1) // 2
            return domain_means(np.zeros(n_edges), self.domains)[0]
        if self.kind == "power":
            spans = [f"{low:g}-{high:g} Hz" for low, high in self.bands]
            return tuple(f"{name} {span}" for name in self.networks for span in spans)
        return self.networks

    def of(self, S: Array, tr: float) -> Array:
        """Return the outcomes (K,) of courses (R, T); `tr` in s, 0 if unknown."""
        if S.shape[1] == 0:
            return np.full(len(self.names), np.nan)
        if self.kind == "fnc":
            return edges(S)
        if self.kind == "domains":
            return domain_means(edges(S), self.domains)[1]
        if self.kind == "power":
            return log_band_power(S, tr, self.bands).ravel()
        return falff(S, tr) if self.kind == "falff" else log_amplitudes(S)


def courses(X: Data, maps: Array) -> Array:
    """Time courses (R, T) of public maps (D, R) in data (D, T): least squares with a constant.

    The first step of dual regression (Filippini et al. 2009, PNAS 106).
    """
    return np.asarray(regressor(maps).T @ X.astype(np.float64))


def regressor(maps: Array) -> Array:
    """Return B (D, R): `courses` of data X are B' X."""
    centred = maps.astype(np.float64) - maps.mean(axis=0, dtype=np.float64)
    return np.asarray(np.linalg.pinv(centred).T)


def edges(S: Array) -> Array:
    """Fisher z of the correlation of every pair of courses, (R (R - 1) / 2,), rows first."""
    z = fisher(connectivity(S))
    constant = S.std(axis=1) <= 0.0
    z[constant, :] = z[:, constant] = np.nan
    return np.asarray(z[np.triu_indices(len(z), 1)])


def edge_names(names: Sequence[str]) -> tuple[str, ...]:
    rows, columns = np.triu_indices(len(names), 1)
    return tuple(
        f"{names[i]} - {names[j]}" for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    )


def domain_means(z: Array, domains: Sequence[str]) -> tuple[tuple[str, ...], Array]:
    """Return names and means of the edges (as of `edges`) inside and between named domains.

    In the order in which domains are first named; a domain of one network has no inside.
    """
    named = list(dict.fromkeys(domains))
    place = np.array([named.index(domain) for domain in domains])
    rows, columns = np.triu_indices(len(domains), 1)
    ends = np.sort(np.stack([place[rows], place[columns]]), axis=0)
    names, means = [], []
    firsts, seconds = np.triu_indices(len(named))
    for i, j in zip(firsts.tolist(), seconds.tolist(), strict=True):
        block = z[(ends[0] == i) & (ends[1] == j)]
        if block.size:
            names.append(named[i] if i == j else f"{named[i]} - {named[j]}")
            means.append(block.mean())
    return tuple(names), np.array(means)


def log_band_power(S: Array, tr: float, bands: Sequence[tuple[float, float]]) -> Array:
    """Decadic logarithm of the part of a course's power in each band (Hz), shape (R, bands).

    Of the part, as an image's scale is the scanner's; power from 0 on, its mean taken out.
    """
    if tr <= 0.0 or S.shape[1] < 2:
        return np.full((len(S), len(bands)), np.nan)
    found = spectrum(S, tr)
    total = found.power[:, 1:].sum(axis=1)
    shares = []
    for low, high in bands:
        inside = (found.frequency > 0) & (found.frequency >= low) & (found.frequency < high)
        reached = high <= found.frequency[-1] * (1 + 1e-9) and inside.any()
        shares.append(found.power[:, inside].sum(axis=1) if reached else np.full(len(S), np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log10(np.stack(shares, axis=1) / total[:, None])
    return np.where(np.isfinite(log), log, np.nan)


def falff(S: Array, tr: float) -> Array:
    """Amplitudes of .01 to .08 Hz over those up to .25 Hz, shape (R,), of the whole courses.

    NaN where courses are sampled too seldom to reach .25 Hz (`tr` above 2 s).
    """
    T = S.shape[1]
    frequency = np.fft.rfftfreq(T, tr) if tr > 0 and T else np.zeros(1)
    if frequency[-1] <= 0 or frequency[-1] < FASTEST - 1.0 / (T * tr):
        return np.full(len(S), np.nan)
    amplitude = np.abs(np.fft.rfft(S - S.mean(axis=1, keepdims=True), axis=1))
    slow = (frequency >= SLOW[0]) & (frequency <= SLOW[1])
    whole = (frequency > 0) & (frequency <= FASTEST)
    total = amplitude[:, whole].sum(axis=1)
    part = np.full(len(S), np.nan)
    np.divide(amplitude[:, slow].sum(axis=1), total, out=part, where=total > 0)
    return part


def log_amplitudes(S: Array) -> Array:
    """Natural logarithm of the standard deviation of every course, shape (R,)."""
    spread = S.std(axis=1)
    log = np.full(len(S), np.nan)
    np.log(spread, out=log, where=spread > 0)
    return log
