"""A site with derivatives of fMRIPrep, as small as they can be: people whose heads moved."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np

from cape.settings.config import Config

TR, T = 2.0, 60
STEM = "sub-{m:02d}_task-rest"
CONFIG = Config(
    epsilon=1.0, delta=1e-5, mask="file", n_basis=4, min_timepoints=20, detrend="linear",
    standardize="demean", resample="to_mask", bids_filter="task-rest",
    confound_strategy="motion=basic,wm_csf=basic,scrub=0", fd_threshold=0.5, dvars_threshold=99.0,
)  # fmt: skip
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
COLUMNS = (*MOTION, "csf", "white_matter", "framewise_displacement", "std_dvars")


def site(folder: Path, moved: list[int], tr: float = TR) -> np.ndarray:
    """Write a person a number, of volumes that moved by 1 mm; return images and tables."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    affine = np.diag([8.0, 8, 8, 1])
    mask = nib.Nifti1Image(np.ones((4, 5, 3), dtype=np.uint8), affine)
    mask.to_filename(folder / "mask.nii.gz")
    every = []
    for m, n in enumerate(moved):
        place = folder / f"sub-{m:02d}" / "func"
        place.mkdir(parents=True)
        table = rng.standard_normal((T, len(COLUMNS)))
        fd = np.full(T, 0.1)
        start = min(20, T - n)
        fd[start : start + n] = 1.0
        table[:, -2], table[:, -1] = fd, 1.0
        values = rng.normal(900, 30, (4, 5, 3, T)).astype(np.float32)
        values += 20 * table[:, 0].astype(np.float32)
        values[..., start : start + n] += 500  # what scrubbing has to keep out
        image = nib.Nifti1Image(values, affine)
        image.header.set_xyzt_units("mm", "sec")
        name = place / f"{STEM.format(m=m)}_space-MNI152NLin6Asym_desc-preproc_bold"
        image.to_filename(f"{name}.nii.gz")
        Path(f"{name}.json").write_text(json.dumps({"RepetitionTime": tr}))
        cells = [[f"{value:.8f}" for value in row] for row in table]
        cells[0][-2] = "n/a"
        rows = ["\t".join(COLUMNS), *("\t".join(row) for row in cells)]
        (place / f"{STEM.format(m=m)}_desc-confounds_timeseries.tsv").write_text("\n".join(rows))
        (place / f"{STEM.format(m=m)}_desc-confounds_timeseries.json").write_text("{}")
        every.append((values.reshape(-1, T), table))
    return every
