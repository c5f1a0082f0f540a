"""Presets that change one property of `realistic`: two runs show its cost (docs/results.md).

Subjects can differ in maps and artefacts; each has its own random generators and does not depend
on the size of blocks or the number of sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from cape.algorithms.basis import dct_image
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.lab.synthetic.generators import (
    BURN_IN,
    PRESETS,
    Preset,
    Study,
    blob_maps,
    garch_sources,
    generate,
)

# Sites of `site_effect`: equal parts of the subjects, in order
N_SITES = 4

# In the subgroup every so many networks lie elsewhere
ELSEWHERE = 3

# Norm of a spike's artefact over that of a volume's signal
_SPIKE = 5.0

# Smoothness of random fields, pixels, similar to the presets' blobs
FIELD_WIDTH = 2.0

# With alpha = 0 of GARCH, time courses are stationary Gaussian.
STATIONARY: Final = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """What differs from `realistic`."""

    base: Preset = PRESETS["realistic"]
    alpha: tuple[float, float] = (0.15, 0.30)  # of GARCH(1, 1)
    innovations: Literal["normal", "laplace"] = "normal"
    sub_gaussian: float = 0.0  # share of the sources with uniform innovations and no volatility
    correlation: float = 0.0  # of the time courses of neighbours 1 and 2, 3 and 4, ...
    fields: bool = False  # maps are Gaussian random fields, which are not sparse
    jitter: float = 0.0  # sd of a network's position over subjects, pixels, along each axis
    lengths: tuple[float, float] = (1.0, 1.0)  # range of T over subjects, in `n_timepoints`
    site_effect: float = 0.0  # power of a site's artefact, and lognormal sd of its gains
    spikes: float = 0.0  # share of volumes with an artefact of 5 times the signal (head motion)
    subgroup: float = 0.0  # share of subjects whose every third network lies elsewhere

    @property
    def of_subjects(self) -> bool:
        """Whether subjects differ in maps or artefacts."""
        return bool(self.jitter or self.site_effect or self.spikes or self.subgroup)


_EQUAL = replace(PRESETS["realistic"], heterogeneity=0.0)

VARIANTS: Final[dict[str, Variant]] = {
    "weak": Variant(alpha=(0.05, 0.10)),
    "heavy": Variant(innovations="laplace"),
    # All rotations of these time courses are equivalent: a run must not claim one.
    "gaussian": Variant(base=_EQUAL, alpha=STATIONARY),
    # Gaussian in every subject; individual amplitudes separate the sources.
    "gaussian-het": Variant(alpha=STATIONARY),
    "sub-gaussian": Variant(sub_gaussian=0.3),
    "correlated": Variant(correlation=0.3),
    "jitter": Variant(jitter=1.0),
    "fields": Variant(fields=True),
    # Neither time courses nor maps distinguish a rotation.
    "gaussian-fields": Variant(base=_EQUAL, alpha=STATIONARY, fields=True),
    "lengths": Variant(lengths=(0.4, 1.6)),
    "smooth-courses": Variant(base=replace(PRESETS["realistic"], ar=0.8)),
    "noisy": Variant(base=replace(PRESETS["realistic"], noise=1.5)),
    "sites": Variant(site_effect=0.3),
    "spikes": Variant(spikes=0.02),
    "subgroups": Variant(subgroup=0.3),
}


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

    kind: Variant
    seed: int
    n_subjects: int  # M
    maps: Array  # (D, R): of the study
    elsewhere: Array  # (D, R): of the subgroup

    def site(self, m: int) -> int:
        return m * N_SITES // self.n_subjects

    def in_subgroup(self, m: int) -> bool:
        # Spread the subgroup evenly over the subjects, and so over all sites.
        share = self.kind.subgroup
        return int((m + 1) * share) > int(m * share)

    def maps_of(self, m: int) -> Array:
        """Return the maps of subject m, shape (D, R)."""
        rng, kind = np.random.default_rng([4000, self.seed, m]), self.kind
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
        """Return the artefacts of subject m, shape (D, T); None if the variant has none."""
        kind, edge = self.kind, round(np.sqrt(len(self.maps)))
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VariedStudy(Study):
    """A study whose subjects may differ in maps, artefacts and lengths (M,)."""

    differences: Differences
    lengths: np.ndarray  # time points; S is 0 after a subject's last one

    def blocks(self, size: int) -> Iterator[Data]:
        """Yield subjects in the basis, (size, d, T) float32 each; draws do not depend on size."""
        if not self.differences.kind.of_subjects:
            yield from Study.blocks(self, size)
            return
        rng = np.random.default_rng()
        rng.bit_generator.state = self.rng_state
        for first in range(0, len(self.S), size):
            members = range(first, min(first + size, len(self.S)))
            block = np.asarray([self._signal(m) for m in members], dtype=np.float32)
            block += rng.standard_normal(block.shape, dtype=np.float32) * np.float32(self.noise_std)
            yield block

    def _signal(self, m: int) -> Array:
        """Return the signal and the artefacts of subject m, (d, T)."""
        signal = (self.B.T @ self.differences.maps_of(m)) @ self.S[m]
        artefacts = self.differences.artefacts(m, self.S.shape[2])
        return signal if artefacts is None else signal + self.B.T @ artefacts

    def each(self) -> Iterator[Data]:
        """Yield the subjects in the basis, (d, T_m) float32."""
        for m, block in enumerate(self.blocks(1)):
            yield block[0, :, : self.lengths[m]]


def study_of(
    name: str,
    *,
    n_subjects: int,
    seed: int,
    n_components: int = 20,
    n_timepoints: int = 250,
    n_basis: int = 100,
) -> Study:
    """Draw a study of a preset of `cape synth` or of this module, on an image of 30 x 30."""
    if name in PRESETS:
        return generate(
            PRESETS[name],
            n_subjects=n_subjects,
            seed=seed,
            n_components=n_components,
            n_timepoints=n_timepoints,
            n_basis=n_basis,
        )
    kind, edge = VARIANTS[name], 30
    preset = kind.base
    # The order of draws is that of `generate`.
    rng = np.random.default_rng(1000 + seed)
    apart = np.random.default_rng([4004, seed])  # for draws that `realistic` does not make
    if kind.fields:
        maps = random_fields(rng, edge, n_components)
    else:
        maps = blob_maps(rng, edge, n_components, preset)
    A = maps * np.exp(preset.strength * rng.standard_normal(n_components))
    longest = round(kind.lengths[1] * n_timepoints)
    S = garch_sources(
        rng,
        n_subjects,
        n_components,
        longest,
        ar=preset.ar,
        alpha=kind.alpha,
        innovations=kind.innovations,
    )
    if k := round(kind.sub_gaussian * n_components):
        S[:, :k] = _uniform_sources(apart, n_subjects, k, longest, ar=preset.ar)
    if r := kind.correlation:
        n_pairs = n_components // 2
        first, second = S[:, 0 : 2 * n_pairs : 2], S[:, 1 : 2 * n_pairs : 2]
        second[:] = r * first + np.sqrt(1.0 - r * r) * second
    if preset.heterogeneity > 0.0:
        amplitude = rng.standard_normal((n_subjects, n_components, 1))
        S *= np.exp(preset.heterogeneity * amplitude).astype(np.float32)
    lengths = np.full(n_subjects, longest)
    if kind.lengths == (1.0, 1.0):
        S -= S.mean(axis=2, keepdims=True)
    else:
        shortest = round(kind.lengths[0] * n_timepoints)
        lengths = apart.integers(shortest, longest, size=n_subjects, endpoint=True)
        within = np.arange(longest) < lengths[:, None, None]
        S *= within
        # Subtract the mean over a subject's own time points; later values stay 0.
        S -= (S.sum(axis=2) / lengths[:, None])[..., None] * within
    elsewhere = blob_maps(apart, edge, n_components, preset) if kind.subgroup else maps
    return VariedStudy(
        A=A,
        B=dct_image((edge, edge), n_basis),
        S=S,
        noise_std=float(np.sqrt(preset.noise * np.sum(A**2) / len(A))),
        rng_state=dict(rng.bit_generator.state),
        differences=Differences(
            kind=kind,
            seed=seed,
            n_subjects=n_subjects,
            maps=A,
            elsewhere=elsewhere * np.linalg.norm(A, axis=0),
        ),
        lengths=lengths,
    )


def _uniform_sources(
    rng: np.random.Generator, n_subjects: int, n_components: int, n_timepoints: int, *, ar: float
) -> Data:
    """Draw AR(1) time courses (M, R, T) of unit variance with uniform innovations."""
    y = np.zeros((n_subjects, n_components))
    courses = np.empty((*y.shape, n_timepoints), dtype=np.float32)
    for t in range(-BURN_IN, n_timepoints):
        y = ar * y + np.sqrt(3.0 * (1.0 - ar**2)) * rng.uniform(-1.0, 1.0, y.shape)
        if t >= 0:
            courses[:, :, t] = y
    return courses
