"""CPU of understanding a large folder: `cape people`, `cape init` and `cape validate --fast`.

    python bench/people.py [--json] [--people 400] [--repeats 3]

fMRIPrep's tree with 30 files a person, of which one is a preprocessed run of 8 voxels and 120 time
points with its sidecar and table; all others are empty files with the names that stand beside it.
Minimum of the CPU seconds of whole processes, the start of Python inside.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from nibabel.nifti1 import Nifti1Image

N_TIMES = 120
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
RUN = "task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold"
# A person's other files: names alone are read of them.
BESIDE = (
    *(f"anat/{{who}}_{name}" for name in (
        "desc-preproc_T1w.nii.gz", "desc-preproc_T1w.json", "desc-brain_mask.nii.gz",
        "dseg.nii.gz", "label-CSF_probseg.nii.gz", "label-GM_probseg.nii.gz",
        "label-WM_probseg.nii.gz", "space-MNI152NLin2009cAsym_desc-preproc_T1w.nii.gz",
        "space-MNI152NLin2009cAsym_dseg.nii.gz", "hemi-L_pial.surf.gii", "hemi-R_pial.surf.gii",
        "from-MNI152NLin2009cAsym_to-T1w_mode-image_xfm.h5", "hemi-L_sphere.surf.gii",
    )),
    *(f"figures/{{who}}_{name}.svg" for name in (
        "dseg", "task-rest_desc-carpetplot_bold", "task-rest_desc-rois_bold",
        "task-rest_desc-sdc_bold", "desc-reconall_T1w", "desc-conform_T1w",
    )),
    *(f"func/{{who}}_task-rest_{name}" for name in (
        "desc-confounds_timeseries.json", "space-MNI152NLin2009cAsym_boldref.nii.gz",
        "space-MNI152NLin2009cAsym_desc-brain_mask.nii.gz", "desc-hmc_boldref.nii.gz",
        "desc-coreg_boldref.nii.gz", "from-boldref_to-T1w_mode-image_xfm.txt",
        "space-T1w_boldref.nii.gz", "space-fsLR_den-91k_bold.json",
    )),
)  # fmt: skip


def write(folder: Path, n_people: int) -> int:
    """Write the tree; returns how many files it has."""
    rng, affine = np.random.default_rng(0), np.diag([4.0, 4.0, 4.0, 1.0])
    affine[:3, 3] = (-4.0, -4.0, 20.0)
    for person in range(n_people):
        who = f"sub-{person:04d}"
        base = folder / who
        for part in ("anat", "func", "figures"):
            (base / part).mkdir(parents=True)
        for name in BESIDE:
            (base / name.format(who=who)).write_text("{}" if name.endswith(".json") else "")
        values = (100 + rng.standard_normal((2, 2, 2, N_TIMES))).astype(np.float32)
        image = Nifti1Image(values, affine)
        image.set_sform(affine, 4)
        image.header.set_zooms((4.0, 4.0, 4.0, 2.0))
        image.to_filename(base / f"func/{who}_{RUN}.nii.gz")
        (base / f"func/{who}_{RUN}.json").write_text('{"RepetitionTime": 2.0}')
        rows = np.vstack([MOTION, rng.standard_normal((N_TIMES, 6)).astype(str)])
        table = "\n".join("\t".join(row) for row in rows) + "\n"
        (base / f"func/{who}_task-rest_desc-confounds_timeseries.tsv").write_text(table)
    return sum(path.is_file() for path in folder.rglob("*"))


def cpu(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "cape", *arguments], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--people", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder, out = Path(work) / "data", Path(work) / "settings.toml"
        n_files = write(folder, given.people)
        tasks = {
            "start of Python": ["--version"],
            "cape people": ["people", str(folder), "--json"],
            "cape init": ["init", str(folder), "--out", str(out)],
            "cape validate --fast": ["validate", str(folder), "--fast"],
        }
        spent: dict[str, float] = {}
        for name, arguments in tasks.items():
            times = []
            for _ in range(given.repeats):
                if "init" in name:
                    out.unlink(missing_ok=True)
                times.append(cpu(arguments))
            spent[name] = round(min(times), 2)
    found = {"people": given.people, "files": n_files, "cpu_seconds": spent}
    if given.json:
        print(json.dumps(found))
        return
    print(f"{given.people} people, {n_files} files; CPU seconds")
    for name, seconds in spent.items():
        print(f"{name:24}{seconds:8.2f}")


if __name__ == "__main__":
    main()
