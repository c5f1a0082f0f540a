"""Non-private maps beside nilearn's CanICA and scikit-learn's FastICA, on the same subjects.

    python bench/peers.py [--json] [--subjects 24] [--timepoints 150] [--networks 6] [--seed 1]
                          [--quick]

Synthetic brains on the 10 mm mask (``cape synth``: smooth noise, subjects that differ), in NIfTI
files.  Every task is a process of its own, so that time and peak memory belong to it; imports are
inside, as for a user.

    cape        `cape.simulate`, four sites, ``private=false computation=capegica``, to files
    canica      nilearn CanICA on all images at once, one job, its defaults but for smoothing (none:
                the data are smooth) and the mask
    fastica     scikit-learn: voxels scaled, subjects' time courses stacked, PCA to R, FastICA

Printed: mean and least |r| of matched maps with the planted ones, seconds, MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TASKS = ("cape", "canica", "fastica")


def matched(maps: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return mean and least |r| of the best pairing; maps (R, D), truth (D, R)."""
    from scipy.optimize import linear_sum_assignment

    with np.errstate(invalid="ignore"):  # an estimator may give an empty map: it is like none
        r = np.corrcoef(maps, truth.T)[: len(maps), len(maps) :]
    r = np.abs(np.nan_to_num(r))
    rows, columns = linear_sum_assignment(-r)
    found = r[rows, columns]
    return float(found.mean()), float(found.min())


def run_task(name: str, folder: Path, n_components: int) -> dict[str, Any]:
    began = time.perf_counter()
    maps = {"cape": cape_maps, "canica": canica_maps, "fastica": fastica_maps}[name](
        folder, n_components
    )
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with np.load(folder / "data" / "truth.npz", allow_pickle=False) as file:
        truth = np.asarray(file["A"])
    mean, least = matched(maps, truth)
    return {"task": name, "r": mean, "least_r": least, "seconds": seconds, "mb": peak}


def images(folder: Path) -> list[str]:
    return [str(path) for path in sorted((folder / "data").glob("*/*.nii*"))]


def mask_image() -> Any:
    import nibabel as nib

    import cape

    return nib.load(Path(cape.__file__).parent / "space" / "masks" / "MNI152-10mm.nii.gz")


def cape_maps(folder: Path, n_components: int) -> np.ndarray:
    import nibabel as nib

    from cape.simulation.run_loop import RunOptions
    from cape.simulation.simulate import simulate

    settings = {
        "private": False, "computation": "capegica", "n_components": n_components,
        "mask": "MNI152-10mm",
    }  # fmt: skip
    out = simulate(folder / "data", RunOptions(out=folder / "out", settings=settings))
    inside = np.asarray(mask_image().dataobj) > 0
    return np.asarray(nib.load(out / "group_maps.nii.gz").dataobj)[inside].T


def canica_maps(folder: Path, n_components: int) -> np.ndarray:
    from nilearn.decomposition import CanICA

    mask = mask_image()
    model = CanICA(
        n_components=n_components, mask=mask, smoothing_fwhm=None, random_state=0, n_jobs=1
    )
    model.fit(images(folder))
    inside = np.asarray(mask.dataobj) > 0
    return np.asarray(model.components_img_.dataobj)[inside].T


def fastica_maps(folder: Path, n_components: int) -> np.ndarray:
    import nibabel as nib
    from sklearn.decomposition import PCA, FastICA

    inside = np.asarray(mask_image().dataobj) > 0
    rows = []
    for path in images(folder):
        series = np.asarray(nib.load(path).dataobj, dtype=np.float32)[inside].T
        series = series - series.mean(axis=0)
        rows.append(series / np.maximum(series.std(axis=0), 1e-9))
    whole = np.concatenate(rows)
    reduced = PCA(n_components, random_state=0).fit(whole).components_  # (R, D)
    ica = FastICA(n_components, random_state=0, whiten="unit-variance", max_iter=1000)
    return np.asarray(ica.fit_transform(reduced.T)).T


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--subjects", type=int, default=24)
    parser.add_argument("--timepoints", type=int, default=150)
    parser.add_argument("--networks", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="8 subjects, 60 volumes, 3 networks")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.subjects, given.timepoints, given.networks = 8, 60, 3
    if given.task:
        sys.stdout.write("\n" + json.dumps(run_task(given.task, given.folder, given.networks)))
        return 0
    from cape.lab.synthetic.consortium import Request, write_consortium

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_consortium(
            folder / "data",
            Request(
                preset="brain",
                n_sites=4,
                n_subjects=given.subjects,
                n_timepoints=given.timepoints,
                n_networks=given.networks,
                seed=given.seed,
            ),
        )
        found = []
        for task in TASKS:
            words = [sys.executable, "-W", "ignore", __file__, "--task", task, "--folder", name,
                     "--networks", str(given.networks)]  # fmt: skip
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    sys.stdout.write(f"{'':10}{'mean r':>8}{'least r':>9}{'s':>8}{'MB':>7}\n")
    for row in found:
        sys.stdout.write(
            f"{row['task']:10}{row['r']:8.3f}{row['least_r']:9.3f}{row['seconds']:8.1f}{row['mb']:7.0f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
