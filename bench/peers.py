"""Maps without privacy beside nilearn's and scikit-learn's, on the same people.

    python bench/peers.py [--json] [--studies named,two-sided,nilearn,fmrisim] [--people 20,60]
                          [--seeds 1,2,3] [--timepoints 150] [--components 20] [--real PATH]
                          [--quick]

Studies are those of `peer_studies`, in NIfTI files of four sites.  Every task is a process of its
own, so that time and peak memory belong to it; imports are inside, as for a user.  All of them look
for the same number of components.

    cape        `cape.Consortium`, four sites, ``private=False``, defaults
    canica      nilearn CanICA on all images at once, one job, its defaults but for smoothing (none:
                the data are smooth) and the mask
    dictionary  nilearn DictLearning, the same
    fastica     scikit-learn: voxels scaled, people's time courses stacked, PCA to R, FastICA
    ... +gs     the same with each person's mean over the mask regressed out, as cape does

r of a planted map is |r| with its partner, the best pairing; a network is lost below .5.  Without
``fmrisim`` installed, that study is left out.  ``--real``: real images; r is that of the maps of
two halves of the people (one of ``--seeds`` draws them).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

STUDIES = ("named", "two-sided", "nilearn", "fmrisim")
TASKS = ("cape", "canica", "dictionary", "fastica", "canica+gs", "dictionary+gs", "fastica+gs")
SITES, LOST = 4, 0.5


def matched(maps: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return |r| of each planted map with its partner; maps (R, D), truth (D, K)."""
    from scipy.optimize import linear_sum_assignment

    with np.errstate(invalid="ignore"):  # an estimator may give an empty map: it is like none
        r = np.corrcoef(maps, truth.T)[: len(maps), len(maps) :]
    r = np.abs(np.nan_to_num(r))
    rows, columns = linear_sum_assignment(-r)
    found = np.zeros(truth.shape[1])
    found[columns] = r[rows, columns]
    return found


def run_task(name: str, folder: Path, n_components: int) -> dict[str, Any]:
    began = time.perf_counter()
    kind, _, cleaned = name.partition("+")
    peers = {"canica": canica_maps, "dictionary": dictionary_maps, "fastica": fastica_maps}
    if kind == "cape":
        maps = cape_maps(folder, n_components)
    else:
        maps = peers[kind](images(folder, regress=bool(cleaned)), n_components)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.save(folder / f"{name}.npy", maps)
    return {"task": name, "seconds": seconds, "mb": peak}


def images(folder: Path, *, regress: bool) -> list[Any]:
    import nibabel as nib
    from nilearn.masking import apply_mask, unmask

    read, mask = (
        [nib.load(path) for path in sorted((folder / "data").glob("*/*.nii"))],
        mask_image(),
    )
    if not regress:
        return read
    cleaned = []
    for image in read:
        X = apply_mask(image, mask)  # (T, D)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
        signal = X.mean(axis=1)
        X -= np.outer(signal, signal @ X / (signal @ signal))
        cleaned.append(unmask(X, mask))
    return cleaned


def mask_image() -> Any:
    import nibabel as nib

    import cape

    return nib.load(Path(cape.__file__).parent / "space" / "masks" / "MNI152-10mm.nii.gz")


def cape_maps(folder: Path, n_components: int) -> np.ndarray:
    import cape
    from cape.algorithms.component_order import above_background

    sites = {path.name: path for path in sorted((folder / "data").iterdir())}
    settings = {"mask": "MNI152-10mm", "n_components": n_components}
    result = cape.Consortium(sites).run(private=False, settings=settings)
    return above_background(result.maps).T  # as in the file that a run writes


def canica_maps(read: list[Any], n_components: int) -> np.ndarray:
    from nilearn.decomposition import CanICA

    return of_nilearn(CanICA, read, n_components)


def dictionary_maps(read: list[Any], n_components: int) -> np.ndarray:
    from nilearn.decomposition import DictLearning

    return of_nilearn(DictLearning, read, n_components)


def of_nilearn(kind: Any, read: list[Any], n_components: int) -> np.ndarray:
    mask = mask_image()
    model = kind(
        n_components=n_components, mask=mask, smoothing_fwhm=None, random_state=0, n_jobs=1
    )
    model.fit(read)
    inside = np.asarray(mask.dataobj) > 0
    return np.asarray(model.components_img_.dataobj)[inside].T


def fastica_maps(read: list[Any], n_components: int) -> np.ndarray:
    from sklearn.decomposition import PCA, FastICA

    inside = np.asarray(mask_image().dataobj) > 0
    rows = []
    for image in read:
        series = np.asarray(image.dataobj, dtype=np.float32)[inside].T
        series = series - series.mean(axis=0)
        rows.append(series / np.maximum(series.std(axis=0), 1e-9))
    reduced = PCA(n_components, random_state=0).fit(np.concatenate(rows)).components_  # (R, D)
    ica = FastICA(n_components, random_state=0, whiten="unit-variance", max_iter=1000)
    return np.asarray(ica.fit_transform(reduced.T)).T


# -- studies ---------------------------------------------------------------------------------------


def write_study(folder: Path, name: str, n_people: int, n_times: int, seed: int) -> np.ndarray:
    import nibabel as nib

    from peer_studies import study

    truth, person = study(name, seed, n_times)
    mask = mask_image()
    inside = np.asarray(mask.dataobj) > 0
    for m in range(n_people):
        site = folder / "data" / f"site{m % SITES}"
        site.mkdir(parents=True, exist_ok=True)
        volumes = np.zeros((*inside.shape, n_times), dtype=np.float32)
        volumes[inside] = person(m)
        image = nib.Nifti1Image(volumes, mask.affine)
        image.header.set_zooms((*image.header.get_zooms()[:3], 2.0))
        image.header.set_xyzt_units("mm", "sec")
        image.set_sform(mask.affine, code="mni")
        nib.save(image, site / f"sub-{m:03d}.nii")
    return truth


def halves_of(folder: Path, real: Path, seed: int) -> None:
    """Link the images of two halves of real people, by their names, into two sets of sites."""
    paths = sorted(real.rglob("*.nii"))
    order = np.random.default_rng(seed).permutation(len(paths))
    for place, k in enumerate(order):
        half = folder / ("one" if place % 2 else "other")
        site = half / "data" / f"site{place // 2 % SITES}"
        site.mkdir(parents=True, exist_ok=True)
        (site / paths[k].name).symlink_to(paths[k].resolve())


def tasks_of(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for task in given.tasks:
        words = [sys.executable, "-W", "ignore", __file__, "--task", task, "--folder", str(folder),
                 "--components", str(given.components)]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{task}: {done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return rows


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    names = [n for n in given.studies if n != "fmrisim" or find_spec("brainiak") is not None]
    for name, n_people, seed in (
        (name, n, seed) for seed in given.seeds for n in given.people for name in names
    ):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            truth = write_study(folder, name, n_people, given.timepoints, seed)
            for row in tasks_of(folder, given):
                r = matched(np.load(folder / f"{row['task']}.npy"), truth)
                shown = {"study": name, "people": n_people, "seed": seed, **row,
                         "r": float(r.mean()), "least_r": float(r.min()),
                         "each": [round(float(x), 3) for x in r]}  # fmt: skip
                rows.append(shown)
                print(json.dumps(shown), file=sys.stderr, flush=True)
    return rows


def measure_real(given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as place:
            halves_of(Path(place), given.real, seed)
            both = [tasks_of(Path(place) / half, given) for half in ("one", "other")]
            for row, other in zip(*both, strict=True):
                one, two = (
                    np.load(Path(place) / half / f"{row['task']}.npy") for half in ("one", "other")
                )
                r = matched(one, two.T)
                seconds = row["seconds"] + other["seconds"]
                rows.append({**row, "study": "real", "seed": seed, "seconds": seconds,
                             "r": float(r.mean()), "least_r": float(r.min()),
                             "each": r.tolist()})  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':15}{'runs':>5}{'mean r':>8}{'se':>6}{'worst':>7}{'lost':>6}{'s':>7}{'MB':>6}"]
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        r = np.array([row["r"] for row in mine])
        lost = sum(x < LOST for row in mine for x in row["each"])
        se = r.std(ddof=1) / np.sqrt(len(r)) if len(r) > 1 else 0.0
        seconds, mb = (float(np.median([row[k] for row in mine])) for k in ("seconds", "mb"))
        lines.append(f"{task:15}{len(r):5}{r.mean():8.3f}{se:6.3f}{r.min():7.3f}{lost:6}"
                     f"{seconds:7.1f}{mb:6.0f}")  # fmt: skip
    return "\n".join(lines) + "\n"


def listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--studies", type=listed, default=STUDIES)
    parser.add_argument("--tasks", type=listed, default=TASKS)
    parser.add_argument("--people", type=numbers, default=(20, 60))
    parser.add_argument("--seeds", type=numbers, default=(1, 2, 3))
    parser.add_argument("--timepoints", type=int, default=150)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--real", type=Path, help="folder with images of real people")
    parser.add_argument("--quick", action="store_true", help="8 people, 100 volumes, 1 study")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        found = run_task(given.task, given.folder, given.components)
        sys.stdout.write("\n" + json.dumps(found))
        return 0
    if given.quick:
        given.studies, given.people, given.seeds = ("named",), (8,), (1,)
        given.timepoints, given.components, given.tasks = 100, 6, TASKS[:4]
    rows = measure(given) if given.real is None else measure_real(given)
    sys.stdout.write(json.dumps(rows) + "\n" if given.json else summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
