"""Reading images and masks: against nibabel, against the same image stored in another way."""

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data.images import read_image
from cape.data.issues import IssueCode, UnusableFile
from cape.data.runs import SiteRun
from cape.data.space import Grid, grid_of, mask_space
from cape.errors import DataError
from cape.protocol.messages import FeatureSpace
from cape.settings.config import Config

CONFIG = Config(epsilon=1.0, delta=1e-5)
BUNDLED = {
    10: ((21, 25, 20), 1876, "-98 -134 -72"),
    8: ((26, 30, 25), 3666, "-98 -134 -72"),
    6: ((34, 40, 33), 8735, "-98 -134 -72"),
    4: ((50, 59, 48), 29398, "-98 -134 -72"),
    3: ((67, 79, 64), 69765, "-98 -134 -72"),
}
AFFINE = np.array([[4.0, 0, 0, -10], [0, 5.0, 0, -20], [0, 0, 6.0, 7], [0, 0, 0, 1]])


@pytest.fixture
def grid() -> Grid:
    labels = np.zeros((5, 6, 4), dtype=np.int32)
    labels[1:4, 1:5, 1:3] = 1
    return grid_of(FeatureSpace.of_labels("mask", labels, AFFINE))


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(100, 10, (5, 6, 4, 12)).astype(np.float32)


def run_of(path: Path, **given: object) -> SiteRun:
    return SiteRun(path=path, name=path.name, **given)


def save(path: Path, image: nib.spatialimages.SpatialImage) -> SiteRun:
    nib.save(image, path)
    return run_of(path)


@pytest.mark.parametrize("mm", BUNDLED)
def test_bundled_masks_are_those_of_the_published_table(mm):
    space = mask_space(replace(CONFIG, mask=f"MNI152-{mm}mm"))
    grid = grid_of(space)
    shape, n_voxels, origin = BUNDLED[mm]
    assert (space.kind, space.shape, space.n_features) == ("mask", shape, n_voxels)
    assert int(grid.inside.sum()) == n_voxels
    np.testing.assert_array_equal(grid.affine[:3, 3], np.array(origin.split(), dtype=float))
    assert grid.voxel_size == mm


def test_the_digest_of_the_default_mask_never_changes():
    digest = "e288b4fef81c7c8f0458bae1265def954ea7b606a1da69f8893627bc7d6ce15c"
    assert mask_space(CONFIG).digest == digest


def mask_file(folder: Path, values: np.ndarray, name: str = "mask.nii.gz") -> Path:
    nib.save(nib.Nifti1Image(values, AFFINE), folder / name)
    return folder


def test_a_mask_stored_with_other_axes_has_the_same_digest(tmp_path):
    mask = (np.random.default_rng(1).random((5, 6, 4)) > 0.5).astype(np.uint8)
    image = nib.Nifti1Image(mask, AFFINE)
    digests = set()
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1, -1), repeat=3):
            turn = np.array(list(zip(order, signs, strict=True)))
            nib.save(image.as_reoriented(turn), tmp_path / "mask.nii")
            digests.add(mask_space(replace(CONFIG, mask="file"), tmp_path).digest)
    assert len(digests) == 1


def test_a_missing_mask_and_another_mask_than_the_owners_are_told_apart(tmp_path):
    config = replace(CONFIG, mask="file")
    with pytest.raises(DataError, match="CAPE-E101"):
        mask_space(config, tmp_path, site="B")
    mask_file(tmp_path, np.eye(3)[:, :, None].repeat(3, axis=2))
    digest = mask_space(config, tmp_path).digest
    assert mask_space(replace(config, mask_hash=digest.upper()), tmp_path).digest == digest
    with pytest.raises(DataError, match="CAPE-E124") as caught:
        mask_space(replace(config, mask_hash="0" * 64), tmp_path, site="B")
    assert digest in caught.value.detail
    assert "0" * 64 in caught.value.detail


def test_what_sha256sum_prints_of_the_owners_file_pins_the_mask_and_the_atlas(tmp_path):
    # An owner did so, as the manual said, and every site with the right file was refused.
    values = np.eye(3)[:, :, None].repeat(3, axis=2)
    for config, name in (
        (replace(CONFIG, mask="file"), "mask.nii.gz"),
        (replace(CONFIG, feature_space="atlas", basis="none"), "atlas.nii.gz"),
    ):
        path = mask_file(tmp_path, values, name) / name
        pinned = replace(config, mask_hash=hashlib.sha256(path.read_bytes()).hexdigest())
        assert mask_space(pinned, tmp_path) == mask_space(config, tmp_path)
        mask_file(tmp_path, values[::-1] * 1, name)
        with pytest.raises(DataError) as caught:
            mask_space(pinned, tmp_path)
        assert "the SHA-256 of the file or the hash that cape" in caught.value.detail


def test_a_mask_that_is_too_large_names_a_workable_one(tmp_path):
    mask_file(tmp_path, np.ones((126, 126, 126), dtype=np.uint8))
    with pytest.raises(DataError, match="use a grid of 1 mm or coarser") as caught:
        mask_space(replace(CONFIG, mask="file"), tmp_path)
    assert caught.value.code == "CAPE-E145"


@pytest.mark.parametrize("written", [np.int16, lambda labels: labels * np.float32(1.00002)])
def test_an_atlas_gives_parcel_means_in_the_order_of_its_labels(tmp_path, values, written):
    """Programs that resample an atlas write 7.00014 for 7."""
    labels = np.zeros((5, 6, 4), dtype=np.int16)
    labels[1:3], labels[3:5, :2] = 7, 2
    nib.save(nib.Nifti1Image(written(labels), AFFINE), tmp_path / "dk.nii.gz")
    space = mask_space(replace(CONFIG, feature_space="atlas", atlas="dk.nii.gz"), tmp_path)
    assert (space.kind, space.n_features) == ("atlas", 2)
    series = read_image(save(tmp_path / "s.nii", nib.Nifti1Image(values, AFFINE)), grid_of(space))
    expected = [values[labels == 2].mean(axis=0), values[labels == 7].mean(axis=0)]
    np.testing.assert_allclose(series.values, expected, rtol=1e-6)


def test_an_atlas_of_probabilities_is_refused(tmp_path):
    mask_file(tmp_path, np.full((3, 3, 3), 0.5), "atlas.nii.gz")
    with pytest.raises(DataError, match="CAPE-E122"):
        mask_space(replace(CONFIG, feature_space="atlas"), tmp_path)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("maker", [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<u1", "<f4", ">f8", "<i4"])
def test_every_stored_type_reads_as_nibabel_reads_it(tmp_path, grid, suffix, maker, dtype, values):
    image = maker(values.astype(dtype), AFFINE)
    image.header.set_slope_inter(0.5, -3.0)
    run = save(tmp_path / f"s{suffix}", image)
    oracle = np.asarray(nib.load(run.path).dataobj)[grid.inside]
    np.testing.assert_allclose(read_image(run, grid).values, oracle, rtol=1e-6)


def test_all_48_ways_of_storing_the_axes_give_identical_matrices(tmp_path, grid, values):
    image = nib.Nifti1Image(values, AFFINE)
    plain = read_image(save(tmp_path / "plain.nii", image), grid)
    assert plain.grid == "ok"
    np.testing.assert_array_equal(plain.values, values[grid.inside])
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1, -1), repeat=3):
            turn = np.array(list(zip(order, signs, strict=True)))
            turned = save(tmp_path / "turned.nii", image.as_reoriented(turn))
            series = read_image(turned, grid)
            np.testing.assert_array_equal(series.values, plain.values)
            same = order == (0, 1, 2) and signs == (1, 1, 1)
            assert series.grid == ("ok" if same else "reoriented")


def test_a_header_extension_does_not_shift_the_voxels(tmp_path, grid, values):
    image = nib.Nifti1Image(values, AFFINE)
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"x" * 900))
    series = read_image(save(tmp_path / "s.nii.gz", image), grid)
    np.testing.assert_array_equal(series.values, values[grid.inside])


def test_a_real_scan_of_the_nibabel_wheel_is_read_in_the_right_place():
    path = Path(nib.__file__).parent / "tests" / "data" / "functional.nii"
    plain = nib.as_closest_canonical(nib.load(path))
    labels = (np.asarray(plain.dataobj)[..., 0] > 300).astype(np.int32)
    space = FeatureSpace.of_labels("mask", labels, plain.affine)
    series = read_image(run_of(path), grid_of(space))
    oracle = np.asarray(plain.dataobj)[labels > 0].astype(np.float32)
    np.testing.assert_array_equal(series.values, oracle)
    assert series.tr == 2.0


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.0005, "ok"), (0.003, "ok"), (0.008, "0.002 vox"), (0.03, "0.007 vox"), (0.05, 19)],
)
def test_affines_are_judged_by_the_displacement_of_corners(tmp_path, grid, values, shift, verdict):
    moved = AFFINE.copy()
    moved[0, 3] += shift
    run = save(tmp_path / "s.nii", nib.Nifti1Image(values, moved))
    if isinstance(verdict, str):
        assert read_image(run, grid).grid == verdict
        return
    with pytest.raises(UnusableFile) as caught:
        read_image(run, grid)
    assert caught.value.issue.code.number == verdict


def test_voxels_that_are_slightly_too_large_are_found_at_the_far_corner(tmp_path, grid, values):
    wide = AFFINE.copy()
    wide[0, 0] += 0.02  # 0.01 mm at the first corner, 0.09 mm = 0.0225 voxels at the last
    run = save(tmp_path / "s.nii", nib.Nifti1Image(values, wide))
    with pytest.raises(UnusableFile) as caught:
        read_image(run, grid)
    assert (caught.value.issue.code.number, caught.value.issue.observed) == (
        19,
        "displaced by 0.09 mm (0.022 voxels)",
    )


def test_an_image_without_affine_is_taken_on_trust_only_with_an_equal_shape(tmp_path, grid, values):
    for name, array in (("good.nii", values), ("bad.nii", values[1:])):
        nib.save(nib.Nifti1Image(array, None), tmp_path / name)
    series = read_image(run_of(tmp_path / "good.nii", trust_grid=True), grid)
    np.testing.assert_array_equal(series.values, values[grid.inside])
    assert IssueCode.AFFINE_TRUSTED in [issue.code for issue in series.issues]
    for name, trust in (("good.nii", False), ("bad.nii", True)):
        with pytest.raises(UnusableFile) as caught:
            read_image(run_of(tmp_path / name, trust_grid=trust), grid)
        assert caught.value.issue.code.number == 15


def test_sform_wins_over_a_shifted_qform_with_a_warning(tmp_path, grid, values):
    image = nib.Nifti1Image(values, AFFINE)
    moved = AFFINE.copy()
    moved[2, 3] += 3
    image.set_sform(AFFINE, code=4)
    image.set_qform(moved, code=1)
    series = read_image(save(tmp_path / "s.nii", image), grid)
    assert series.grid == "ok"
    issues = [issue for issue in series.issues if issue.code is IssueCode.AFFINES_DIFFER]
    assert [issue.observed for issue in issues] == ["3 mm"]


def test_manifest_comes_before_sidecar_and_sidecar_before_header(tmp_path, grid, values):
    image = nib.Nifti1Image(values, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = 2.0
    run = save(tmp_path / "s.nii.gz", image)
    (tmp_path / "s.json").write_text('{"RepetitionTime": 1.25}')
    assert read_image(run, grid).tr == 1.25
    assert read_image(replace(run, tr=0.8), grid).tr == 0.8
    (tmp_path / "s.json").write_text("not json")
    assert read_image(run, grid).tr == 2.0


def test_without_a_grid_a_file_is_checked_to_its_end_and_gives_no_values(tmp_path, values):
    run = save(tmp_path / "s.nii.gz", nib.Nifti1Image(values, AFFINE))
    assert read_image(run, None).values.shape == (0, 12)
    run.path.write_bytes(run.path.read_bytes()[:-200])
    with pytest.raises(UnusableFile):
        read_image(run, None)
