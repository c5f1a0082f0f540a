"""What headers and tables say of space, time and place is believed, or the run is refused.

Belongs to `cape/data/images.py`.
"""

from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data.images import Resampling, read_image
from cape.data.issues import IssueCode, UnusableFile
from cape.data.pipeline import inspect_site
from cape.data.runs import SiteRun
from cape.data.space import Grid, grid_of
from cape.settings.config import Config
from cape.space.feature_space import FeatureSpace

AFFINE = np.array([[4.0, 0, 0, -10], [0, 4.0, 0, -20], [0, 0, 4.0, 7], [0, 0, 0, 1]])
SHIFTED = AFFINE + np.array([[0, 0, 0, 1.5], [0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 0]])
VALUES = np.random.default_rng(0).normal(100, 10, (7, 7, 6, 12)).astype(np.float32)
TO_MASK = Resampling(resample="to_mask")


@pytest.fixture
def grid() -> Grid:
    labels = np.zeros(VALUES.shape[:3], dtype=np.int32)
    labels[2:5, 2:5, 2:4] = 1
    return grid_of(FeatureSpace.of_labels("mask", labels, AFFINE))


def saved(path: Path, affine: np.ndarray, *, sform: int = 2, qform: int = 0) -> SiteRun:
    image = nib.Nifti1Image(VALUES, affine)
    image.set_sform(affine if sform else None, code=sform)
    image.set_qform(affine if qform else None, code=qform)
    nib.save(image, path)
    return SiteRun(path=path, name=path.name)


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("sub-1.nii", {"sform": 1}),
        ("sub-1.nii", {"sform": 0, "qform": 1}),
        ("sub-1.nii", {"sform": 1, "qform": 4}),
        ("sub-1_space-T1w_bold.nii", {"sform": 2}),
        ("sub-1_space-orig_bold.nii", {"sform": 4}),
    ],
)
@pytest.mark.parametrize("how", [TO_MASK, Resampling(), Resampling(resample="within_space")])
def test_an_image_that_says_it_is_native_is_refused_whatever_resample_says(
    tmp_path, grid, name, codes, how
):
    """The remedy of E117 was to_mask, which took voxels of other places of other brains."""
    with pytest.raises(UnusableFile) as caught:
        read_image(saved(tmp_path / name, SHIFTED, **codes), grid, how)
    assert caught.value.issue.code is IssueCode.NATIVE_IMAGE


def test_on_the_grid_of_the_mask_a_code_says_nothing(tmp_path, grid):
    """Programs on ITK write scanner codes whatever the space; no scanner has the mask's grid."""
    assert read_image(saved(tmp_path / "a.nii", AFFINE, sform=1, qform=1), grid).grid == "ok"


@pytest.mark.parametrize(
    ("name", "sform"), [("sub-1_space-MNI152NLin6Asym_bold.nii", 1), ("sub-1.nii", 4)]
)
def test_the_remedy_of_a_native_image_works_as_it_is_printed(tmp_path, grid, name, sform):
    remedy = IssueCode.NATIVE_IMAGE.remedy
    assert "space-MNI152NLin6Asym" in remedy
    assert "sform code 4" in remedy
    known = replace(grid, template_space="MNI152NLin6Asym")
    run = saved(tmp_path / name, SHIFTED, sform=sform)
    how = Resampling(resample="within_space")
    assert read_image(run, known, how).grid == "resampled"


def site_of(folder: Path, affines: list[np.ndarray], *, sform: int) -> list[str]:
    folder.mkdir()
    labels = np.zeros(VALUES.shape[:3], dtype=np.uint8)
    labels[2:5, 2:5, 2:4] = 1
    nib.save(nib.Nifti1Image(labels, AFFINE), folder / "mask.nii.gz")
    for m, affine in enumerate(affines):
        rng = np.random.default_rng(m)
        image = nib.Nifti1Image(VALUES + rng.normal(size=VALUES.shape).astype("f4"), affine)
        image.set_sform(affine, code=sform)
        nib.save(image, folder / f"sub-{m}.nii.gz")
    config = Config(epsilon=1.0, delta=1e-5, mask="file", resample="to_mask", min_timepoints=5)
    config = replace(config, standardize="demean")
    found = inspect_site(folder, {}, config, site="B", headers_only=True)
    return [f"{finding.severity} {finding.private}" for finding in found.findings]


def test_grids_that_differ_from_person_to_person_are_native(tmp_path):
    """Of code 2, which says nothing: what differs is where each brain lay in the scanner."""
    several = [SHIFTED + np.eye(4, k=3) * shift for shift in (0, 2.5, 5)]
    texts = site_of(tmp_path / "native", several, sform=2)
    assert any(t.startswith("E CAPE-E121") and "3 grids" in t for t in texts), texts
    # One grid for all is another resolution of one space, as far as anybody can tell.
    assert not any("CAPE-E121" in t for t in site_of(tmp_path / "one", [SHIFTED] * 3, sform=2))
