"""Differences between the subjects of a synthetic study in maps and artefacts.

Each subject has its own random generators and does not depend on the size of blocks or the number
of sites.
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.lab.synthetic.presets import Preset

# Sites of `site_effect`: equal parts of the subjects, in order
N_SITES = 4

# In the subgroup every so many networks lie elsewhere
ELSEWHERE = 3

# Norm of a spike's artefact over that of a volume's signal
_SPIKE = 5.0

# Smoothness of random fields, pixels, similar to the presets' blobs
FIELD_WIDTH = 2.0


def random_fields(rng: np.random.Generator, n: int, count: int) -> Array:
    """Draw Gaussian random fields (n * n, count) on an image of n x n, columns of norm 1."""
    x = np.arange(n)
    axis = np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * FIELD_WIDTH**2))
    white = rng.standard_normal((n, n, count))
    fields = np.einsum("ai,bj,ijk->abk", axis, axis, white, optimize=True).reshape(n * n, count)
    return np.asarray(fields / np.linalg.norm(fields, axis=0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Differences:
    """Maps and artefacts of single subjects, in pixels."""

    preset: Preset
    seed: int
    n_subjects: int  # M
    maps: Array  # (D, R): of the study
    elsewhere: Array  # (D, R): of the subgroup

    @property
    def any(self) -> bool:
        kind = self.preset
        return bool(kind.jitter or kind.site_effect or kind.spikes or kind.subgroup)

    def site(self, m: int) -> int:
        return m * N_SITES // self.n_subjects

    def in_subgroup(self, m: int) -> bool:
        # Spread the subgroup evenly over the subjects, and so over all sites.
        share = self.preset.subgroup
        return int((m + 1) * share) > int(m * share)

    def maps_of(self, m: int) -> Array:
        """Return the maps of subject m, shape (D, R)."""
        rng, kind = np.random.default_rng([4000, self.seed, m]), self.preset
        maps = self.maps.copy()
        if self.in_subgroup(m):
            maps[:, ::ELSEWHERE] = self.elsewhere[:, ::ELSEWHERE]
        if kind.jitter:
            shifts = kind.jitter * rng.standard_normal((maps.shape[1], 2))
            maps = np.stack([_shifted(a, *by) for a, by in zip(maps.T, shifts, strict=True)], 1)
        if kind.site_effect:
            of_site = np.random.default_rng([4001, self.seed, self.site(m)])
            maps *= np.exp(kind.site_effect * of_site.standard_normal(maps.shape[1]))
        return maps

    def artefacts(self, m: int, n_times: int) -> Array | None:
        """Return the artefacts of subject m, shape (D, T); None if the preset has none."""
        kind, edge = self.preset, round(np.sqrt(len(self.maps)))
        rng = np.random.default_rng([4002, self.seed, m])
        power = float(np.sum(self.maps**2))
        added = np.zeros((len(self.maps), n_times))
        if kind.site_effect:
            of_site = np.random.default_rng([4003, self.seed, self.site(m)])
            field = random_fields(of_site, edge, 1) * np.sqrt(kind.site_effect * power)
            added += field @ rng.standard_normal((1, n_times))
        if kind.spikes:
            at = np.flatnonzero(rng.random(n_times) < kind.spikes)
            added[:, at] += _SPIKE * np.sqrt(power) * random_fields(rng, edge, len(at))
        return added if kind.site_effect or kind.spikes else None


def _shifted(image: Array, down: float, right: float) -> Array:
    """Return a flat square image moved by fractions of pixels; its border is repeated."""
    n = round(np.sqrt(len(image)))
    moved: Array = _interpolation(n, down) @ image.reshape(n, n) @ _interpolation(n, right).T
    return moved.ravel()


def _interpolation(n: int, by: float) -> Array:
    """Return the matrix (n, n) that reads a line at i - by, linear between its samples."""
    at = np.clip(np.arange(n) - by, 0, n - 1)
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(n))))
