"""Write a synthetic consortium: one folder per site, the owner's settings, the ground truth.

``brain``      4-D NIfTI images on an MNI152 grid with named networks; the demo of the README.
``paper``      matrices of 30 x 30 images, the study of capeDJICA (independent, noise free).
``realistic``  the same with autocorrelation, noise and differing amplitudes; the others of
               `cape.lab.synthetic.presets` are this one with one thing changed.
``groups``     as ``brain``, of patients and controls whose connectivity differs
               (`cape.lab.synthetic.compared`).
``two-sided``  images of brains whose networks are mostly the same on both sides, over smooth noise
               (`cape.lab.synthetic.resting`); ``smooth``: the noise alone.
``records``    a table per site, two views of one person a row, for capecca and the PCAs.

Everything is drawn from the seed: equal arguments give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array, Data
from cape.data.space import Grid, grid_of, mask_space
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.lab.synthetic.brain import BASELINE, NETWORKS, STORAGES, Scanner, network_maps
from cape.lab.synthetic.compared import COVARIATES, GROUP, Compared, compared
from cape.lab.synthetic.generators import correlated_maps, garch_sources, generate, two_views
from cape.lab.synthetic.layouts import (
    LAYOUTS,
    N_PARCELS,
    SPACE,
    Layout,
    Shelf,
    finish_site,
    maps_in_layout,
    write_subject,
)
from cape.lab.synthetic.presets import AUTOCORRELATION, PRESETS
from cape.lab.synthetic.resting import two_sided
from cape.settings.config import Config

TEMPLATES = Path(__file__).parent / "templates"
OnWritten = Callable[[int, int], None]

# Lognormal sd of the amplitude of a network over subjects
HETEROGENEITY = 0.3

# Images of brains with named networks
NAMED = ("brain", "groups")
# Images of symmetric brains, and of smooth noise alone
TWO_SIDED = ("two-sided", "smooth")

# Subjects, time points, components by default
DEFAULTS: dict[str, tuple[int, int, int]] = {
    "brain": (200, 120, 6),
    "groups": (240, 100, 6),
    **dict.fromkeys(TWO_SIDED, (60, 150, 20)),
    **dict.fromkeys(PRESETS, (128, 250, 20)),
    "records": (4000, 1, 3),
}

# Subjects of `brain` have (1 - this) to (1 + this) times `n_timepoints` volumes: runs of real sites
# differ in length, and code that assumes otherwise must fail.
SPREAD_OF_T = 0.15

# Edge of the square images of the presets of matrices, pixels; d of the basis in their settings
IMAGE_EDGE = 30
IMAGE_BASIS = 100

# Columns of the tables of `records`: brain networks, then behaviour
N_X, N_Y = 10, 8

# Canonical correlations of the planted pairs of `records`, evenly spaced between the two.
STRONGEST, WEAKEST = 0.8, 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Summary of a consortium that `write_consortium` wrote."""

    folder: Path  # of the consortium
    preset: str
    site_sizes: tuple[int, ...]  # subjects of ``local0``, ``local1``
    names: tuple[str, ...]  # of networks, or S01 ...
    n_features: int  # D
    n_bytes: int  # size of all site files


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The requested consortium; 0 stands for the preset's number."""

    preset: str = "brain"
    n_sites: int = 4
    n_subjects: int = 0
    site_sizes: tuple[int, ...] = ()  # subjects of each site, instead of the two fields before
    n_timepoints: int = 0
    n_networks: int = 0
    # Images only; `layout` applies to `brain` and `groups`
    grid_mm: int = 10
    tr: float = 2.0  # s
    layout: Layout = "files"
    voxel_mm: float = 2.0  # of images in layout fmriprep
    seed: int = 0
    templates: float = 0.0  # above 0: write template maps with this correlation to the true ones

    @property
    def owners(self) -> tuple[int, ...]:
        return tuple(site for site, size in enumerate(self.site_sizes) for _ in range(size))

    @property
    def names(self) -> tuple[str, ...]:
        if self.preset in NAMED:
            return tuple(NETWORKS)[: self.n_networks]
        letter = {"records": "P", **dict.fromkeys(TWO_SIDED, "N")}.get(self.preset, "S")
        return tuple(f"{letter}{k:02d}" for k in range(1, self.n_networks + 1))

    @property
    def grid(self) -> Grid:
        # The grid of the public mask of the settings: the images must pass a site's checks.
        config = replace(Config(epsilon=1.0, delta=1e-5), mask=f"MNI152-{self.grid_mm}mm")
        return grid_of(mask_space(config))


def write_consortium(out: Path, request: Request, progress: OnWritten | None = None) -> Summary:
    """Write ``settings.toml``, ``truth.npz``, ``README.txt`` and one folder per site into `out`.

    Layout fmriprep gets no settings, which `cape init` writes, and no truth.
    ConfigError: impossible sizes, an unknown preset, or a folder that is not empty.
    """
    preset = request.preset
    if preset not in DEFAULTS:
        raise _impossible("preset", preset, ", ".join(DEFAULTS), "choose one of them.")
    subjects, timepoints, networks = DEFAULTS[preset]
    request = replace(
        request,
        site_sizes=request.site_sizes
        or split_unequally(request.n_subjects or subjects, request.n_sites),
        n_timepoints=request.n_timepoints or timepoints,
        n_networks=request.n_networks or networks,
    )
    _check(request, out)
    for site in range(len(request.site_sizes)):
        (out / f"local{site}").mkdir(parents=True, exist_ok=True)
    maps = WRITERS[preset](out, request, progress or (lambda _done, _total: None))
    if request.layout != "fmriprep":  # a study as real people have it has no truth
        truth: dict[str, Any] = {"A": maps, "names": np.array(request.names)}
        if request.preset == "groups":
            people = _people(request)
            truth |= {"edges": np.array(people.edges), "effect": people.effect}
        np.savez_compressed(out / "truth.npz", **truth)
        _write_texts(out, request)
    if request.templates:
        write_templates(out, request, maps)
    written = sum(path.stat().st_size for path in out.rglob("local*/**/*") if path.is_file())
    return Summary(
        folder=out,
        preset=preset,
        site_sizes=request.site_sizes,
        names=request.names,
        n_features=maps.shape[0],
        n_bytes=written,
    )


def split_unequally(n_subjects: int, n_sites: int) -> tuple[int, ...]:
    """Return falling site sizes that sum to `n_subjects`, each about 2/3 of the one before."""
    if not 1 <= n_sites <= n_subjects:
        allowed = f"1 to {n_subjects} (n_subjects)"
        raise _impossible("n_sites", n_sites, allowed, "give every site a subject.")
    weights = (2 / 3) ** np.arange(n_sites)
    # Set one subject per site aside first: rounding must leave no site empty.
    ends = np.rint(np.cumsum(weights) / weights.sum() * (n_subjects - n_sites)).astype(int)
    return tuple(int(n) + 1 for n in np.diff(ends, prepend=0))


def _impossible(name: str, got: object, allowed: str, do: str = "correct it.") -> ConfigError:
    return ConfigError("E011", setting=name, got=got, allowed=allowed, do=do)


def _check(request: Request, out: Path) -> None:
    """Refuse impossible requests before writing: half a folder would pass for a consortium."""
    n, tables = request.n_networks, request.preset == "records"
    named = dict.fromkeys(NAMED, len(NETWORKS))
    largest = {**named, "records": min(N_X, N_Y), "paper": 24}.get(request.preset, 50)
    shortest = max(10, n + 3)
    layouts = LAYOUTS if request.preset in NAMED else LAYOUTS[:1]
    for name, got, fits, allowed in (
        ("site_sizes", request.site_sizes, min(request.site_sizes) >= 1, "1 or more each"),
        ("n_networks", n, 2 <= n <= largest, f"2 to {largest}"),
        (
            "n_timepoints",
            request.n_timepoints,
            tables or shortest <= request.n_timepoints <= 5000,
            "10 to 5000, above n_networks + 2",
        ),
        ("grid_mm", request.grid_mm, request.grid_mm in (10, 8, 6, 4, 3), "10, 8, 6, 4, 3"),
        ("tr", request.tr, 0.1 <= request.tr <= 20, "0.1 to 20 s"),
        ("voxel_mm", request.voxel_mm, 1 <= request.voxel_mm <= 10, "1 to 10 mm"),
        ("seed", request.seed, request.seed >= 0, "0 or more"),
        (
            "layout",
            request.layout,
            request.layout in layouts,
            f"{', '.join(LAYOUTS)}; files for matrices",
        ),
    ):
        if not fits:
            raise _impossible(name, got, allowed)
    if request.templates and (tables or request.layout in ("matrix", "atlas")):
        problem = "templates are made for images and for matrices of images"
        raise ConfigError("E012", problem=problem, do="choose another preset or layout.")
    if out.is_dir() and any(out.iterdir()):
        problem = "the folder for the synthetic consortium is not empty"
        raise ConfigError("E016", problem=problem, do="choose another one.")


# -- the data of the presets ---------------------------------------------------------------------


def _write_brain(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one 4-D image per subject; return maps (D, R)."""
    grid, R = request.grid, request.n_networks
    shelves: dict[int, Shelf] = {}
    voxel_mm = request.voxel_mm if request.layout == "fmriprep" else 0.0
    maps = network_maps(grid, request.names)
    scanner = Scanner(grid=grid, maps=maps, tr=request.tr, voxel_mm=voxel_mm)
    people = _people(request) if request.preset == "groups" else None
    rng = np.random.default_rng([request.seed, 1])
    n_subjects, longest = len(request.owners), int(request.n_timepoints * (1 + SPREAD_OF_T))
    courses = garch_sources(rng, n_subjects, R, longest, ar=AUTOCORRELATION)
    strength = np.exp(HETEROGENEITY * rng.standard_normal((n_subjects, R, 1)))
    courses *= strength.astype(np.float32)
    shortest = int(np.ceil(request.n_timepoints * (1 - SPREAD_OF_T)))
    lengths = rng.integers(shortest, longest, size=n_subjects, endpoint=True)
    for m, site in enumerate(request.owners):
        # One generator per subject: an image does not depend on the other subjects.
        subject_rng = np.random.default_rng([request.seed, 2, m])
        S = courses[m, :, : lengths[m]]
        values = scanner.series(subject_rng, S if people is None else people.mixed(m, S))
        storage = STORAGES[site % len(STORAGES)]
        shelves[site] = Shelf(folder=out / f"local{site}", scanner=scanner, storage=storage)
        write_subject(request.layout, shelves[site], m, values, subject_rng)
        progress(m + 1, n_subjects)
    for site, shelf in shelves.items():
        members = tuple(m for m, owner in enumerate(request.owners) if owner == site)
        finish_site(request.layout, shelf, members)
        if people is not None:
            people.write_table(shelf.folder, members)
    return maps_in_layout(request.layout, grid, maps)


def _people(request: Request) -> Compared:
    return compared(request.names, request.owners, request.seed)


def _write_two_sided(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one 4-D image per subject; return maps (D, R), which `smooth` does not contain."""
    grid = request.grid
    study = two_sided(
        grid, request.n_networks, seed=request.seed, networks=request.preset == "two-sided"
    )
    scanner = Scanner(grid=grid, maps=study.maps, tr=request.tr)
    for m, site in enumerate(request.owners):
        X = study.subject(m, request.n_timepoints)
        # In units of a scanner: about 1 % of the baseline.
        values = np.asarray(BASELINE + 0.01 * BASELINE * X / X.std(), dtype=np.float32)
        storage = STORAGES[site % len(STORAGES)]
        shelf = Shelf(folder=out / f"local{site}", scanner=scanner, storage=storage)
        write_subject("files", shelf, m, values, np.random.default_rng([request.seed, 2, m]))
        progress(m + 1, len(request.owners))
    return study.maps


def _write_matrices(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one (D, T) float32 matrix per subject; return maps (D, R)."""
    study = generate(
        PRESETS[request.preset],
        n_subjects=len(request.owners),
        seed=request.seed,
        n_components=request.n_networks,
        n_timepoints=request.n_timepoints,
        image_size=IMAGE_EDGE,
        n_basis=IMAGE_BASIS,
    ).in_voxels()
    for m, subject in enumerate(study.each()):
        path = out / f"local{request.owners[m]}" / f"sub-{m + 1:03d}.npy"
        np.save(path, np.asarray(subject, dtype=np.float32), allow_pickle=False)
        progress(m + 1, len(request.owners))
    return study.A


def _write_records(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one table per site; return the loadings of the planted pairs (D, K).

    All columns have mean 0 and variance 1, so that the public range -3 to 3 fits.
    """
    owners = request.owners
    planted = tuple(np.linspace(STRONGEST, WEAKEST, request.n_networks))
    study = two_views(request.seed, n_records=len(owners), n_x=N_X, n_y=N_Y, correlations=planted)
    header = [f"network_{i:02d}" for i in range(1, N_X + 1)]
    header += [f"score_{i:02d}" for i in range(1, N_Y + 1)]
    for site in sorted(set(owners)):
        rows = [m for m, owner in enumerate(owners) if owner == site]
        lines = [",".join(["subject", *header])]
        for m in rows:
            values = (f"{value:.6g}" for value in study.records[m])
            lines.append(",".join([f"sub-{m + 1:05d}", *values]))
        path = out / f"local{site}" / "records.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        progress(rows[-1] + 1, len(owners))
    return study.loadings


WRITERS = {
    **dict.fromkeys(NAMED, _write_brain),
    **dict.fromkeys(TWO_SIDED, _write_two_sided),
    **dict.fromkeys(PRESETS, _write_matrices),
    "records": _write_records,
}


def write_templates(out: Path, request: Request, maps: Array) -> None:
    """Write template maps with the requested correlation to the true ones into every site's folder.

    They stand for a published atlas, which is partly right.
    """
    rng = np.random.default_rng([request.seed, 3])
    folders = [out / f"local{site}" for site in range(len(request.site_sizes))]
    white = rng.standard_normal(maps.shape)
    if request.preset in PRESETS:
        noise = kernel.smooth_image((IMAGE_EDGE, IMAGE_EDGE), white)
        for folder in folders:
            path = folder / "templates.npy"
            np.save(path, correlated_maps(maps, noise, request.templates), allow_pickle=False)
        return
    import nibabel as nib

    grid = request.grid
    x, y, z = (float(edge) for edge in np.linalg.norm(grid.affine[:3, :3], axis=0))
    noise = kernel.smooth(grid.inside, (x, y, z), white)
    volume: Data = np.zeros((*grid.shape, maps.shape[1]), dtype=np.float32)
    volume[grid.inside] = correlated_maps(maps, noise, request.templates)
    image = nib.Nifti1Image(volume, grid.affine)
    image.set_sform(grid.affine, code="mni")
    for folder in folders:
        nib.save(image, folder / "templates.nii.gz")


# -- the texts beside them -----------------------------------------------------------------------


def _write_texts(out: Path, request: Request) -> None:
    """Write settings.toml, without epsilon and delta, and README.txt."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=False,  # noqa: S701 - plain texts
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shortest, n_sites = 1.0, len(request.site_sizes)
    if request.preset in NAMED:
        shortest = 1 - SPREAD_OF_T
    elif request.preset in PRESETS:
        shortest = min(1.0, PRESETS[request.preset].lengths[0])
    values = {
        "of": request,
        "n_sites": n_sites,
        "min_sites": min(3, n_sites),
        "min_timepoints": min(100, int(shortest * request.n_timepoints)),
        "n_x": N_X,
        "matrices": PRESETS,
        "edge": IMAGE_EDGE,
        "n_basis": IMAGE_BASIS,
        "n_parcels": N_PARCELS,
        "group": GROUP,
        "covariates": COVARIATES,
        "space": SPACE,
    }
    for name in ("settings.toml", "README.txt"):
        text = environment.get_template(f"{name}.j2").render(values)
        (out / name).write_text(text, encoding="utf-8")
