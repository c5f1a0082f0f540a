"""Volumes reach the mask with the bits of scipy alone; gzip by either package."""

import gzip
import itertools
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data import images
from cape.data.images import Resampling, read_image
from cape.data.issues import IssueCode, UnusableFile
from cape.data.resampling import ParallelAxes
from cape.data.runs import SiteRun
from cape.data.space import Grid, grid_of
from cape.space.feature_space import FeatureSpace
from support import any_grid

FINE = np.array([[2.0, 0, 0, -21], [0, 2.5, 0, -30], [0, 0, 3.0, -17], [0, 0, 0, 1]])
SHAPE = (22, 25, 13)


def grid(voxel: float = 4.0, shift: float = 0.0, shape: tuple[int, ...] = (9, 12, 8)) -> Grid:
    affine = np.diag([voxel, voxel, voxel, 1.0])
    affine[:3, 3] = np.array([-19.0, -26, -14]) + shift
    labels = np.zeros(shape, dtype=np.int32)
    labels[1:-1, 2:, :-1] = np.random.default_rng(1).random(labels[1:-1, 2:, :-1].shape) < 0.7
    return grid_of(FeatureSpace.of_labels("mask", labels, affine))


def turned(image: nib.Nifti1Image, order: tuple[int, ...], signs: tuple[int, ...]):
    return image.as_reoriented(np.array(list(zip(order, signs, strict=True))))


def image_of(dtype: type = np.int16, times: int = 3, affine: np.ndarray = FINE) -> nib.Nifti1Image:
    rng = np.random.default_rng(3)
    values = np.round(rng.normal(4000, 900, (*SHAPE, times))).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values += rng.random(values.shape).astype(dtype)
    return nib.Nifti1Image(values, affine)


def both(path: Path, grid: Grid, how: Resampling, monkeypatch: pytest.MonkeyPatch):
    """Return the values as read, and as read by the form for any volume."""
    run = SiteRun(path=path, name="run")
    quick = read_image(run, grid, how)
    with monkeypatch.context() as patch:
        patch.setattr(images, "_picker", any_grid.picker)
        plain = read_image(run, grid, how)
    assert quick.digest == plain.digest
    return quick.values, plain.values


@pytest.fixture
def volumes_multiplied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one for each volume that goes through three matrices."""
    seen: list[int] = []
    whole = ParallelAxes.voxels

    def voxels(self, stored, slope, inter):
        seen.append(1)
        return whole(self, stored, slope, inter)

    monkeypatch.setattr(ParallelAxes, "voxels", voxels)
    return seen


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.float32, np.float64, ">i2"])
@pytest.mark.parametrize(
    ("voxel", "shift"), [(4.0, 0.0), (4.0, 0.7), (3.0, -0.4), (1.5, 0.3), (5.0, -9.0)]
)
def test_another_grid_with_parallel_axes_gives_the_bits_of_the_general_form(
    tmp_path, monkeypatch, volumes_multiplied, dtype, voxel, shift
):
    image = image_of(np.uint8 if dtype == np.uint8 else np.int16)
    if dtype != np.uint8:
        image = nib.Nifti1Image(np.asarray(image.dataobj).astype(dtype), FINE)
    if dtype == np.int16:
        image.header.set_slope_inter(0.37, -12.5)
    nib.save(image, tmp_path / "run.nii.gz")
    how = Resampling(resample="to_mask")
    quick, plain = both(tmp_path / "run.nii.gz", grid(voxel, shift), how, monkeypatch)
    np.testing.assert_array_equal(quick, plain)
    assert len(volumes_multiplied) == 3
    assert np.ptp(plain) > 0


def test_axes_stored_in_any_order_and_direction_give_the_bits_of_the_general_form(
    tmp_path, monkeypatch, volumes_multiplied
):
    image, where = image_of(times=1), tmp_path / "run.nii"
    results = set()
    for n, (order, signs) in enumerate(
        itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3))
    ):
        nib.save(turned(image, order, signs), where)
        how = Resampling(resample="to_mask", smoothing_fwhm=6.0 * (n % 2))
        quick, plain = both(where, grid(), how, monkeypatch)
        np.testing.assert_array_equal(quick, plain)
        if not n % 2:
            results.add(np.round(quick, 2).tobytes())
    assert len(results) == 1  # the same brain, however it is stored
    assert len(volumes_multiplied) == 48


@pytest.mark.parametrize("fwhm", [3.0, 8.0, 25.0])
def test_smoothing_on_the_masks_own_grid_gives_the_bits_of_the_general_form(
    tmp_path, monkeypatch, volumes_multiplied, fwhm
):
    own = grid(shape=SHAPE)
    image = nib.Nifti1Image(np.asarray(image_of().dataobj), own.affine)
    for order, signs in (((0, 1, 2), (1, 1, 1)), ((2, 0, 1), (-1, 1, -1))):
        nib.save(turned(image, order, signs), tmp_path / "run.nii.gz")
        how = Resampling(smoothing_fwhm=fwhm)
        quick, plain = both(tmp_path / "run.nii.gz", own, how, monkeypatch)
        np.testing.assert_array_equal(quick, plain)
    assert len(volumes_multiplied) == 6


def turn(*degrees: float) -> np.ndarray:
    """Return a turn about x, then y, then z, (4, 4), about a place within the image."""
    matrix = np.eye(4)
    for axis, angle in enumerate(np.deg2rad(degrees)):
        one, (a, b) = np.eye(4), [k for k in range(3) if k != axis]
        one[[a, a, b, b], [a, b, a, b]] = (
            np.cos(angle),
            -np.sin(angle),
            np.sin(angle),
            np.cos(angle),
        )
        matrix = one @ matrix
    return matrix


def shear(part: float) -> np.ndarray:
    matrix = np.eye(4)
    matrix[0, 1] = part
    return matrix


MOVED = np.eye(4)
MOVED[:3, 3] = 11.0, -17.0, 9.0
TURNED = {
    "turned": turn(4, -3, 7) @ FINE,
    "about one axis": turn(0, 0, 9) @ FINE,
    "far": turn(35, 60, -20) @ FINE,
    "sheared": shear(0.2) @ FINE,
    "partly outside": MOVED @ turn(4, -3, 7) @ FINE,
    "coarser": turn(4, -3, 7) @ FINE @ np.diag([2.5, 2.5, 2, 1]),
}


@pytest.mark.parametrize("fwhm", [0.0, 6.0])
@pytest.mark.parametrize("affine", TURNED.values(), ids=TURNED)
def test_a_turned_grid_gives_the_bits_of_the_general_form(
    tmp_path, monkeypatch, volumes_multiplied, affine, fwhm
):
    image = image_of(affine=affine)
    image.header.set_slope_inter(0.37, -12.5)
    floats = nib.Nifti1Image(np.asarray(image.dataobj).astype(np.float32) / 7, affine)
    where, how = tmp_path / "run.nii", Resampling(resample="to_mask", smoothing_fwhm=fwhm)
    for each in (image, floats, turned(image, (2, 0, 1), (-1, 1, -1))):
        nib.save(each, where)
        quick, plain = both(where, grid(), how, monkeypatch)
        np.testing.assert_array_equal(quick, plain)
        assert np.ptp(plain) > 0
    assert volumes_multiplied == []


@pytest.mark.parametrize("affine", [FINE, TURNED["turned"]], ids=["parallel", "turned"])
def test_a_nan_stays_at_the_nearest_voxels(tmp_path, monkeypatch, affine):
    values = np.array(image_of(np.float32).dataobj)
    values[8:12, 9:13, 6:9, 1] = np.nan
    nib.save(nib.Nifti1Image(values, affine), tmp_path / "run.nii")
    quick, plain = both(tmp_path / "run.nii", grid(), Resampling(resample="to_mask"), monkeypatch)
    np.testing.assert_array_equal(quick, plain)
    assert np.isnan(quick[:, 1]).any()
    assert np.isfinite(quick[:, [0, 2]]).all()


def test_an_axis_too_long_for_a_matrix_is_refused(tmp_path, monkeypatch):
    """A file of 640 kB, 20,000 voxels long, asked for 3 GB."""
    monkeypatch.setattr(images, "MAX_AXIS", 24)
    path = tmp_path / "run.nii.gz"
    nib.save(image_of(), path)
    with pytest.raises(UnusableFile) as verdict:
        read_image(SiteRun(path=path, name="run"), grid(), Resampling(resample="to_mask"))
    assert verdict.value.issue.code is IssueCode.HEADER_DAMAGED


@pytest.mark.parametrize("affine", [FINE, TURNED["turned"]], ids=["parallel", "turned"])
def test_an_image_that_the_mask_does_not_reach_is_zero_in_both_forms(tmp_path, monkeypatch, affine):
    nib.save(image_of(affine=affine), tmp_path / "run.nii")
    far = grid(shift=300.0)
    quick, plain = both(tmp_path / "run.nii", far, Resampling(resample="to_mask"), monkeypatch)
    np.testing.assert_array_equal(quick, np.zeros_like(quick))
    np.testing.assert_array_equal(plain, quick)


def test_reading_holds_the_values_once_and_a_few_volumes(tmp_path, peak_of):
    own = grid(shape=(40, 44, 36))
    values = np.zeros((40, 44, 36, 120), dtype=np.int16)
    nib.save(nib.Nifti1Image(values, own.affine), tmp_path / "run.nii")
    run = SiteRun(path=tmp_path / "run.nii", name="run")
    stored = own.sizes.size * 120 * 4
    # As well: 16 volumes that are turned, a few as stored or in doubles.
    assert peak_of(lambda: read_image(run, own)) < stored + 16 * own.sizes.size * 4 + 4e6


@pytest.fixture
def peak_of():
    import tracemalloc

    def peak(function) -> float:
        function()  # imports and what is kept for later
        tracemalloc.start()
        function()
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    return peak


@pytest.fixture(params=[gzip.GzipFile, images.GzipFile])
def packed_file(request):
    return request.param


def pieces(path: Path, size: int, packed_file) -> bytes:
    with path.open("rb") as raw:
        packed, out = packed_file(fileobj=images.HashingReader(raw), mode="rb"), []
        while part := packed.read(size):
            out.append(part)
    return b"".join(out)


@pytest.mark.parametrize("size", [1, 1000, 70_001, 10**7])
def test_members_and_padding_are_unpacked_as_by_the_standard_library(tmp_path, packed_file, size):
    rng = np.random.default_rng(5)
    parts = [rng.bytes(40_000), b"", bytes(30_000), rng.integers(0, 9, 9999, np.uint8).tobytes()]
    packed = [gzip.compress(part) for part in parts]
    path = tmp_path / "x.gz"
    path.write_bytes(packed[0] + packed[1] + b"\0" * 13 + packed[2] + packed[3] + b"\0" * 300_000)
    assert pieces(path, size, packed_file) == gzip.decompress(path.read_bytes()) == b"".join(parts)


def test_damage_of_every_kind_is_told(tmp_path, packed_file):
    whole = gzip.compress(np.random.default_rng(6).bytes(50_000))
    path = tmp_path / "x.gz"
    for packed in (
        whole[:200],
        whole[:-1],
        whole[:-9],
        whole[:-8] + bytes(8),  # the check sum
        whole[:-4] + b"\1\2\3\4",  # the length
        whole[:3000] + bytes([whole[3000] ^ 255]) + whole[3001:],
        whole + b"no member",
        b"not packed",
    ):
        path.write_bytes(packed)
        with pytest.raises(images.DAMAGED):
            pieces(path, 4096, packed_file)
