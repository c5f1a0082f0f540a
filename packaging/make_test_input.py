"""Write test/input/ and those of compspecs/*/: small consortia in COINSTAC's layout.

Three sites of four subjects from ``cape synth``, stored with one byte a voxel (under 3 MB in all,
the mean of a voxel is kept out: only differences matter to an analysis of time courses).  It
shows that everything runs; the maps of twelve subjects are noise.  What is mapped stands in
``test/inputspec.json``, written by hand like the sites' policies.  The same seed, the same files:

    python packaging/make_test_input.py
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from cape.computations import names
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.settings.config import FRONT

ROOT = Path(__file__).resolve().parents[1]
SITES, SUBJECTS, TIMEPOINTS, NETWORKS, SEED = 3, 4, 60, 3, 7
# Of the other computations: columns of a table of people, features of a matrix
COLUMNS, FEATURES = 8, 12


def main() -> None:
    """Make the consortia."""
    for name in names():
        test = ROOT / ("" if name == FRONT else f"compspecs/{name}") / "test"
        sites = json.loads((test / "inputspec.json").read_text(encoding="utf-8"))
        if sites[0]["data"]["value"] == ["participants.tsv"]:
            continue  # capecontrast: nothing here makes its tables of people
        for old in (test / "input").glob("local*/simulatorRun/*"):
            if old.name != "site-policy.toml":
                old.unlink()
        if sites[0]["data"]["value"][0].endswith(".nii.gz"):
            write_images(test / "input")
        else:
            write_numbers(test / "input", sites)


def write_images(folder: Path) -> None:
    """Write one image a subject, coarsely, and say how large they are."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "data"
        write_consortium(
            made,
            Request(
                preset="brain",
                site_sizes=(SUBJECTS,) * SITES,
                n_timepoints=TIMEPOINTS,
                n_networks=NETWORKS,
                seed=SEED,
            ),
        )
        number = 0
        for site in range(SITES):
            target = folder / f"local{site}" / "simulatorRun"
            target.mkdir(parents=True, exist_ok=True)
            for image in sorted((made / f"local{site}").glob("*.nii*")):
                number += 1
                store(image, target / f"sub-{number:03d}_bold.nii.gz")
    written = [path.stat().st_size for path in folder.rglob("*.nii.gz")]
    sys.stdout.write(f"{folder}: {len(written)} images, {sum(written) / 1e6:.2f} MB\n")


def write_numbers(folder: Path, sites: list[dict[str, Any]]) -> None:
    """Write what the inputspec of a computation maps: a table of people, or a matrix a subject."""
    random = np.random.default_rng(SEED)
    mixing = random.standard_normal((FEATURES, NETWORKS))
    for site, inputs in enumerate(sites):
        target = folder / f"local{site}" / "simulatorRun"
        target.mkdir(parents=True, exist_ok=True)
        for file in inputs["data"]["value"]:
            if file == "records.csv":
                people = [f"sub-{SUBJECTS * site + i + 1:03d}" for i in range(SUBJECTS)]
                scores = random.standard_normal((SUBJECTS, COLUMNS))
                lines = [",".join(("subject", *(f"score_{j + 1}" for j in range(COLUMNS))))]
                rows = zip(people, scores, strict=True)
                lines += [",".join((person, *(f"{v:.3f}" for v in row))) for person, row in rows]
                (target / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
                continue
            if file == "templates.npy":  # public maps that the networks differ from
                np.save(target / file, np.round(mixing).astype(np.float32))
                continue
            courses = random.laplace(size=(NETWORKS, TIMEPOINTS))
            noise = 0.3 * random.standard_normal((FEATURES, TIMEPOINTS))
            np.save(target / file, (mixing @ courses + noise).astype(np.float32))


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
