"""What is asked of a synthetic consortium, and the texts that go with it: settings and README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cape.frozen import dataclass
from cape.synthetic import records
from cape.synthetic.layouts import Layout, settings_of

PresetName = Literal["brain", "paper", "realistic", "records"]

SPREAD_OF_T = 0.15
"""Subjects of `brain` have between 1 - this and 1 + this times `n_timepoints` volumes."""

IMAGE = 30
IMAGE_BASIS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """Checked request."""

    preset: PresetName
    sizes: tuple[int, ...]
    n_timepoints: int
    n_networks: int
    grid_mm: int
    tr: float
    seed: int
    layout: Layout

    @property
    def owners(self) -> tuple[int, ...]:
        """Site of each subject."""
        return tuple(site for site, size in enumerate(self.sizes) for _ in range(size))


def settings_text(study: Study) -> str:
    """Return settings.toml, without epsilon and delta."""
    lines = [
        f'# Settings of a synthetic consortium (preset "{study.preset}", seed {study.seed}).',
        "# The owner must choose epsilon and delta; there is no default on purpose, for example:",
        "# epsilon = 8.0",
        "# delta = 1e-5",
        "",
    ]
    chosen = _of_records(study) if study.preset == "records" else _of_series(study)
    return "\n".join([*lines, *chosen]) + "\n"


def _of_records(study: Study) -> list[str]:
    return [
        'computation = "capecca"',
        f"min_sites = {min(3, max(2, len(study.sizes)))}",
        f"n_features_x = {records.N_X}",
        f"n_pairs = {study.n_networks}",
    ]


def _of_series(study: Study) -> list[str]:
    shortest = 1 - SPREAD_OF_T if study.preset == "brain" else 1.0
    lines = [
        f"n_components = {study.n_networks}",
        f"min_timepoints = {min(100, int(shortest * study.n_timepoints))}",
        f"min_sites = {min(3, max(2, len(study.sizes)))}",
        'standardize = "demean"  # the planted maps are in units of signal, not of voxel variance',
    ]
    if study.preset != "brain":
        return [
            *lines,
            'feature_space = "matrix"',
            f'image_shape = "{IMAGE},{IMAGE}"',
            'basis = "dct"',
            f"n_basis = {IMAGE_BASIS}",
            'orientation = "feature_by_time"',
            'detrend = "none"',
        ]
    lines += [
        f'mask = "MNI152-{study.grid_mm}mm"',
        f"tr = {study.tr!r}",
        'detrend = "linear"',
        *settings_of(study.layout, study.tr),
    ]
    if study.layout not in ("matrix", "atlas"):
        lines += ['feature_space = "mask"', 'basis = "dct"', "n_basis = 400"]
    return lines


def readme_text(study: Study, names: Sequence[str]) -> str:
    """Return the README of the folder."""
    sizes = ", ".join(f"local{site} {size}" for site, size in enumerate(study.sizes))
    return (
        "A synthetic consortium made by `cape synth`; no human data.\n\n"
        f"preset {study.preset}, seed {study.seed}\n"
        f"subjects: {sizes} ({sum(study.sizes)} in all)\n"
        f"components: {', '.join(names)}\n\n"
        "settings.toml  the owner's settings; add epsilon and delta\n"
        "local0 ...     one folder per site\n"
        "truth.npz      A (features x components) in the order of the mask's voxels, names\n"
    )
