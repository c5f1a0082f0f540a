"""Write a synthetic consortium: one folder per site, the owner's settings, the ground truth.

``brain``      4-D NIfTI images on an MNI152 grid with named networks; the demo of the README.
``paper``      matrices of 30 x 30 images, the study of capeDJICA (independent, noise free).
``realistic``  the same with autocorrelation, noise and differing amplitudes.
``records``    a table per site, two views of one person a row, for capecca and the PCAs.

Everything is drawn from the seed: equal arguments give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.config import Config
from cape.data import grid_of, mask_space
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.synthetic import records
from cape.synthetic import templates as _templates
from cape.synthetic.brain import NETWORKS, STORAGES, Scanner, network_maps
from cape.synthetic.defects import make_defect
from cape.synthetic.generators import PRESETS, garch_sources, generate
from cape.synthetic.layouts import LAYOUTS, Layout, Shelf, features, finish_site, write_subject
from cape.synthetic.study import (
    IMAGE,
    IMAGE_BASIS,
    SPREAD_OF_T,
    PresetName,
    Study,
    readme_text,
    settings_text,
)

Progress = Callable[[int, int], None]

AR = 0.4
HETEROGENEITY = 0.3
"""Lognormal sd of the amplitude of a network in a subject."""

DEFAULTS: dict[PresetName, tuple[int, int, int]] = {
    "brain": (200, 120, 6),
    "paper": (128, 250, 20),
    "realistic": (128, 250, 20),
    "records": (4000, 1, 3),
}
"""Subjects, time points, components unless told otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What `write_consortium` wrote.

    Attributes
    ----------
    folder : Path
        Of the consortium.
    preset : str
        Which kind.
    site_sizes : tuple of int
        Subjects of ``local0``, ``local1`` ...
    names : tuple of str
        Networks, or S01 ... for images.
    n_features : int
        D.
    n_bytes : int
        Size of all site files.
    defect : str
        What was broken on purpose, or "".
    """

    folder: Path
    preset: PresetName
    site_sizes: tuple[int, ...]
    names: tuple[str, ...]
    n_features: int
    n_bytes: int
    defect: str


def write_consortium(
    out: Path,
    *,
    preset: PresetName = "brain",
    n_sites: int = 4,
    n_subjects: int = 0,
    site_sizes: Sequence[int] = (),
    n_timepoints: int = 0,
    grid_mm: int = 10,
    n_networks: int = 0,
    tr: float = 2.0,
    seed: int = 0,
    layout: Layout = "files",
    templates: float = 0.0,
    defect: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Write a synthetic consortium into a new or empty folder.

    Parameters
    ----------
    out : Path
        Gets ``settings.toml``, ``truth.npz``, ``README.txt`` and one folder per site.
    preset : {"brain", "paper", "realistic", "records"}
        See the module.
    n_sites, n_subjects : int
        S and M; subjects are split unequally.  0: the preset's number.
    site_sizes : sequence of int, optional
        Subjects of each site, instead of the two.
    n_timepoints, n_networks : int
        T (`brain`: on average) and R; 0: the preset's.
    grid_mm : int
        Mask of `brain`: 10, 8, 6, 4 or 3.
    tr : float
        Repetition time of `brain`, s.
    seed : int
        Not negative.
    layout : {"files", "manifest", "bids", "matrix", "atlas"}
        How the sites of `brain` keep their files, see `cape.synthetic.layouts`.
    templates : float
        Above 0: write template maps that correlate so with the true ones into every site's folder
        (images and matrices of images).
    defect : str, optional
        Row number or short name of a defect, made in the files of ``local1``.
    progress : callable, optional
        Called with (subjects written, subjects in all).

    Returns
    -------
    Summary

    Raises
    ------
    ConfigError
        Impossible sizes, unknown preset or defect, or a folder that is not empty.
    """
    subjects, timepoints, networks = _preset(preset)
    study = Study(
        preset=preset,
        sizes=tuple(site_sizes) or split_unequally(n_subjects or subjects, n_sites),
        n_timepoints=n_timepoints or timepoints,
        n_networks=n_networks or networks,
        grid_mm=grid_mm,
        tr=tr,
        seed=seed,
        layout=layout,
    )
    _check(study, out, defect, templates)
    for site in range(len(study.sizes)):
        (out / f"local{site}").mkdir(parents=True, exist_ok=True)
    maps, names = WRITERS[preset](out, study, progress or (lambda _done, _total: None))
    np.savez_compressed(out / "truth.npz", A=maps, names=np.array(names))
    if templates:
        write_templates(out, study, maps, templates)
    (out / "settings.toml").write_text(settings_text(study), encoding="utf-8")
    (out / "README.txt").write_text(readme_text(study, names), encoding="utf-8")
    if defect:
        folder = out / ("local1" if len(study.sizes) > 1 else "local0")
        make_defect(defect, folder, kind=_kind(study))
    written = sum(path.stat().st_size for path in out.rglob("local*/**/*") if path.is_file())
    return Summary(
        folder=out,
        preset=preset,
        site_sizes=study.sizes,
        names=names,
        n_features=maps.shape[0],
        n_bytes=written,
        defect=defect or "",
    )


def write_templates(out: Path, study: Study, maps: Array, r: float) -> None:
    """Write partly right template maps into every site's folder."""
    rng = np.random.default_rng([study.seed, 3])
    folders = [out / f"local{site}" for site in range(len(study.sizes))]
    if study.preset in ("paper", "realistic"):
        _templates.write_matrix_templates(folders, (IMAGE, IMAGE), maps, r, rng)
        return
    config = replace(Config(epsilon=1.0, delta=1e-5), mask=f"MNI152-{study.grid_mm}mm")
    _templates.write_image_templates(folders, grid_of(mask_space(config)), maps, r, rng)


def _kind(study: Study) -> str:
    """Return which defects fit the files of a study."""
    if study.preset != "brain" or study.layout == "matrix":
        return "matrix" if study.preset != "brain" else "table"
    return {"bids": "bids", "manifest": "manifest"}.get(study.layout, "image")


def split_unequally(n_subjects: int, n_sites: int) -> tuple[int, ...]:
    """Return falling site sizes that sum to `n_subjects`, each about 2/3 of the one before."""
    if not 1 <= n_sites <= n_subjects:
        raise ConfigError(
            "E011", setting="n_sites", got=n_sites, allowed=f"1 to {n_subjects} (n_subjects)",
            do="give every site a subject.",
        )  # fmt: skip
    weights = (2 / 3) ** np.arange(n_sites)
    ends = np.rint(np.cumsum(weights) / weights.sum() * (n_subjects - n_sites)).astype(int)
    return tuple(int(n) + 1 for n in np.diff(ends, prepend=0))


def _preset(name: str) -> tuple[int, int, int]:
    for known, sizes in DEFAULTS.items():
        if name == known:
            return sizes
    raise ConfigError(
        "E011", setting="preset", got=name, allowed=", ".join(DEFAULTS), do="choose one of them."
    )


def _check(study: Study, out: Path, defect: str | None, templates: float) -> None:
    limit = {"brain": len(NETWORKS), "records": min(records.N_X, records.N_Y)}.get(study.preset, 50)
    single = study.preset == "records"
    problems = (
        ("site_sizes", study.sizes, "1 or more each", min(study.sizes) >= 1),
        ("n_networks", study.n_networks, f"2 to {limit}", 2 <= study.n_networks <= limit),
        (
            "n_timepoints", study.n_timepoints, "10 to 5000, above n_networks + 2",
            single or max(10, study.n_networks + 3) <= study.n_timepoints <= 5000,
        ),
        ("grid_mm", study.grid_mm, "10, 8, 6, 4, 3", study.grid_mm in (10, 8, 6, 4, 3)),
        ("tr", study.tr, "0.1 to 20 s", 0.1 <= study.tr <= 20),
        ("seed", study.seed, "0 or more", study.seed >= 0),
        (
            "layout", study.layout, f"{', '.join(LAYOUTS)}; files for matrices",
            study.layout in LAYOUTS[: None if study.preset == "brain" else 1],
        ),
    )  # fmt: skip
    for name, got, allowed, fine in problems:
        if not fine:
            raise ConfigError("E011", setting=name, got=got, allowed=allowed, do="correct it.")
    if defect and single:
        raise ConfigError(
            "E012", problem="defects are made in images and matrices, not in tables of records",
            do="choose another preset.",
        )  # fmt: skip
    if templates and (single or study.layout in ("matrix", "atlas")):
        raise ConfigError(
            "E012", problem="templates are made for images and for matrices of images",
            do="choose another preset or layout.",
        )  # fmt: skip
    if out.is_dir() and any(out.iterdir()):
        problem = "the folder for the synthetic consortium is not empty"
        raise ConfigError("E016", problem=problem, do="choose another one.")


def _write_brain(out: Path, study: Study, progress: Progress) -> tuple[Array, tuple[str, ...]]:
    """Write one 4-D image per subject; return maps (D, R) and names."""
    names = tuple(NETWORKS)[: study.n_networks]
    config = replace(Config(epsilon=1.0, delta=1e-5), mask=f"MNI152-{study.grid_mm}mm")
    grid = grid_of(mask_space(config))
    site_files: dict[int, Shelf] = {}
    scanner = Scanner(grid=grid, maps=network_maps(grid, names), tr=study.tr)
    rng = np.random.default_rng([study.seed, 1])
    n_subjects, longest = len(study.owners), int(study.n_timepoints * (1 + SPREAD_OF_T))
    courses = garch_sources(rng, n_subjects, len(names), longest, ar=AR)
    strength = np.exp(HETEROGENEITY * rng.standard_normal((n_subjects, len(names), 1)))
    courses *= strength.astype(np.float32)
    shortest = int(np.ceil(study.n_timepoints * (1 - SPREAD_OF_T)))
    lengths = rng.integers(shortest, longest, size=n_subjects, endpoint=True)
    for m, site in enumerate(study.owners):
        own = np.random.default_rng([study.seed, 2, m])
        values = scanner.series(own, courses[m, :, : lengths[m]])
        storage = STORAGES[site % len(STORAGES)]
        shelf = Shelf(folder=out / f"local{site}", scanner=scanner, storage=storage)
        site_files[site] = shelf
        write_subject(study.layout, shelf, m, values, own)
        progress(m + 1, n_subjects)
    for site, shelf in site_files.items():
        members = tuple(m for m, owner in enumerate(study.owners) if owner == site)
        finish_site(study.layout, shelf, members)
    return features(study.layout, grid, scanner.maps), names


def _write_matrices(out: Path, study: Study, progress: Progress) -> tuple[Array, tuple[str, ...]]:
    """Write one (D, T) float32 matrix per subject; return maps (D, R) and names."""
    made = generate(
        PRESETS[study.preset],
        n_subjects=len(study.owners),
        seed=study.seed,
        n_components=study.n_networks,
        n_timepoints=study.n_timepoints,
        image_size=IMAGE,
        n_basis=IMAGE_BASIS,
    ).in_voxels()
    for m, block in enumerate(made.blocks(1)):
        path = out / f"local{study.owners[m]}" / f"sub-{m + 1:03d}.npy"
        np.save(path, np.asarray(block[0], dtype=np.float32), allow_pickle=False)
        progress(m + 1, len(study.owners))
    return made.A, tuple(f"S{k + 1:02d}" for k in range(study.n_networks))


def _write_records(out: Path, study: Study, progress: Progress) -> tuple[Array, tuple[str, ...]]:
    """Write one table per site; return the loadings of the planted pairs (D, K) and names."""
    return records.write_records(out, study.owners, study.n_networks, study.seed, progress)


WRITERS = {
    "brain": _write_brain,
    "paper": _write_matrices,
    "realistic": _write_matrices,
    "records": _write_records,
}
