"""What the owner may ask of a run before it is used, compared with nilearn and nibabel."""

from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nibabel.processing import resample_from_to

from cape.data.cleaning import nuisance, regressors, stop_band_cosines
from cape.data.resampling import SD_PER_FWHM
from cape.data.subjects import subject_matrix
from cape.errors import ConfigError
from cape.settings.config import Config
from cape.settings.resolved import Cleaning, resolve
from cape.settings.words import CONFOUND_SETS
from support.any_grid import resample_volume, smooth_volume
from support.sites import clean, load_site, why_stopped

CONFIG = replace(Config(epsilon=1.0, delta=1e-5), min_timepoints=5)
T = 60


def how(config: Config) -> Cleaning:
    return resolve(config).reading.cleaning


def signals(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((T, 9)).cumsum(axis=0) + 100, rng.standard_normal((T, 4))


def cleaned(values: np.ndarray, config: Config, tr: float, confounds: np.ndarray | None, drop=0):
    how = resolve(config).reading
    stored = np.zeros((len(values), 0)) if confounds is None else confounds
    others = nuisance(stored, drop, how, tr)
    return clean(values.T.astype(np.float32), drop, how.cleaning, others)[0].T


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("high_pass", [0.0, 0.008, 0.0125, 0.03])
@pytest.mark.parametrize("standardize", ["variance", "demean"])
def test_one_regression_is_that_of_nilearn(high_pass, standardize):
    from nilearn.signal import clean as oracle

    values, confounds = signals()
    config = replace(CONFIG, high_pass=high_pass, standardize=standardize, detrend="none")
    expected = oracle(
        values, detrend=False, confounds=confounds, filter="cosine" if high_pass else False,
        high_pass=high_pass or None, t_r=2.0, standardize=None, standardize_confounds=True,
    )  # fmt: skip
    expected = expected - expected.mean(axis=0)
    if standardize == "variance":
        expected = expected / expected.std(axis=0)
    np.testing.assert_allclose(cleaned(values, config, 2.0, confounds), expected, atol=2e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_trend_and_confounds_go_in_one_step_not_one_after_the_other():
    from nilearn.signal import clean as oracle

    values, confounds = signals(1)
    confounds[:, 0] += np.linspace(0, 9, T)
    config = replace(CONFIG, standardize="demean")
    expected = oracle(values, detrend=True, confounds=confounds, standardize=None)
    ours = cleaned(values, config, 0.0, confounds)
    np.testing.assert_allclose(ours, expected, atol=2e-4)
    line = np.arange(T) - (T - 1) / 2
    for signal in (line, *(confounds - confounds.mean(axis=0)).T):
        assert np.abs(signal @ ours).max() < 1e-3 * np.linalg.norm(signal)


@pytest.mark.parametrize(("detrend", "degree"), [("none", 0), ("linear", 1), ("quadratic", 2)])
def test_detrending_takes_out_the_polynomial_of_its_degree(detrend, degree):
    values, _ = signals(2)
    time = np.arange(T, dtype=float)
    config = replace(CONFIG, standardize="demean", detrend=detrend)
    wanted = values - np.polynomial.polynomial.polyval(
        time, np.polynomial.polynomial.polyfit(time, values, degree)
    ).T  # fmt: skip
    np.testing.assert_allclose(cleaned(values, config, 0.0, None), wanted, atol=2e-4)


def test_a_floored_deviation_leaves_quiet_voxels_quiet(monkeypatch):
    monkeypatch.setattr("cape.data.cleaning.BLOCK_NUMBERS", 3)
    rng = np.random.default_rng(0)
    sizes = np.array([1.0, 2.0, 3.0, 4.0, 0.1, 0.0, 5.0])  # the sixth is constant
    values = (100 + sizes * rng.standard_normal((T, 7))).astype(np.float32)
    plain = cleaned(values, replace(CONFIG, standardize="demean"), 0.0, None)
    sd = plain.std(axis=0)
    least = 0.3 * np.median(sd[[0, 1, 2, 3, 4, 6]])
    assert sd[4] < least < sd[0]
    found = cleaned(values, replace(CONFIG, standardize="floored"), 0.0, None)
    np.testing.assert_allclose(found, plain / np.maximum(sd, least), rtol=1e-4, atol=1e-5)
    assert found[:, 5].any() == False  # noqa: E712
    np.testing.assert_allclose(found.std(axis=0)[[0, 6]], 1.0, rtol=1e-4)
    assert found.std(axis=0)[4] < 0.5


def test_the_global_signal_is_that_of_scaled_features_and_brings_nothing_back(monkeypatch):
    monkeypatch.setattr("cape.data.cleaning.BLOCK_NUMBERS", 3)
    values, confounds = signals(3)
    values[:, 4] *= 50.0  # a loud voxel decides no more than any other
    config = replace(CONFIG, detrend="quadratic", standardize="floored")
    plain = cleaned(values, config, 0.0, confounds)
    found = cleaned(values, replace(config, global_signal="true"), 0.0, confounds)
    mean = plain.mean(axis=1, dtype=float)
    np.testing.assert_allclose(
        found, plain - np.outer(mean, mean @ plain / (mean @ mean)), atol=1e-5
    )
    assert np.abs(found.mean(axis=1)).max() < 1e-5 < np.abs(mean).max()
    line = np.arange(T) - (T - 1) / 2
    for removed in (np.ones(T), line, line**2, *confounds.T):
        assert np.abs(removed @ found).max() < 1e-3 * np.linalg.norm(removed)


def test_cosines_outside_the_pass_band_and_only_these():
    frequencies = np.arange(1, T) / (2 * T * 2.0)
    for high, low in ((0.02, 0.0), (0.0, 0.1), (0.02, 0.1)):
        found = stop_band_cosines(T, 2.0, high_pass=high, low_pass=low)
        wanted = (frequencies <= high) | ((frequencies > low) if low else False)
        assert found.shape == (T, int(wanted.sum()))
        every = np.cos(np.pi * np.outer(np.arange(T) + 0.5, np.arange(1, T)) / T)
        np.testing.assert_allclose(found, every[:, wanted])
    time = 2.0 * np.arange(200)
    slow, inside, fast = (np.sin(2 * np.pi * f * time) for f in (0.003, 0.05, 0.2))
    config = replace(CONFIG, high_pass=0.01, low_pass=0.1, standardize="demean", detrend="none")
    n_left = cleaned(np.stack([slow, inside, fast], axis=1), config, 2.0, None)
    size = n_left.std(axis=0) / np.sqrt(0.5)
    assert size[0] < 0.1
    assert size[1] > 0.97
    assert size[2] < 0.1


def test_collinear_and_constant_confounds_change_nothing():
    values, confounds = signals(2)
    twice = np.concatenate([confounds, confounds[:, :1] * 3, np.ones((T, 1))], axis=1)
    basis = regressors(T, degree=1, others=twice)
    assert basis.shape == (T, 6)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(
        cleaned(values, CONFIG, 0.0, twice), cleaned(values, CONFIG, 0.0, confounds), atol=1e-5
    )


def test_dummies_are_dropped_from_image_and_confounds_alike():
    values, confounds = signals(3)
    whole = cleaned(values, CONFIG, 0.0, confounds, drop=4)
    np.testing.assert_array_equal(whole, cleaned(values[4:], CONFIG, 0.0, confounds[4:]))


# ------------------------------------------------------------------------------- volumes


def volume() -> tuple[np.ndarray, np.ndarray]:
    affine = np.array([[0, 3.0, 0, -20], [-2.5, 0, 0, 25], [0, 0, 4.0, -18], [0, 0, 0, 1]])
    return np.random.default_rng(0).standard_normal((17, 15, 11)), affine


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_smoothing_is_that_of_nilearn_away_from_the_border():
    from nilearn.image import smooth_img

    values, affine = volume()
    values[:6] = values[11:] = values[:, :6] = values[:, 9:] = values[..., :4] = values[..., 7:] = 0
    oracle = smooth_img(nib.Nifti1Image(values, affine), 5.0).get_fdata()
    np.testing.assert_allclose(smooth_volume(values, affine, 5.0), oracle, atol=1e-12)


def test_a_nan_does_not_spread_when_smoothed():
    values, affine = volume()
    values[8, 7, 5] = np.nan
    done = smooth_volume(values, affine, 6.0)
    assert np.flatnonzero(np.isnan(done)).size == 1
    assert np.isnan(done[8, 7, 5])


def test_resampling_to_a_grid_of_equal_or_finer_voxels_is_that_of_nibabel():
    values, affine = volume()
    target = np.diag([2.0, 2.0, 3.0, 1.0])
    target[:3, 3] = (-15, -12, -10)
    image = nib.Nifti1Image(values, affine)
    oracle = resample_from_to(image, ((14, 12, 8), target), order=1).get_fdata()
    np.testing.assert_allclose(
        resample_volume(values, affine, (14, 12, 8), target), oracle, atol=1e-10
    )


def test_a_coarser_grid_is_smoothed_first_so_that_noise_is_averaged_not_picked():
    values = np.random.default_rng(0).standard_normal((40, 40, 40))
    coarse = resample_volume(values, np.eye(4), (9, 9, 9), np.diag([4.0, 4, 4, 1]))
    sd = 4.0 * SD_PER_FWHM
    averaged = (2 * sd * np.sqrt(np.pi)) ** -1.5  # of white noise under a Gaussian kernel
    assert coarse[1:-1, 1:-1, 1:-1].std() == pytest.approx(averaged, rel=0.1)
    assert np.allclose(
        resample_volume(np.full((40,) * 3, 7.0), np.eye(4), (9,) * 3, np.diag([4.0, 4, 4, 1])), 7
    )


def test_outside_the_field_of_view_is_zero_and_nan_stays_at_its_place():
    values = np.ones((6, 6, 6))
    values[2, 2, 2] = np.nan
    shifted = np.eye(4)
    shifted[0, 3] = 3.0
    done = resample_volume(values, np.eye(4), (6, 6, 6), shifted)
    assert not done[3:].any()
    assert not np.isnan(done).any()
    assert np.isnan(resample_volume(values, np.eye(4), (6, 6, 6), np.eye(4))[2, 2, 2])


# ------------------------------------------------------------------------------- a site


HEADER = (*CONFOUND_SETS["motion24"], "csf", "white_matter", "csf_derivative1")


def table(path: Path, n_rows: int, *, first_empty: bool = True, **cells: tuple[int, str]) -> None:
    rng = np.random.default_rng(5)
    lines = [list(HEADER)]
    for t in range(n_rows):
        derivative = first_empty and t == 0
        lines.append(
            ["n/a" if derivative and "derivative1" in name else f"{rng.standard_normal():.5f}"
             for name in HEADER]
        )  # fmt: skip
    for name, (line, text) in cells.items():
        lines[line - 1][HEADER.index(name)] = text
    path.write_text("\n".join("\t".join(cells) for cells in lines) + "\n", encoding="utf-8")


def matrix_site(folder: Path, n_rows: int = T, **cells: tuple[int, str]) -> Config:
    np.save(folder / "sub-1_task-rest_bold.npy", signals(7)[0].T)
    table(folder / "sub-1_task-rest_desc-confounds_timeseries.tsv", n_rows, **cells)
    return replace(CONFIG, feature_space="matrix", n_features=signals(7)[0].shape[1])


@pytest.mark.parametrize(
    ("confounds", "columns"),
    [("motion6", 6), ("motion24", 24), ("motion6+wm_csf", 8), ("csf, trans_x", 2)],
)
def test_sets_of_confounds_are_found_beside_the_image_and_regressed_out(
    tmp_path, confounds, columns
):
    config = replace(matrix_site(tmp_path), confounds=confounds)
    site = load_site(tmp_path, {}, config, site="B")
    assert site.subjects[0].rank == min(9, T - 2 - columns)
    text = (tmp_path / "sub-1_task-rest_desc-confounds_timeseries.tsv").read_text()
    cells = [line.split("\t") for line in text.splitlines()]
    names = CONFOUND_SETS.get(confounds, ("csf", "trans_x"))
    values = np.array(
        [[float(row[HEADER.index(n)].replace("n/a", "0")) for n in names] for row in cells[1:]]
    )
    assert values.shape == (T, columns)
    left = subject_matrix(site.subjects[0], site.space, config)
    assert np.abs(left @ (values - values.mean(axis=0))).max() < 1e-3
    has_note = any(f.code == "CAPE-W137" for f in site.findings)
    assert has_note == (confounds == "motion24")


def test_the_table_of_the_manifest_comes_first(tmp_path):
    config = replace(matrix_site(tmp_path), confounds="csf")
    table(tmp_path / "own.tsv", T)
    (tmp_path / "own.tsv").write_text("csf\n" + "\n".join(str(t % 7) for t in range(T)) + "\n")
    (tmp_path / "m.csv").write_text(
        "file,participant_id,confounds\nsub-1_task-rest_bold.npy,1,own.tsv\n"
    )
    beside = load_site(tmp_path, {"data": "*.npy"}, config, site="B")
    named = load_site(tmp_path, {"manifest": "m.csv"}, config, site="B")
    one, two = (subject_matrix(s.subjects[0], s.space, config) for s in (beside, named))
    assert np.abs(one - two).max() > 0.1
    assert named.fingerprint != beside.fingerprint


def test_a_changed_confound_table_is_other_content(tmp_path):
    from cape.errors import DataError

    config = replace(matrix_site(tmp_path), confounds="csf")
    site = load_site(tmp_path, {}, config, site="B")
    table(tmp_path / "sub-1_task-rest_desc-confounds_timeseries.tsv", T, csf=(5, "0.25"))
    with pytest.raises(DataError, match="CAPE-E161"):
        subject_matrix(site.subjects[0], site.space, config)


def test_the_owners_choice_of_confounds_makes_no_other_people(tmp_path):
    """Else every choice would begin a new account in the site's ledger of all runs."""
    from cape.site.site_data import FileSource

    config = matrix_site(tmp_path)
    sources = [
        FileSource(tmp_path, {}, replace(config, confounds=chosen), "B")
        for chosen in ("none", "motion6", "csf")
    ]
    assert len(sources[0].people) == 1
    assert sources[0].people == sources[1].people == sources[2].people
    assert sources[0].contents != sources[1].contents


@pytest.mark.parametrize(
    ("chosen", "code", "words"),
    [
        ({"high_pass": 0.01}, "E132", "column 'tr' of the manifest"),  # where it was sought
        ({"high_pass": 0.24, "tr": 2.0}, "E164", "of 60 time points"),  # nothing is left
    ],
)
def test_filters_that_cannot_be_used_say_why(tmp_path, chosen, code, words):
    told = why_stopped(tmp_path, replace(matrix_site(tmp_path), **chosen))
    assert told[0] == f"CAPE-{code}"
    assert words in told[1]


def test_settings_of_preprocessing_are_checked_when_they_are_given():
    given = {"epsilon": 1, "delta": 1e-5}
    for wrong, text in (
        ({"high_pass": 0.1, "low_pass": 0.05}, "above high_pass = 0.1"),
        ({"confounds": "motion12"}, "did you mean 'motion"),
        ({"confounds": "a b,c"}, "separate columns by commas"),
        ({"variable": "X[0]"}, "a name of letters"),
        ({"bids_filter": "task=rest"}, "entities such as"),
        ({"resample": "yes"}, "never, to_mask"),
    ):
        with pytest.raises(ConfigError, match=text.replace("[", r"\[")):
            Config.from_input({**given, **wrong})


def test_the_temporal_signal_to_noise_is_that_before_the_mean_is_taken_out():
    rng = np.random.default_rng(4)
    values = (1000.0 + 20.0 * rng.standard_normal((50, 400))).astype(np.float32)
    values[0] = 0.0  # outside of the brain: has no part in it
    trend = 300.0 * np.linspace(-1.0, 1.0, 400, dtype=np.float32)
    for standardize in ("variance", "none"):
        config = replace(CONFIG, detrend="linear", standardize=standardize)
        quality = clean(values + np.where(values[:, :1] > 0, trend, 0), 0, how(config))[1]
        # What cleaning takes out is no noise.
        assert quality.tsnr == pytest.approx(50.0, rel=0.03)
    doubled = replace(quality, tsnr=2.0 * quality.tsnr, n_values=3 * quality.n_values)
    assert quality.joined(doubled).tsnr == pytest.approx(1.75 * quality.tsnr)
    assert clean(np.zeros((3, 20), dtype=np.float32), 0, how(CONFIG))[1].tsnr == 0.0
