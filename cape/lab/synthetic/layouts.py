"""Layouts of a synthetic site's files, as people have them on their disks.

``files``     one image per subject, named sub-<label>
``manifest``  images with meaningless names and two dummy volumes each, and a table
``bids``      derivatives with sidecars and small confound tables, on the mask's grid
``fmriprep``  a tree like that of fMRIPrep 23 to 25: two sessions of two runs, on its own grid
``matrix``    parcel time series as text tables, time by feature
``atlas``     as ``files``, with a label image beside them
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.data.space import Grid
from cape.frozen import dataclass
from cape.lab.synthetic.brain import Scanner, Storage, voxel_positions
from cape.settings.words import CONFOUND_SETS

Layout = Literal["files", "manifest", "bids", "fmriprep", "matrix", "atlas"]
LAYOUTS: tuple[Layout, ...] = ("files", "manifest", "bids", "fmriprep", "matrix", "atlas")

N_PARCELS = 80
N_DUMMY = 2
# Number of subjects from which on a site's manifest excludes one
MIN_TO_EXCLUDE = 4

SPACE = "space-MNI152NLin2009cAsym"
# Sd over voxels of the artefact of one sd of motion
ARTEFACT = 3.0

# Layout fmriprep: sessions, runs of each, CompCor components of each kind
SESSIONS, RUNS, N_COMPONENTS = 2, 2, 6
# Highest frequency of its cosines, Hz
HIGH_PASS = 1 / 128


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteWriter:
    """Writes the images of one site."""

    folder: Path
    scanner: Scanner
    storage: Storage

    def write_image(self, name: str, values: Data) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.scanner.image(values, self.storage))


def write_subject(
    layout: Layout, writer: SiteWriter, m: int, values: Data, rng: np.random.Generator
) -> None:
    """Write subject number `m` (from 0) with voxels `values`, shape (D, T)."""
    _WRITERS[layout](writer, m, values, rng)


def finish_site(layout: Layout, writer: SiteWriter, members: tuple[int, ...]) -> None:
    """Write the files of a whole site: manifest, description of the data set, atlas."""
    if layout == "manifest":
        _write_manifest(writer, members)
    elif layout == "bids":
        about = {"Name": "synthetic", "BIDSVersion": "1.8.0", "DatasetType": "derivative"}
        text = json.dumps(about, indent=1) + "\n"
        (writer.folder / "dataset_description.json").write_text(text, encoding="utf-8")
    elif layout == "fmriprep":
        _describe(writer, members)
    elif layout == "atlas":
        (writer.folder / "atlas.nii.gz").write_bytes(_atlas_image(writer.scanner.grid))


def maps_in_layout(layout: Layout, grid: Grid, maps: Array) -> Array:
    """Return the true maps in the features of a layout: voxels or means of parcels."""
    if layout not in ("matrix", "atlas"):
        return maps
    return parcel_means(parcels(grid), maps)


def parcels(grid: Grid) -> npt.NDArray[np.intp]:
    """Return the parcel of every voxel of the mask, 0 .. N_PARCELS - 1, each a compact region."""
    positions = voxel_positions(grid)
    seeds = positions[:: max(1, len(positions) // N_PARCELS)][:N_PARCELS]
    distance = ((positions[:, None, :] - seeds[None]) ** 2).sum(axis=2)
    return np.asarray(distance.argmin(axis=1), dtype=np.intp)


def parcel_means(of: npt.NDArray[np.intp], values: Array) -> Array:
    """Return means over parcels, shape (N_PARCELS, columns); `values` is (D, columns)."""
    sums = np.zeros((N_PARCELS, values.shape[1]))
    np.add.at(sums, of, values)
    return np.asarray(sums / np.bincount(of, minlength=N_PARCELS)[:, None])


def _as_files(writer: SiteWriter, m: int, values: Data, rng: np.random.Generator) -> None:
    writer.write_image(f"sub-{m + 1:03d}_task-rest_bold.nii.gz", values)


def _as_listed(writer: SiteWriter, m: int, values: Data, rng: np.random.Generator) -> None:
    # Volumes before steady magnetisation are brighter.
    dummies = np.repeat(values[:, :1] * 1.3, N_DUMMY, axis=1)
    writer.write_image(f"scans/scan_{m + 1:04d}.nii.gz", np.concatenate([dummies, values], axis=1))


def _write_manifest(writer: SiteWriter, members: tuple[int, ...]) -> None:
    last = members[-1] if len(members) >= MIN_TO_EXCLUDE else -1
    lines = ["file,participant_id,tr,n_dummy,exclude,notes"]
    for m in members:
        # Exclude one subject, so that the numbers of subjects and files differ.
        excluded = "1,withdrew consent" if m == last else "0,"
        tr = f"{writer.scanner.tr:g}"
        lines.append(f"scans/scan_{m + 1:04d}.nii.gz,P{m + 1:03d},{tr},{N_DUMMY},{excluded}")
    (writer.folder / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _as_bids(writer: SiteWriter, m: int, values: Data, rng: np.random.Generator) -> None:
    label, n_times = f"sub-{m + 1:03d}", values.shape[1]
    sessions = {"": slice(None)}
    # Every third person has two runs, which readers must join.
    if m % 3 == 0:
        sessions = {"ses-1": slice(0, n_times // 2), "ses-2": slice(n_times // 2, None)}
    side = {"RepetitionTime": writer.scanner.tr, "SkullStripped": False, "TaskName": "rest"}
    for session, part in sessions.items():
        stem = "_".join(filter(None, (label, session, "task-rest")))
        place = "/".join(filter(None, (label, session, "func", stem)))
        motion = _write_run(writer, place, values[:, part], rng, json.dumps(side) + "\n")
        table = writer.folder / f"{place}_desc-confounds_timeseries.tsv"
        table.write_text(_table(_columns(motion, rng)), encoding="utf-8")


def _write_run(
    writer: SiteWriter, place: str, run: Data, rng: np.random.Generator, side: str
) -> Array:
    """Write an image with motion artefacts, and its sidecar; return the motion (T, 6)."""
    motion = np.cumsum(rng.normal(0, 0.02, (run.shape[1], 6)), axis=0)
    # The artefact is linear in motion: `confounds` can remove it.
    scaled = (motion - motion.mean(axis=0)) / motion.std(axis=0)
    weights = rng.normal(0, ARTEFACT / np.sqrt(6), (len(run), 6))
    name = f"{place}_{SPACE}_desc-preproc_bold"
    writer.write_image(f"{name}.nii.gz", (run + weights @ scaled.T).astype(np.float32))
    (writer.folder / f"{name}.json").write_text(side, encoding="utf-8")
    return motion


def _as_fmriprep(writer: SiteWriter, m: int, values: Data, rng: np.random.Generator) -> None:
    label = f"sub-{m + 1:03d}"
    side = {
        "RepetitionTime": writer.scanner.tr,
        "SkullStripped": False,
        "StartTime": 0.0,
        "SliceTimingCorrected": True,
        "TaskName": "rest",
    }
    for k, run in enumerate(np.array_split(values, SESSIONS * RUNS, axis=1)):
        session = f"ses-{k // RUNS + 1}"
        place = f"{label}/{session}/func/{label}_{session}_task-rest_run-{k % RUNS + 1}"
        motion = _write_run(writer, place, run, rng, json.dumps(side, indent=2))
        writer.write_image(f"{place}_{SPACE}_boldref.nii.gz", run[:, :1])
        columns = _columns(motion, rng) | _more_columns(run.shape[1], writer.scanner.tr, rng)
        table = writer.folder / f"{place}_desc-confounds_timeseries"
        table.with_suffix(".tsv").write_text(_table(columns), encoding="utf-8")
        about = {
            name: {"Method": f"{name[0]}CompCor", "Mask": "combined", "Retained": True}
            for name in columns
            if "_comp_cor_" in name
        }
        table.with_suffix(".json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def _more_columns(n_times: int, tr: float, rng: np.random.Generator) -> dict[str, Array]:
    """Return fMRIPrep's other columns; NaN stands for its n/a."""
    columns: dict[str, Array] = {"global_signal": 500 + rng.normal(0, 1, n_times)}
    for name in ("dvars", "std_dvars", "rmsd"):
        columns[name] = np.r_[np.nan, np.abs(rng.normal(1, 0.1, n_times - 1))]
    for kind in ("a_comp_cor", "t_comp_cor"):
        for k in range(N_COMPONENTS):
            columns[f"{kind}_{k:02d}"] = rng.normal(0, 0.1, n_times)
    place = np.arange(n_times) + 0.5
    for k in range(int(2 * n_times * tr * HIGH_PASS)):
        columns[f"cosine{k:02d}"] = np.cos(np.pi * (k + 1) * place / n_times)
    columns["motion_outlier00"] = np.eye(n_times)[n_times // 2]
    return columns


def _describe(writer: SiteWriter, members: tuple[int, ...]) -> None:
    about = {
        "Name": "fMRIPrep - fMRI PREProcessing workflow (synthetic)",
        "BIDSVersion": "1.4.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "fMRIPrep", "Version": "24.1.1"}],
    }
    path = writer.folder / "dataset_description.json"
    path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    rows = ["participant_id\tage\tsex", *(f"sub-{m + 1:03d}\t{20 + m % 60}\tn/a" for m in members)]
    (writer.folder / "participants.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _columns(motion: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Return the columns of motion24, tissue means and displacement.

    As in fMRIPrep's files, the first row of every derivative is n/a.
    """
    columns: dict[str, Array] = {}
    names = CONFOUND_SETS["motion6"]
    change = np.vstack([np.full((1, 6), np.nan), np.diff(motion, axis=0)])
    for i, name in enumerate(names):
        columns[name] = motion[:, i]
        columns[f"{name}_derivative1"] = change[:, i]
        columns[f"{name}_power2"] = motion[:, i] ** 2
        columns[f"{name}_derivative1_power2"] = change[:, i] ** 2
    for name in ("csf", "white_matter"):
        columns[name] = 500 + rng.normal(0, 1, len(motion))
    columns["framewise_displacement"] = np.abs(change).sum(axis=1)
    return columns


def _table(columns: dict[str, Array]) -> str:
    rows = ["\t".join(columns)]
    for t in range(len(next(iter(columns.values())))):
        cells = (column[t] for column in columns.values())
        rows.append("\t".join("n/a" if np.isnan(c) else f"{c:.6f}" for c in cells))
    return "\n".join(rows) + "\n"


def _as_matrix(writer: SiteWriter, m: int, values: Data, rng: np.random.Generator) -> None:
    means = parcel_means(parcels(writer.scanner.grid), values.astype(np.float64))
    lines = [",".join(f"parcel{p + 1:03d}" for p in range(N_PARCELS))]
    lines += [",".join(f"{value:.5g}" for value in row) for row in means.T]
    path = writer.folder / f"sub-{m + 1:03d}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _atlas_image(grid: Grid) -> bytes:
    import nibabel as nib

    labels = np.zeros(grid.shape, dtype=np.int16)
    labels[grid.inside] = parcels(grid) + 1
    image = nib.Nifti1Image(labels, grid.affine)
    image.set_sform(grid.affine, code="mni")
    image.header.set_xyzt_units("mm")
    return gzip.compress(image.to_bytes(), compresslevel=6, mtime=0)


_WRITERS: dict[Layout, Callable[[SiteWriter, int, Data, np.random.Generator], None]] = {
    "files": _as_files,
    "manifest": _as_listed,
    "bids": _as_bids,
    "fmriprep": _as_fmriprep,
    "matrix": _as_matrix,
    "atlas": _as_files,
}
