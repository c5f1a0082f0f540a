"""Write test/input/: the small consortium of inputspec.json, in COINSTAC's layout.

Three sites of four subjects from ``cape synth``, stored with one byte a voxel (under 3 MB in all,
the mean of a voxel is kept out: only differences matter to an analysis of time courses).  It
shows that everything runs; the maps of twelve subjects are noise.  The same seed, the same files:

    python packaging/make_test_input.py
"""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np

from cape.synthetic import write_consortium

INPUT = Path(__file__).resolve().parents[1] / "test" / "input"
SITES, SUBJECTS, TIMEPOINTS, NETWORKS, SEED = 3, 4, 60, 3, 7


def main() -> None:
    """Make the consortium, store it coarsely, say how large it is."""
    shutil.rmtree(INPUT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "data"
        write_consortium(
            made,
            preset="brain",
            site_sizes=(SUBJECTS,) * SITES,
            n_timepoints=TIMEPOINTS,
            n_networks=NETWORKS,
            seed=SEED,
        )
        number = 0
        for site in range(SITES):
            target = INPUT / f"local{site}" / "simulatorRun"
            target.mkdir(parents=True)
            for image in sorted((made / f"local{site}").glob("*.nii*")):
                number += 1
                store(image, target / f"sub-{number:03d}_bold.nii.gz")
    written = [path.stat().st_size for path in INPUT.rglob("*.nii.gz")]
    sys.stdout.write(f"{INPUT.name}: {len(written)} images, {sum(written) / 1e6:.2f} MB\n")


def store(source: Path, target: Path) -> None:
    """Write an image again with unsigned bytes, and without a time in its archive."""
    image = nib.load(source)
    values = np.asarray(image.dataobj, dtype=np.float32)
    centred = values - values.mean(axis=-1, keepdims=True)
    step = np.abs(centred).max() / 60  # coarser than a byte allows: half the size, still 40 levels
    coarse = np.rint(centred / step) + 128
    stored = nib.Nifti1Image(coarse.astype(np.uint8), image.affine)
    stored.header.set_zooms(image.header.get_zooms())
    stored.header.set_xyzt_units("mm", "sec")
    stored.header.set_qform(image.affine, 4)
    stored.header.set_sform(image.affine, 4)
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as archive:
        archive.write(stored.to_bytes())
    target.write_bytes(raw.getvalue())


if __name__ == "__main__":
    main()
