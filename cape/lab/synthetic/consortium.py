"""Write a synthetic consortium: one folder per site, the owner's settings, the ground truth.

`cape synth --help` names the presets, whose people are made by the modules beside this one.
Equal arguments, with an equal seed, give equal bytes.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array, Data
from cape.data.space import TEMPLATE_FILES, Grid, grid_of, mask_space
from cape.data.templates import NETWORKS_FILE
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.lab.synthetic import generators, volumes
from cape.lab.synthetic.brain import BASELINE, NETWORKS, STORAGES, Scanner, network_maps
from cape.lab.synthetic.compared import COMPARED_COLUMNS, FORMULA, TwoGroups, draw_two_groups
from cape.lab.synthetic.layouts import (
    LAYOUTS,
    N_PARCELS,
    SPACE,
    Layout,
    SiteWriter,
    finish_site,
    maps_in_layout,
    write_subject,
)
from cape.lab.synthetic.resting import two_sided_study
from cape.settings.config import Config
from cape.settings.option import out_of_range

_TEMPLATES = Path(__file__).parent / "templates"
OnWritten = Callable[[int, int], None]

# Lognormal sd of the amplitude of a network over subjects
_HETEROGENEITY = 0.3

# Presets with named networks
_NAMED = ("brain", "groups")
# Presets of symmetric brains, or of their smooth noise alone
TWO_SIDED = ("two-sided", "smooth")

# Presets of tables of volumes, with their numbers of groups
GROUPS_OF_VOLUMES = {"volumes": 2, "volumes-bd": 3}
# Presets of tables
_TABLES = ("records", *GROUPS_OF_VOLUMES)

# Default numbers of subjects, time points, components
DEFAULTS: dict[str, tuple[int, int, int]] = {
    "brain": (200, 120, 6),
    "groups": (240, 100, 6),
    **dict.fromkeys(TWO_SIDED, (60, 150, 20)),
    **dict.fromkeys(generators.PRESETS, (128, 250, 20)),
    **dict.fromkeys(GROUPS_OF_VOLUMES, (2000, 1, len(volumes.BRAIN_VOLUMES))),
    "records": (4000, 1, 3),
}

# Subjects of `brain` have (1 - this) to (1 + this) times `n_timepoints` volumes, because lengths of
# real runs differ.
SPREAD_OF_T = 0.15

# Presets of matrices: edge of the square images, pixels; d of the basis in their settings
IMAGE_EDGE = 30
IMAGE_BASIS = 100

# Columns of the tables of `records`: brain networks, then behaviour
N_X, N_Y = 10, 8

# Range of the canonical correlations of `records`, which are evenly spaced
MAX_CORRELATION, MIN_CORRELATION = 0.8, 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Sizes of a written consortium."""

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
    site_sizes: tuple[int, ...] = ()  # subjects of each site, in place of the two fields above
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
        if self.preset in _NAMED:
            return tuple(NETWORKS)[: self.n_networks]
        if self.preset in GROUPS_OF_VOLUMES:
            return tuple(volume.name for volume in volumes.BRAIN_VOLUMES[: self.n_networks])
        letter = {"records": "P", **dict.fromkeys(TWO_SIDED, "N")}.get(self.preset, "S")
        return tuple(f"{letter}{k:02d}" for k in range(1, self.n_networks + 1))

    @property
    def grid(self) -> Grid:
        # Use the public mask of the settings: the images must pass a site's checks.
        config = replace(Config(epsilon=1.0, delta=1e-5), mask=f"MNI152-{self.grid_mm}mm")
        return grid_of(mask_space(config))


def write_consortium(out: Path, request: Request, progress: OnWritten | None = None) -> Summary:
    """Write ``settings.toml``, ``truth.npz``, ``README.txt`` and one folder per site into `out`.

    Layout fmriprep has no truth, as real studies, and no settings, which `cape init` writes.
    ConfigError: impossible sizes, an unknown preset, or a folder that is not empty.
    """
    preset = request.preset
    if preset not in DEFAULTS:
        raise out_of_range("preset", preset, ", ".join(DEFAULTS), "choose one of them.")
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
    if request.layout != "fmriprep":
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
    """Return decreasing site sizes with the sum `n_subjects`, each about 2/3 of the one before."""
    if not 1 <= n_sites <= n_subjects:
        allowed = f"1 to {n_subjects} (n_subjects)"
        raise out_of_range("n_sites", n_sites, allowed, "give every site a subject.")
    weights = (2 / 3) ** np.arange(n_sites)
    # Each site gets one subject first: rounding must leave no site empty.
    ends = np.rint(np.cumsum(weights) / weights.sum() * (n_subjects - n_sites)).astype(int)
    return tuple(int(n) + 1 for n in np.diff(ends, prepend=0))


def _check(request: Request, out: Path) -> None:
    """Refuse impossible requests before files are written."""
    n, tables = request.n_networks, request.preset in _TABLES
    largest = {
        **dict.fromkeys(_NAMED, len(NETWORKS)),
        **dict.fromkeys(GROUPS_OF_VOLUMES, len(volumes.BRAIN_VOLUMES)),
        "records": min(N_X, N_Y),
        "paper": 24,
    }.get(request.preset, 50)
    shortest = max(10, n + 3)
    layouts = LAYOUTS if request.preset in _NAMED else LAYOUTS[:1]
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
            raise out_of_range(name, got, allowed)
    if request.templates and (tables or request.layout in ("matrix", "atlas")):
        problem = "templates need images or matrices of images"
        raise ConfigError("E012", problem=problem, do="choose another preset or layout.")
    if out.is_dir() and any(out.iterdir()):
        problem = "the folder for the synthetic consortium is not empty"
        raise ConfigError("E016", problem=problem, do="choose another one.")


# -- the data of the presets ---------------------------------------------------------------------


def _write_brain(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one 4-D image per subject; return maps (D, R)."""
    grid, R = request.grid, request.n_networks
    writers: dict[int, SiteWriter] = {}
    voxel_mm = request.voxel_mm if request.layout == "fmriprep" else 0.0
    maps = network_maps(grid, request.names)
    scanner = Scanner(grid=grid, maps=maps, tr=request.tr, voxel_mm=voxel_mm)
    people = _people(request) if request.preset == "groups" else None
    rng = np.random.default_rng([request.seed, 1])
    n_subjects, longest = len(request.owners), int(request.n_timepoints * (1 + SPREAD_OF_T))
    courses = generators.garch_sources(rng, n_subjects, R, longest, ar=generators.AUTOCORRELATION)
    strength = np.exp(_HETEROGENEITY * rng.standard_normal((n_subjects, R, 1)))
    courses *= strength.astype(np.float32)
    shortest = int(np.ceil(request.n_timepoints * (1 - SPREAD_OF_T)))
    lengths = rng.integers(shortest, longest, size=n_subjects, endpoint=True)
    for m, site in enumerate(request.owners):
        # With one generator per subject, an image does not depend on other subjects.
        subject_rng = np.random.default_rng([request.seed, 2, m])
        S = courses[m, :, : lengths[m]]
        values = scanner.series(subject_rng, S if people is None else people.mixed(m, S))
        storage = STORAGES[site % len(STORAGES)]
        writers[site] = SiteWriter(folder=out / f"local{site}", scanner=scanner, storage=storage)
        write_subject(request.layout, writers[site], m, values, subject_rng)
        progress(m + 1, n_subjects)
    for site, writer in writers.items():
        members = tuple(m for m, owner in enumerate(request.owners) if owner == site)
        finish_site(request.layout, writer, members)
        if people is not None:
            people.write_table(writer.folder, members)
    return maps_in_layout(request.layout, grid, maps)


def _people(request: Request) -> TwoGroups:
    return draw_two_groups(request.names, request.owners, request.seed)


def _write_two_sided(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one 4-D image per subject; return maps (D, R), which are absent from `smooth`."""
    grid = request.grid
    study = two_sided_study(
        grid, request.n_networks, seed=request.seed, networks=request.preset == "two-sided"
    )
    scanner = Scanner(grid=grid, maps=study.maps, tr=request.tr)
    for m, site in enumerate(request.owners):
        X = study.subject(m, request.n_timepoints)
        # About 1 % of the baseline, as in a scanner.
        values = np.asarray(BASELINE + 0.01 * BASELINE * X / X.std(), dtype=np.float32)
        storage = STORAGES[site % len(STORAGES)]
        writer = SiteWriter(folder=out / f"local{site}", scanner=scanner, storage=storage)
        write_subject("files", writer, m, values, np.random.default_rng([request.seed, 2, m]))
        progress(m + 1, len(request.owners))
    return study.maps


def _write_matrices(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one (D, T) float32 matrix per subject; return maps (D, R)."""
    study = generators.generate(
        generators.PRESETS[request.preset],
        n_subjects=len(request.owners),
        seed=request.seed,
        n_components=request.n_networks,
        n_timepoints=request.n_timepoints,
        image_size=IMAGE_EDGE,
        n_basis=IMAGE_BASIS,
    ).in_voxels()
    for m, (subject,) in enumerate(study.blocks(1)):
        path = out / f"local{request.owners[m]}" / f"sub-{m + 1:03d}.npy"
        np.save(path, np.asarray(subject, dtype=np.float32), allow_pickle=False)
        progress(m + 1, len(request.owners))
    return study.A


def _write_records(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one table per site, two views of a person a row; return the planted loadings (D, K).

    All columns have mean 0 and variance 1, which fits the public range -3 to 3.
    """
    owners = request.owners
    planted = tuple(np.linspace(MAX_CORRELATION, MIN_CORRELATION, request.n_networks))
    study = generators.two_views(
        request.seed, n_records=len(owners), n_x=N_X, n_y=N_Y, correlations=planted
    )
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


def _write_volumes(out: Path, request: Request, progress: OnWritten) -> Array:
    """Write one table per site; return the differences (K, groups - 1) in sd."""
    n_groups, K = GROUPS_OF_VOLUMES[request.preset], request.n_networks
    cohort = volumes.draw_cohort(request.owners, request.seed, n_groups=n_groups, n_volumes=K)
    for site in range(len(request.site_sizes)):
        members = [m for m, owner in enumerate(request.owners) if owner == site]
        cohort.write_table(out / f"local{site}", members)
        progress(members[-1] + 1, len(request.owners))
    return np.array([volume.differences[: n_groups - 1] for volume in volumes.BRAIN_VOLUMES[:K]])


WRITERS = {
    **dict.fromkeys(_NAMED, _write_brain),
    **dict.fromkeys(TWO_SIDED, _write_two_sided),
    **dict.fromkeys(generators.PRESETS, _write_matrices),
    **dict.fromkeys(GROUPS_OF_VOLUMES, _write_volumes),
    "records": _write_records,
}


def write_templates(out: Path, request: Request, maps: Array) -> None:
    """Write maps that correlate with the true ones, as a published atlas would, to every site.

    Those of images lie with their names in `out`, too, for `cape simulate --maps`.
    """
    rng = np.random.default_rng([request.seed, 3])
    folders = [out / f"local{site}" for site in range(len(request.site_sizes))]
    white = rng.standard_normal(maps.shape)
    if request.preset in generators.PRESETS:
        noise = kernel.smooth_image((IMAGE_EDGE, IMAGE_EDGE), white)
        for folder in folders:
            path = folder / "templates.npy"
            np.save(
                path, generators.correlated_maps(maps, noise, request.templates), allow_pickle=False
            )
        return
    import nibabel as nib

    grid = request.grid
    x, y, z = (float(edge) for edge in np.linalg.norm(grid.affine[:3, :3], axis=0))
    noise = kernel.smooth(grid.inside, (x, y, z), white)
    volume: Data = np.zeros((*grid.shape, maps.shape[1]), dtype=np.float32)
    volume[grid.inside] = generators.correlated_maps(maps, noise, request.templates)
    image = nib.Nifti1Image(volume, grid.affine)
    image.set_sform(grid.affine, code="mni")
    for folder in (out, *folders):
        nib.save(image, folder / TEMPLATE_FILES[0])
    lines = ["name", *request.names]
    (out / NETWORKS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


# -- texts ---------------------------------------------------------------------------------------


def _write_texts(out: Path, request: Request) -> None:
    """Write settings.toml, without epsilon and delta, and README.txt."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=False,  # noqa: S701 - plain texts
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    n_sites = len(request.site_sizes)
    shortest = 1 - SPREAD_OF_T if request.preset in _NAMED else 1.0
    values = {
        "of": request,
        "n_sites": n_sites,
        "min_sites": min(3, n_sites),
        "min_timepoints": min(100, int(shortest * request.n_timepoints)),
        "n_x": N_X,
        "matrices": generators.PRESETS,
        "edge": IMAGE_EDGE,
        "n_basis": IMAGE_BASIS,
        "n_parcels": N_PARCELS,
        "variables": COMPARED_COLUMNS,
        "formula": FORMULA,
        "groups_of_volumes": GROUPS_OF_VOLUMES,
        "levels": "/".join(volumes.GROUPS[: GROUPS_OF_VOLUMES.get(request.preset, 0)]),
        "covariates": volumes.COVARIATES,
        "volumes": volumes.BRAIN_VOLUMES[: request.n_networks],
        "space": SPACE,
    }
    for name in ("settings.toml", "README.txt"):
        text = environment.get_template(f"{name}.j2").render(values)
        (out / name).write_text(text, encoding="utf-8")
