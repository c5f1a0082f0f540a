"""Make the bundled brain masks `cape/space/masks/MNI152-*mm.nii.gz` from nilearn's MNI152 template.

Run ``python packaging/make_masks.py`` (needs nilearn, no network); ``--check`` compares instead.
The files are byte for byte reproducible: no file name and no time stamp in the gzip header.
"""

from __future__ import annotations

import argparse
import gzip
import io
from pathlib import Path

import nibabel as nib
import numpy as np
from nilearn.datasets import load_mni152_brain_mask

# Voxel size in mm: shape and number of voxels that the published tables are based on.
EXPECTED = {
    10: ((21, 25, 20), 1876),
    8: ((26, 30, 25), 3666),
    6: ((34, 40, 33), 8735),
    4: ((50, 59, 48), 29398),
    3: ((67, 79, 64), 69765),
}
FOLDER = Path(__file__).resolve().parents[1] / "cape" / "masks"


def encode(resolution: int) -> bytes:
    """Return the gzipped NIfTI file of the mask with voxels of `resolution` mm.

    Raises
    ------
    ValueError
        This nilearn makes another mask than the one the tables were measured with.
    """
    template = nib.as_closest_canonical(load_mni152_brain_mask(resolution=resolution))
    inside = np.asarray(template.dataobj) > 0
    found = (inside.shape, int(inside.sum()))
    if found != EXPECTED[resolution]:
        raise ValueError(f"{resolution} mm: found {found}, expected {EXPECTED[resolution]}")
    image = nib.Nifti1Image(inside.astype(np.uint8), np.round(template.affine, 4) + 0.0)
    image.set_sform(image.affine, code="mni")
    image.set_qform(image.affine, code="mni")
    image.header.set_xyzt_units("mm")
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:
        stream.write(image.to_bytes())
    return packed.getvalue()


def main() -> int:
    """Write or check all masks; return 0 when all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = 0
    for resolution in EXPECTED:
        path = FOLDER / f"MNI152-{resolution}mm.nii.gz"
        content = encode(resolution)
        if not check:
            path.write_bytes(content)
        # zlib builds may compress differently: what counts is the image.
        elif gzip.decompress(path.read_bytes()) != gzip.decompress(content):
            stale += 1
        print(f"{path.name}: {len(content)} bytes{' STALE' if stale else ''}")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
