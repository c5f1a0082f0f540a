"""Layouts of a synthetic site's files, as people have them on their disks.

``files``     one image per subject, named sub-<label>
``manifest``  images with meaningless names and two dummy volumes each, and a table
``bids``      derivatives with sidecars and small confound tables, on the grid of the mask
``fmriprep``  a tree as fMRIPrep 23 to 25 writes it: two sessions of two runs, on its own grid
``matrix``    parcel time series as text tables, time by feature
``atlas``     as ``files``, with a label image beside them
"""

from __future__ import annotations

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
# From this number of subjects on a site's manifest excludes one.
MIN_TO_EXCLUDE = 4

SPACE = "space-MNI152NLin2009cAsym"
# Sd over voxels of the signal that one sd of motion adds
ARTEFACT = 3.0

# Layout fmriprep: sessions, runs of each, CompCor components of each kind
SESSIONS, RUNS, N_COMPONENTS = 2, 2, 6
# Highest frequency that its cosines remove, Hz
HIGH_PASS = 1 / 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelf:
    """Folder, scanner and storage of one site."""

    folder: Path  # of the site
    scanner: Scanner  # makes images
    storage: Storage  # how this site stores them

    def image(self, name: str, values: Data) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.scanner.image(values, self.storage))


def write_subject(
    layout: Layout, shelf: Shelf, m: int, values: Data, rng: np.random.Generator
) -> None:
    """Write subject number `m` (from 0) with voxels `values`, shape (D, T)."""
    _WRITERS[layout](shelf, m, values, rng)


def finish_site(layout: Layout, shelf: Shelf, members: tuple[int, ...]) -> None:
    """Write the files that a site has once: manifest, description of the data set, atlas."""
    if layout == "manifest":
        _write_manifest(shelf, members)
    elif layout == "bids":
        about = {"Name": "synthetic", "BIDSVersion": "1.8.0", "DatasetType": "derivative"}
        text = json.dumps(about, indent=1) + "\n"
        (shelf.folder / "dataset_description.json").write_text(text, encoding="utf-8")
    elif layout == "fmriprep":
        _describe(shelf, members)
    elif layout == "atlas":
        (shelf.folder / "atlas.nii.gz").write_bytes(_atlas_image(shelf.scanner.grid))


def maps_in_layout(layout: Layout, grid: Grid, maps: Array) -> Array:
    """Return the true maps in the features of a layout: voxels, or means of parcels."""
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


def _as_files(shelf: Shelf, m: int, values: Data, rng: np.random.Generator) -> None:
    shelf.image(f"sub-{m + 1:03d}_task-rest_bold.nii.gz", values)


def _as_listed(shelf: Shelf, m: int, values: Data, rng: np.random.Generator) -> None:
    # Stronger, as before magnetisation is steady: dropping them must matter.
    dummies = np.repeat(values[:, :1] * 1.3, N_DUMMY, axis=1)
    shelf.image(f"scans/scan_{m + 1:04d}.nii.gz", np.concatenate([dummies, values], axis=1))


def _write_manifest(shelf: Shelf, members: tuple[int, ...]) -> None:
    last = members[-1] if len(members) >= MIN_TO_EXCLUDE else -1
    lines = ["file,subject,tr,n_dummy,exclude,notes"]
    for m in members:
        # The table excludes one subject, so that the numbers of subjects and files differ.
        excluded = "1,withdrew consent" if m == last else "0,"
        tr = f"{shelf.scanner.tr:g}"
        lines.append(f"scans/scan_{m + 1:04d}.nii.gz,P{m + 1:03d},{tr},{N_DUMMY},{excluded}")
    (shelf.folder / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _as_bids(shelf: Shelf, m: int, values: Data, rng: np.random.Generator) -> None:
    label, n_times = f"sub-{m + 1:03d}", values.shape[1]
    sessions = {"": slice(None)}
    # Two runs of one person, which readers must join.
    if m % 3 == 0:
        sessions = {"ses-1": slice(0, n_times // 2), "ses-2": slice(n_times // 2, None)}
    side = {"RepetitionTime": shelf.scanner.tr, "SkullStripped": False, "TaskName": "rest"}
    for session, part in sessions.items():
        stem = "_".join(filter(None, (label, session, "task-rest")))
        place = "/".join(filter(None, (label, session, "func", stem)))
        motion = _write_run(shelf, place, values[:, part], rng, json.dumps(side) + "\n")
        table = shelf.folder / f"{place}_desc-confounds_timeseries.tsv"
        table.write_text(_table(_columns(motion, rng)), encoding="utf-8")


def _write_run(shelf: Shelf, place: str, run: Data, rng: np.random.Generator, side: str) -> Array:
    """Write an image with motion in its signal, and its sidecar; return the motion (T, 6)."""
    motion = np.cumsum(rng.normal(0, 0.02, (run.shape[1], 6)), axis=0)
    # The artefact is linear in motion, so that `confounds` can remove it.
    scaled = (motion - motion.mean(axis=0)) / motion.std(axis=0)
    weights = rng.normal(0, ARTEFACT / np.sqrt(6), (len(run), 6))
    name = f"{place}_{SPACE}_desc-preproc_bold"
    shelf.image(f"{name}.nii.gz", (run + weights @ scaled.T).astype(np.float32))
    (shelf.folder / f"{name}.json").write_text(side, encoding="utf-8")
    return motion


def _as_fmriprep(shelf: Shelf, m: int, values: Data, rng: np.random.Generator) -> None:
    label = f"sub-{m + 1:03d}"
    side = {
        "RepetitionTime": shelf.scanner.tr,
        "SkullStripped": False,
        "StartTime": 0.0,
        "SliceTimingCorrected": True,
        "TaskName": "rest",
    }
    for k, run in enumerate(np.array_split(values, SESSIONS * RUNS, axis=1)):
        session = f"ses-{k // RUNS + 1}"
        place = f"{label}/{session}/func/{label}_{session}_task-rest_run-{k % RUNS + 1}"
        motion = _write_run(shelf, place, run, rng, json.dumps(side, indent=2))
        shelf.image(f"{place}_{SPACE}_boldref.nii.gz", run[:, :1])
        columns = _columns(motion, rng) | _more_columns(run.shape[1], shelf.scanner.tr, rng)
        table = shelf.folder / f"{place}_desc-confounds_timeseries"
        table.with_suffix(".tsv").write_text(_table(columns), encoding="utf-8")
        about = {
            name: {"Method": f"{name[0]}CompCor", "Mask": "combined", "Retained": True}
            for name in columns
            if "_comp_cor_" in name
        }
        table.with_suffix(".json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def _more_columns(n_times: int, tr: float, rng: np.random.Generator) -> dict[str, Array]:
    """Return fMRIPrep's columns beside motion and tissues; NaN for its n/a."""
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


def _describe(shelf: Shelf, members: tuple[int, ...]) -> None:
    about = {
        "Name": "fMRIPrep - fMRI PREProcessing workflow (synthetic)",
        "BIDSVersion": "1.4.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "fMRIPrep", "Version": "24.1.1"}],
    }
    path = shelf.folder / "dataset_description.json"
    path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    rows = ["participant_id\tage\tsex", *(f"sub-{m + 1:03d}\t{20 + m % 60}\tn/a" for m in members)]
    (shelf.folder / "participants.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _columns(motion: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Return the columns of motion24, tissue means and displacement.

    fMRIPrep writes n/a in the first row of every derivative; readers must cope with it.
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


def _as_matrix(shelf: Shelf, m: int, values: Data, rng: np.random.Generator) -> None:
    means = parcel_means(parcels(shelf.scanner.grid), values.astype(np.float64))
    lines = [",".join(f"parcel{p + 1:03d}" for p in range(N_PARCELS))]
    lines += [",".join(f"{value:.5g}" for value in row) for row in means.T]
    path = shelf.folder / f"sub-{m + 1:03d}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _atlas_image(grid: Grid) -> bytes:
    import nibabel as nib

    labels = np.zeros(grid.shape, dtype=np.int16)
    labels[grid.inside] = parcels(grid) + 1
    image = nib.Nifti1Image(labels, grid.affine)
    image.set_sform(grid.affine, code="mni")
    image.header.set_xyzt_units("mm")
    return gzip.compress(image.to_bytes(), compresslevel=6, mtime=0)


_WRITERS: dict[Layout, Callable[[Shelf, int, Data, np.random.Generator], None]] = {
    "files": _as_files,
    "manifest": _as_listed,
    "bids": _as_bids,
    "fmriprep": _as_fmriprep,
    "matrix": _as_matrix,
    "atlas": _as_files,
}
