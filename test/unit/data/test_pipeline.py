"""A whole site: preprocessing, joined runs, reproducible bits, the public basis."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.algorithms.interpolated_basis import InterpolatedBasis
from cape.data import pipeline
from cape.data.pipeline import inspect_site, reduce_again
from cape.data.subjects import subject_matrix
from cape.errors import DataError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import Cleaning, resolve
from cape.space.public_basis import MAX_DENSE_FEATURES, project, public_basis
from support.sites import clean, load_site, private_code

CONFIG = replace(
    Config(epsilon=1.0, delta=1e-5), feature_space="matrix", min_timepoints=5, standardize="demean"
)


def how(config: Config) -> Cleaning:
    return resolve(config).reading.cleaning


def matrices(folder: Path, *shapes: tuple[int, int], runs: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    made = []
    for m, shape in enumerate(shapes):
        for run in range(runs):
            made.append(rng.standard_normal(shape) + 50)
            np.save(folder / f"sub-{m}_run-{run}.npy", made[-1])
    return made


def test_variance_gives_every_row_unit_spread_and_leaves_constant_rows_at_zero():
    rng = np.random.default_rng(0)
    raw = 1000 + rng.standard_normal((6, 40)) * np.array([[1e-1], [1], [9], [1], [1], [1]])
    raw[3], raw[4] = 1000.0, 0.0
    raw[5] = np.linspace(-1, 1, 40)  # nothing but trend
    cleaned, quality = clean(
        raw.astype(np.float32), 0, how(replace(CONFIG, standardize="variance"))
    )
    np.testing.assert_allclose(cleaned[:3].std(axis=1), 1.0, rtol=1e-5)
    assert not cleaned[3:].any()
    assert (quality.n_zero, quality.n_constant) == (1, 2)


def test_nan_and_infinite_entries_count_and_end_near_zero():
    raw = np.random.default_rng(0).standard_normal((5, 50)).astype(np.float32) + 1000
    raw[1, 3], raw[2, 7] = np.nan, np.inf
    cleaned, quality = clean(raw, 0, how(CONFIG))
    assert quality.n_bad == 2
    assert quality.bad_fraction == 2 / 250
    assert np.isfinite(cleaned).all()
    assert abs(cleaned[1, 3]) < 1.0


def test_runs_of_a_subject_are_cleaned_one_by_one_and_joined_in_time(tmp_path):
    first, second = matrices(tmp_path, (8, 20), runs=2)
    loaded = load_site(tmp_path, {}, CONFIG, site="B")
    assert [subject.label for subject in loaded.subjects] == ["sub-0"]
    joined = subject_matrix(loaded.subjects[0], loaded.space, CONFIG)
    expected = [clean(run.astype(np.float32), 0, how(CONFIG))[0] for run in (first, second)]
    np.testing.assert_array_equal(joined, np.concatenate(expected, axis=1))
    assert loaded.subjects[0].n_timepoints == 40
    assert np.abs(joined.mean(axis=1)).max() < 1e-6


def test_reduced_subjects_are_float32_and_the_identity_changes_nothing(tmp_path):
    matrices(tmp_path, (8, 20), (8, 25))
    loaded = load_site(tmp_path, {}, CONFIG, site="B")
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 3)))[0]
    plain = dict(reduce_again(loaded, None, CONFIG))
    reduced = dict(reduce_again(loaded, basis, CONFIG))
    assert {label: y.shape for label, y in reduced.items()} == {"sub-0": (3, 20), "sub-1": (3, 25)}
    for label, y in reduced.items():
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, basis.T @ plain[label].astype(float), atol=1e-6)
    with pytest.raises(ValueError, match="9 rows"):
        project(plain["sub-0"], np.eye(9))


def test_a_file_that_changes_after_acceptance_is_refused(tmp_path):
    matrices(tmp_path, (8, 20), (8, 20))
    loaded = load_site(tmp_path, {}, CONFIG, site="B")
    path = tmp_path / "sub-1_run-0.npy"
    np.save(path, np.load(path) + 1)
    with pytest.raises(DataError, match="CAPE-E161") as caught:
        list(reduce_again(loaded, None, CONFIG))
    assert "sub-1" in caught.value.detail
    assert "sub-1" not in str(caught.value)
    path.unlink()
    with pytest.raises(DataError, match="CAPE-E161"):
        list(reduce_again(loaded, None, CONFIG))


def test_the_fingerprint_depends_on_contents_and_not_on_names(tmp_path):
    prints = []
    for folder, names in (("a", ("x", "y")), ("b", ("u", "v")), ("c", ("u", "v"))):
        (tmp_path / folder).mkdir()
        for m, name in enumerate(names):
            rng = np.random.default_rng([m, folder == "c"])
            np.save(tmp_path / folder / f"sub-{name}.npy", rng.standard_normal((6, 20)))
        prints.append(load_site(tmp_path / folder, {}, CONFIG, site="B").fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_max_timepoints_cuts_for_memory_and_says_so(tmp_path):
    matrices(tmp_path, (8, 30))
    config = replace(CONFIG, max_timepoints=25)
    loaded = load_site(tmp_path, {}, config, site="B")
    matrix = subject_matrix(loaded.subjects[0], loaded.space, config)
    assert matrix.shape == (8, 25)
    assert np.abs(matrix.mean(axis=1)).max() < 1e-6
    assert [finding.code for finding in loaded.findings] == ["CAPE-W129"]


def test_repetition_times_come_from_the_manifest_for_matrices(tmp_path):
    matrices(tmp_path, (8, 20), (8, 20))
    (tmp_path / "manifest.csv").write_text(
        "file,participant_id,tr\nsub-0_run-0.npy,0,2\nsub-1_run-0.npy,1,2.5\n"
    )
    loaded = load_site(tmp_path, {}, CONFIG, site="B")
    assert [subject.trs for subject in loaded.subjects] == [(2.0,), (2.5,)]
    assert [finding.code for finding in loaded.findings] == ["CAPE-W134"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WithComponents(Config):
    n_components: int = 6


def with_components(n_components: int, **changes: object) -> WithComponents:
    values = {f.name: getattr(CONFIG, f.name) for f in fields(Config)}
    return WithComponents(**{**values, **changes}, n_components=n_components)


@pytest.mark.parametrize("headers_only", [True, False])
def test_a_subject_of_another_repetition_time_than_the_owners_fails_at_its_site(
    headers_only, tmp_path
):
    # One such subject was a warning at its site and ended the run of all sites (E134).
    shapes = [(8, 20)] * 10
    matrices(tmp_path, *shapes)
    trs = ["2", "2.5", "2.0009", *["2"] * 7]
    rows = "".join(f"sub-{m}_run-0.npy,{m},{tr}\n" for m, tr in enumerate(trs))
    (tmp_path / "manifest.csv").write_text(f"file,participant_id,tr\n{rows}")
    config = replace(CONFIG, tr=2.0)

    def inspected(config: Config):
        return inspect_site(tmp_path, {}, config, site="B", headers_only=headers_only)

    found = inspected(config)
    assert found.accepted.failed == ("1",)
    assert found.accepted.n_subjects == 10
    (finding,) = found.findings
    assert (finding.code, finding.severity, finding.public) == ("CAPE-W134", "X", "")
    assert "1: 2.5 s. Expected 2 s (tr)" in finding.private
    assert inspected(replace(config, tr_tolerance=0.5)).findings == ()


def test_a_subject_needs_more_time_points_and_rank_than_there_are_components(tmp_path):
    matrices(tmp_path, *[(30, 20)] * 12)
    rng = np.random.default_rng(9)
    np.save(tmp_path / "sub-5_run-0.npy", rng.standard_normal((30, 3)) @ rng.normal(size=(3, 20)))
    loaded = load_site(tmp_path, {}, with_components(6), site="B")
    assert loaded.failed == ("sub-5",)
    assert [(f.code, f.severity) for f in loaded.findings] == [("CAPE-W148", "X")]
    assert "sub-5: rank 3" in loaded.findings[0].private
    assert "n_components = 6" in loaded.findings[0].private
    with pytest.raises(DataError) as caught:
        load_site(tmp_path, {}, with_components(20), site="B")
    assert private_code(caught.value) == "CAPE-E129"
    assert "20 time points" in caught.value.detail
    assert "more than n_components = 20" in caught.value.detail


def test_importing_the_data_layer_loads_numpy_and_nothing_heavy():
    code = (
        "import sys, cape.data.pipeline\n"
        "heavy = {'nibabel', 'scipy', 'pandas', 'nilearn', 'matplotlib'} & set(sys.modules)\n"
        "raise SystemExit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_mask_finer_than_3_mm_is_reduced_as_by_its_basis_without_that_basis_in_memory(tmp_path):
    """It was refused above 70,000 voxels."""
    rng = np.random.default_rng(4)
    axes = [np.linspace(-1, 1, n) / 0.97 for n in (60, 60, 56)]
    inside = sum(axis**2 for axis in np.meshgrid(*axes, indexing="ij")) < 1
    affine = np.diag([2.0, 2, 2, 1])
    nib.Nifti1Image(inside.astype(np.uint8), affine).to_filename(tmp_path / "mask.nii.gz")
    for m in (1, 2):
        values = np.where(inside[..., None], rng.normal(500, 20, (*inside.shape, 12)), 0.0)
        nib.Nifti1Image(values.astype(np.float32), affine).to_filename(tmp_path / f"sub-{m}.nii")
    config = Config(epsilon=1.0, delta=1e-5, mask="file", n_basis=15, min_timepoints=5)
    site, reduced = pipeline.load_site(tmp_path, {}, config, site="B")
    assert site.space.n_features == int(inside.sum()) > MAX_DENSE_FEATURES
    B = public_basis(resolve(config), site.space, 15)
    assert isinstance(B, InterpolatedBasis)
    dense = B @ np.eye(15)
    for subject, (label, Y) in zip(site.subjects, reduced, strict=True):
        assert subject.label == label
        X = subject_matrix(subject, site.space, config)
        np.testing.assert_allclose(Y, project(X, dense), atol=2e-4 * np.abs(Y).max())
        assert Y.shape == (15, 12)
