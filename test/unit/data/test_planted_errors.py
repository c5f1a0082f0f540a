"""Mistakes of preprocessing, planted in a tree of fMRIPrep: each ends in one clear finding.

Belongs to `cape/data/checks.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data.pipeline import inspect_site
from cape.settings.config import Config
from support.prepared_tree import CONFIG, TR, site

SPACE = "MNI152NLin6Asym"
STUDY = replace(
    CONFIG, space=SPACE, resample="within_space", tr=TR, max_mean_fd=0.9,
    bids_filter=f"task-rest_space-{SPACE}_desc-preproc",
)  # fmt: skip


def bold(folder: Path) -> Path:
    return next((folder / "sub-01").rglob("*_bold.nii.gz"))


def renamed(folder: Path, space: str) -> None:
    for path in list((folder / "sub-01").rglob("*_bold.*")):
        path.rename(path.with_name(path.name.replace(SPACE, space)))


def rewritten(folder: Path, change: Callable[[nib.Nifti1Image], nib.Nifti1Image]) -> None:
    image = nib.load(bold(folder))
    change(nib.Nifti1Image(np.asarray(image.dataobj), image.affine, image.header)).to_filename(
        bold(folder)
    )


def native(image: nib.Nifti1Image) -> nib.Nifti1Image:
    # The name says MNI, the head lies elsewhere: outside the mask there is nothing.
    values = np.zeros(image.shape, dtype=np.float32)
    values[:1] = np.asarray(image.dataobj)[:1]
    return nib.Nifti1Image(values, image.affine, image.header)


def flipped(image: nib.Nifti1Image) -> nib.Nifti1Image:
    mirrored = image.affine @ np.diag([-1.0, 1, 1, 1])
    image.set_sform(image.affine, code=4)
    image.set_qform(mirrored, code=4)
    return image


def scrubbed(folder: Path) -> None:
    moved(folder, 0.6)


def moved(folder: Path, mm: float) -> None:
    table = next((folder / "sub-01").rglob("*timeseries.tsv"))
    header, *rows = table.read_text().splitlines()
    column = header.split("\t").index("framewise_displacement")
    cells = [row.split("\t") for row in rows]
    for row in cells[1:]:
        row[column] = f"{mm:g}"
    table.write_text("\n".join([header, *("\t".join(row) for row in cells)]))


def in_milliseconds(folder: Path) -> None:
    bold(folder).with_name(bold(folder).name.replace(".nii.gz", ".json")).write_text(
        json.dumps({"RepetitionTime": 1000 * TR})
    )


PLANTED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "wrong space": (
        lambda folder: renamed(folder, "T1w"),
        "CAPE-W104", "A subject of the BIDS folder has no image that fits bids_filter"),
    "other template": (
        lambda folder: renamed(folder, "MNIPediatricAsym"),
        "CAPE-W104", "A subject of the BIDS folder has no image that fits bids_filter"),
    "not in the space of its name": (
        lambda folder: rewritten(folder, native), "CAPE-W128", "does not cover the mask"),
    "scrubbed to nothing": (scrubbed, "CAPE-W165", "Scrubbing leaves too little of a subject"),
    "FD above the limit": (
        lambda folder: moved(folder, 1.2), "CAPE-W166", "moved more than the limit. sub-01: 1.20"),
    "left and right flipped": (
        lambda folder: rewritten(folder, flipped),
        "CAPE-W116", "The two affines of an image disagree about left and right"),
    "TR in ms": (in_milliseconds, "CAPE-W133", "2000 in the JSON sidecar"),
    "all NaN": (
        lambda folder: rewritten(
            folder, lambda i: nib.Nifti1Image(np.full(i.shape, np.nan), i.affine, i.header)),
        "CAPE-W125", "A subject is NaN everywhere"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "site"
    site(folder, [0] * 12)
    return folder


def found(folder: Path, config: Config) -> list[tuple[str, str]]:
    # Twelve people, one of whom fails: not so many that the site should stop.
    inspection = inspect_site(folder, {}, config, site="B")
    assert inspection.accepted is not None, inspection.error
    return [(f.code, f.private) for f in inspection.findings if f.code != "CAPE-W123"]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_one_clear_finding(tree, tmp_path, name):
    plant, code, words = PLANTED[name]
    folder = shutil.copytree(tree, tmp_path / "site")
    assert found(folder, STUDY) == []
    plant(folder)
    findings = found(folder, STUDY)
    assert [c for c, _ in findings] == [code], findings
    assert words in findings[0][1]
    assert "sub-01" in findings[0][1]


def test_an_image_of_another_template_in_a_plain_list_is_said_to_be_that(tree, tmp_path):
    """Without a filter by name the image itself is looked at."""
    folder = shutil.copytree(tree, tmp_path / "site")
    renamed(folder, "MNIPediatricAsym")
    ((code, text),) = found(folder, replace(STUDY, bids_filter="task-rest_desc-preproc"))
    assert code == "CAPE-W119"
    assert f"of MNIPediatricAsym. Expected images of {SPACE}" in text
