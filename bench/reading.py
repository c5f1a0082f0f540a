"""CPU time and peak memory of reading and resampling one run, beside zlib and nilearn.

    python bench/reading.py [--json] [--timepoints 100] [--fine 20] [--quick]

One run of int16 volumes at 2 mm (97 x 115 x 97, gzip) is brought to the 3 mm mask and cleaned
(linear trend, six confounds, cosines up to .008 Hz, unit variance).  Measured on the same file, in
processes of their own so that a peak belongs to one task, each task `--repeats` times, minimum:

    gunzip     zlib unpacks the file and throws the bytes away: the floor of reading
    read       `cape.data.images.read_image`: voxels of the mask
    general    the same by the form for any grid, whose bits `read` must give
    whole      read, judged and cleaned: `cape.data.subjects.read_subject`
    nilearn    NiftiMasker.fit_transform with the same steps (its interpolation is a cubic spline
               by default and linear here; signal.clean is inside): other work in part

Then one volume, not packed, by the quick form and by the form for any grid: 1 mm
(193 x 229 x 193) to the 1 mm mask half a voxel away.  The file has a head with noise everywhere, as
fMRIPrep writes it; how well it packs is printed, because gunzip is most of the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

# The form for any grid is what tests compare with.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

SHAPES = {2: (97, 115, 97), 1: (193, 229, 193)}
CORNER = (-96.0, -132.0, -78.0)
CONFOUNDS = 6
HIGH_PASS = 0.008
TR = 2.0
TARGETS = {
    "read / gunzip": 1.6,
    "read / nilearn": 0.12,
    "whole / nilearn": 0.30,
    "memory whole / nilearn": 0.35,
    "1 mm read / general": 0.10,
}


def affine(mm: float) -> np.ndarray:
    matrix = np.diag([mm, mm, mm, 1.0])
    matrix[:3, 3] = CORNER
    return matrix


def head(mm: int) -> np.ndarray:
    """Return an ellipsoid of 9,000 in a field of 300, as a scanner would give."""
    axes = [np.linspace(-1, 1, n) / 0.8 for n in SHAPES[mm]]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    return np.where(x**2 + y**2 + z**2 < 1, 9000.0, 300.0).astype(np.float32)


def write_run(folder: Path, mm: int, n_times: int, name: str) -> Path:
    import nibabel as nib

    rng = np.random.default_rng(7)
    still = head(mm)
    values = np.empty((*still.shape, n_times), dtype=np.int16)
    for t in range(n_times):
        noise = rng.standard_normal(still.shape, dtype=np.float32)
        values[..., t] = still + noise * (0.02 * still + 30)
    image = nib.Nifti1Image(values, affine(mm))
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = TR
    nib.save(image, folder / name)
    table = rng.standard_normal((n_times, CONFOUNDS))
    lines = ["\t".join(f"c{k}" for k in range(CONFOUNDS))]
    lines += ["\t".join(f"{v:.6f}" for v in row) for row in table]
    (folder / "confounds.tsv").write_text("\n".join(lines) + "\n")
    return folder / name


# ------------------------------------------------------------------------------- one task each


def peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell the peak memory of a process")


def gunzip(path: Path) -> object:
    engine, total = zlib.decompressobj(31), 0
    with path.open("rb") as raw:
        while block := raw.read(1 << 18):
            total += len(engine.decompress(block))
    return total


def settings() -> Any:
    from cape.settings.config import Config

    columns = ",".join(f"c{k}" for k in range(CONFOUNDS))
    return Config(
        epsilon=1.0,
        delta=1e-5,
        mask="MNI152-3mm",
        resample="to_mask",
        confounds=columns,
        high_pass=HIGH_PASS,
        min_timepoints=3,
    )


def read(path: Path, *, general: bool = False) -> object:
    from cape.data import images
    from cape.data.runs import SiteRun
    from cape.data.space import grid_of, mask_space
    from support import any_grid

    if general:
        vars(images)["_picker"] = any_grid.picker
    grid = grid_of(mask_space(settings()))
    how = images.Resampling(resample="to_mask")
    return images.read_image(SiteRun(path=path, name=path.name), grid, how).values


def whole(path: Path) -> object:
    from cape.data.discovery import SiteListing
    from cape.data.runs import Person, SiteRun
    from cape.data.space import mask_space
    from cape.data.subjects import read_subject

    config = settings()
    listing = SiteListing(site="bench", config=config, listed=(), space=mask_space(config))
    run = SiteRun(path=path, name=path.name, confounds=path.with_name("confounds.tsv"))
    read, parts = read_subject(Person(label="one", runs=(run,)), listing, headers_only=False)
    assert read.subject is not None
    return parts[0]


def nilearn(path: Path) -> object:
    import nibabel as nib
    from nilearn.maskers import NiftiMasker

    from cape.data.space import MASKS

    table = np.loadtxt(path.with_name("confounds.tsv"), skiprows=1)
    # fit_transform hands the steps to signal.clean.
    masker = NiftiMasker(
        mask_img=nib.load(MASKS / "MNI152-3mm.nii.gz"),
        target_affine=nib.load(MASKS / "MNI152-3mm.nii.gz").affine,
        target_shape=nib.load(MASKS / "MNI152-3mm.nii.gz").shape,
        standardize="zscore_sample",
        detrend=True,
        high_pass=HIGH_PASS,
        t_r=TR,
        clean_args={"filter": "cosine"},
    )
    return masker.fit_transform(str(path), confounds=table)


TASKS = {
    "gunzip": gunzip,
    "read": read,
    "general": lambda path: read(path, general=True),
    "whole": whole,
    "nilearn": nilearn,
}


def child(task: str, path: Path, repeats: int) -> None:
    import warnings

    warnings.simplefilter("ignore")
    seconds, result = [], None
    for _ in range(repeats):
        began = time.process_time()
        result = TASKS[task](path)
        seconds.append(time.process_time() - began)
    digest = zlib.crc32(np.ascontiguousarray(result).data) if task in ("read", "general") else 0
    # The first time pays for the imports, the least of several does not.
    print(json.dumps({"s": min(seconds), "MB": peak_mb(), "crc": digest}))


def measure(task: str, path: Path, repeats: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", task, str(path), "--repeats", str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{task}: {done.stderr[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def one_volume(
    mm: int, affine_of_image: np.ndarray, grid: Any, n_times: int, fwhm: float = 0.0
) -> tuple[float, float]:
    """Return CPU seconds a volume of `mm` takes, by the quick form and by the general one."""
    from cape.data import images
    from support import any_grid

    rng = np.random.default_rng(8)
    stored = (head(mm) + 100 * rng.standard_normal(SHAPES[mm], dtype=np.float32)).astype(np.int16)
    layout = images._Layout(
        shape=(*SHAPES[mm], 1), dtype=stored.dtype, offset=0, slope=1.0, inter=0.0
    )
    alignment = images.Alignment(index=None, word="resampled", affine=affine_of_image)
    how = images.Resampling(resample="to_mask", smoothing_fwhm=fwhm)
    flat = stored.ravel(order="F")
    values, seconds = [], []
    for make in (images._picker, any_grid.picker):
        pick = make(layout, alignment, grid, how)
        times = []
        for _ in range(n_times):
            began = time.process_time()
            picked = grid.gather(pick(flat))
            times.append(time.process_time() - began)
        values.append(picked)
        seconds.append(min(times))
    assert np.array_equal(*values)
    return seconds[0], seconds[1]


def fine(n_times: int) -> tuple[float, float]:
    from cape.data.space import grid_of
    from cape.space.feature_space import FeatureSpace

    moved = affine(1)
    moved[:3, 3] += 0.5
    grid = grid_of(FeatureSpace.of_labels("mask", (head(1) > 1000).astype(np.int32), moved))
    return one_volume(1, affine(1), grid, n_times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timepoints", type=int, default=100)
    parser.add_argument("--fine", type=int, default=3, help="times that a 1 mm volume is read")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20 volumes, each task once")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FILE"))
    given = parser.parse_args()
    if given.quick:
        given.timepoints, given.fine, given.repeats = 20, 1, 1
    if given.child:
        child(given.child[0], Path(given.child[1]), given.repeats)
        return
    with tempfile.TemporaryDirectory() as name:
        path = write_run(Path(name), 2, given.timepoints, "run.nii.gz")
        packed = path.stat().st_size / (np.prod(SHAPES[2]) * 2.0 * given.timepoints)
        rows = {task: measure(task, path, given.repeats) for task in TASKS}
    assert rows["read"]["crc"] == rows["general"]["crc"], "not the bits of the general form"
    quick, slow = fine(given.fine)
    ratios = {
        "read / gunzip": rows["read"]["s"] / rows["gunzip"]["s"],
        "read / general": rows["read"]["s"] / rows["general"]["s"],
        "read / nilearn": rows["read"]["s"] / rows["nilearn"]["s"],
        "whole / nilearn": rows["whole"]["s"] / rows["nilearn"]["s"],
        "memory whole / nilearn": rows["whole"]["MB"] / rows["nilearn"]["MB"],
        "1 mm read / general": quick / slow,
    }
    try:
        import isal  # noqa: F401

        engine = "isal"
    except ImportError:
        engine = "zlib"
    if given.json:
        print(json.dumps({"engine": engine, "packed": packed, "tasks": rows, "ratios": ratios}))
        return
    print(f"{given.timepoints} volumes, packed to {packed:.2f}; unpacked by {engine}\n")
    print("| task | CPU s | peak MB |\n|---|---|---|")
    for task, row in rows.items():
        print(f"| {task} | {row['s']:.2f} | {row['MB']:.0f} |")
    print("\n| ratio | measured | target | met |\n|---|---|---|---|")
    for ratio, value in ratios.items():
        target = TARGETS.get(ratio)
        met = "" if target is None else "yes" if value <= target else "no"
        print(f"| {ratio} | {value:.3f} | {'' if target is None else target} | {met} |")


if __name__ == "__main__":
    main()
