"""Memory and time of a whole site beside what `cape validate` forecasts from its headers.

    python bench/site_memory.py [--mm 1] [--volumes 200] [--subjects 1] [--mask file|MNI152-4mm]

Writes a site of one run a person (int16, on the grid of MNI152NLin2009cAsym at --mm, not packed:
gunzip is measured by bench/reading.py), then, each in a process of its own: the forecast from
headers, `load_site` with one reader and with two, and once more with a full cache.  ``--mask file``
is a brain of the grid itself (1.8 million voxels at 1 mm).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from reading import SHAPES, TR, affine, head, peak_mb


def brain_of(mm: int) -> np.ndarray:
    """Return an ellipsoid within the head: 1.8 million voxels at 1 mm."""
    axes = [np.linspace(-1, 1, n) / 0.742 for n in SHAPES[mm]]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    return x**2 + y**2 + z**2 < 1


def write_site(folder: Path, mm: int, n_times: int, n_people: int) -> None:
    import nibabel as nib

    rng = np.random.default_rng(5)
    still = head(mm)
    brain = nib.Nifti1Image(brain_of(mm).astype(np.uint8), affine(mm))
    brain.set_sform(affine(mm), code=4)
    brain.to_filename(folder / "mask.nii.gz")
    noise = (100 * rng.standard_normal((8, *still.shape), dtype=np.float32)).astype(np.int16)
    for m in range(n_people):
        header = nib.Nifti1Header()
        header.set_data_dtype(np.int16)
        header.set_data_shape((*still.shape, n_times))
        header.set_xyzt_units("mm", "sec")
        header["pixdim"][1:5] = (mm, mm, mm, TR)
        header.set_sform(affine(mm), code=4)
        header["vox_offset"], header["magic"] = 352, b"n+1"
        with (folder / f"sub-{m + 1:03d}_bold.nii").open("wb") as file:
            file.write(header.binaryblock + bytes(4))
            for t in range(n_times):
                # Eight volumes of noise in changing weights: quick, and no two volumes are alike.
                volume = still + noise[t % 8] * rng.uniform(0.5, 1.5) + noise[(t // 8 + m) % 8]
                file.write(volume.astype(np.int16).tobytes(order="F"))


def config(mask: str) -> Any:
    from cape.computations.capegica import CapeGicaConfig

    return CapeGicaConfig(epsilon=1.0, delta=1e-5, mask=mask)


def child(task: str, folder: Path, mask: str) -> None:
    from cape.data.pipeline import inspect_site, load_site

    began, cpu = time.monotonic(), time.process_time()
    if task == "forecast":
        needs = inspect_site(folder, {}, config(mask), site="bench", headers_only=True).needs
        assert needs is not None
        print(json.dumps({"MB": needs.memory / 1e6}))
        return
    site, _ = load_site(folder, {}, config(mask), site="bench")
    assert not site.failed, site.findings
    seconds = time.monotonic() - began
    figures = {"MB": peak_mb() * 1.048576, "s": seconds, "cpu": time.process_time() - cpu}
    print(json.dumps(figures))


def measure(task: str, folder: Path, mask: str, **more: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", task, str(folder), "--mask", mask]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **more}
    )
    if done.returncode:
        raise RuntimeError(f"{task}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mm", type=int, default=2, choices=(1, 2))
    parser.add_argument("--volumes", type=int, default=250)
    parser.add_argument("--subjects", type=int, default=2)
    parser.add_argument("--mask", default="MNI152-4mm")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FOLDER"))
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]), given.mask)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name) / "site", str(Path(name) / "cache")
        folder.mkdir()
        write_site(folder, given.mm, given.volumes, given.subjects)
        for jobs in ("1", "2"):
            forecast = measure("forecast", folder, given.mask, CAPE_JOBS=jobs)
            kept = {"CAPE_CACHE": cache} if jobs == "2" else {}
            found = measure("load", folder, given.mask, CAPE_JOBS=jobs, **kept)
            print(
                f"{jobs} readers: {found['MB']:.0f} MB, forecast {forecast['MB']:.0f} "
                f"({forecast['MB'] / found['MB']:.2f}); {found['s']:.1f} s, "
                f"CPU {found['cpu']:.1f} s",
                flush=True,
            )
        again = measure("load", folder, given.mask, CAPE_JOBS="1", CAPE_CACHE=cache)
        print(f"again: {again['MB']:.0f} MB, {again['s']:.2f} s, CPU {again['cpu']:.2f} s")


if __name__ == "__main__":
    main()
