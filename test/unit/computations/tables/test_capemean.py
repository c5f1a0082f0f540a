"""capemean: estimators against plain numpy, then whole runs in the simulator."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from cape.algorithms.marginals import ColumnHistogram, ColumnMean
from cape.cli.privacy_check import check_file
from cape.computations import load
from cape.computations.tables import capemean
from cape.errors import CapeWarning, ConfigError, PrivacyBudgetError
from cape.protocol.messages import FeatureSpace
from cape.settings.resolved import resolve
from cape.simulation.run_loop import run_to_end
from cape.simulation.transports import ActiveSites, DocumentTransport, InProcess, make_places
from cape.site.context import SiteContext
from cape.site.policy import SitePolicy
from support.simulation import simulate
from support.sites import clean

SIZES = (4, 3, 2)
D, T = 3, 12
OWNER = 'epsilon = 8.0\ndelta = 1e-5\nfeature_space = "matrix"\nmin_timepoints = 3\n'
MINE = 'computation = "capemean"\nlow = -1.0\nhigh = 3.0\nn_bins = 4\n'


def subjects() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.normal([[0.0], [1.0], [2.5]], 1.0, (D, T + m)).astype(np.float32)
        for m in range(sum(SIZES))
    ]


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    folder, data = tmp_path / "consortium", iter(subjects())
    for s, size in enumerate(SIZES):
        (folder / f"local{s}").mkdir(parents=True)
        for m in range(size):
            np.save(folder / f"local{s}" / f"sub-{m:02d}.npy", next(data))
    (folder / "settings.toml").write_text(OWNER + MINE)
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_mean_of_a_subject_is_that_of_its_clipped_values_in_half_ranges():
    X = subjects()[0]
    estimator = ColumnMean(low=-1.0, high=3.0)
    answer = estimator.query(estimator.start(D)).answer(X[np.newaxis])[0]
    assert np.allclose(answer, (np.clip(X, -1, 3).mean(axis=1) - 1.0) / 2.0, atol=1e-12)
    state = estimator.step(estimator.start(D), answer, 0.25)
    assert np.allclose(state.values, np.clip(X, -1, 3).mean(axis=1))
    assert state.noise_std == 0.5
    assert estimator.done(state)
    assert not estimator.done(estimator.start(D))


def test_the_histogram_of_a_subject_is_that_of_numpy_with_open_ends():
    X = subjects()[1]
    X[0, :2] = -1.0, 3.0  # both ends belong to the closed bins
    estimator = ColumnHistogram(low=-1.0, high=3.0, n_bins=4)
    answer = estimator.query(estimator.start(D)).answer(X[np.newaxis])[0].reshape(D, 6)
    for row, x in zip(answer, X, strict=True):
        inside = np.histogram(x, bins=4, range=(-1, 3))[0]
        expected = np.r_[(x < -1).sum(), inside, (x > 3).sum()] / len(x)
        assert np.allclose(row, expected, atol=1e-12)
    assert np.allclose(answer.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "estimator", [ColumnMean(low=0.0, high=1.0), ColumnHistogram(low=0.0, high=1.0, n_bins=3)]
)
def test_a_subject_that_cannot_be_computed_answers_with_zeros(estimator):
    stack = np.ones((3, 2, 4), dtype=np.float32)
    stack[0, 0, 0], stack[1, 1, 2] = np.nan, np.inf
    answer = estimator.query(estimator.start(2)).answer(stack)
    assert not answer[:2].any()
    assert answer[2].any()
    empty = np.ones((1, 2, 0), dtype=np.float32)
    assert not estimator.query(estimator.start(2)).answer(empty).any()


def test_data_keep_mean_and_scale_and_lose_a_trend_only_if_asked():
    values = np.array([[5, 5, 5, 5], [0, 2, 4, 6], [1, np.nan, 3, 2]], dtype=np.float32)
    given = {"epsilon": 8, "delta": 1e-5}
    config = load("capemean").config.from_input(given)
    kept, quality = clean(values, 0, resolve(config).reading.cleaning)
    assert kept.tolist() == [[5, 5, 5, 5], [0, 2, 4, 6], [1, 2, 3, 2]]  # NaN: mean of its row
    assert (quality.n_bad, quality.n_constant) == (1, 1)
    config = load("capemean").config.from_input({**given, "detrend": "linear"})
    level = clean(values, 0, resolve(config).reading.cleaning)[0]
    assert np.allclose(level[:2], [[5] * 4, [3] * 4], atol=1e-6)
    with pytest.raises(ConfigError):
        load("capedjica").config.from_input({**given, "standardize": "none"})


def test_a_range_that_is_empty_is_refused():
    with pytest.raises(ConfigError) as caught:
        load("capemean").config.from_input({"epsilon": 1, "delta": 1e-5, "low": 2, "high": 2})
    assert caught.value.fields["setting"] == "low"


def test_more_columns_than_allowed_are_refused():
    config = load("capemean").config.from_input({"epsilon": 1, "delta": 1e-5, "max_features": 9})
    with pytest.raises(ConfigError) as caught:
        capemean.plan_run(config, 3, 30, FeatureSpace.of_matrix(10))
    assert caught.value.fields["got"] == 10


def test_the_whole_budget_is_planned_and_never_more():
    config = load("capemean").config.from_input({"epsilon": 1, "delta": 1e-5, "mean_share": 0.25})
    run_plan = capemean.plan_run(config, 4, 1000, FeatureSpace.of_matrix(10))
    mean, histogram = (float(event.cost.mu2) for event in run_plan.releases)
    assert mean / (mean + histogram) == pytest.approx(0.25, rel=1e-6)
    assert 0.2680511 < math.sqrt(mean + histogram) <= 0.2680511232113
    assert run_plan.warnings == ()
    few = capemean.plan_run(config, 4, 10, FeatureSpace.of_matrix(10))
    assert "use fewer columns" in few.warnings[0]


def test_without_noise_the_tables_are_those_of_numpy(consortium, tmp_path):
    folder = simulate(consortium, out=tmp_path / "out", settings={"private": False})
    rows = table(folder / "mean.csv")
    expected = np.mean([np.clip(X, -1, 3).mean(axis=1) for X in subjects()], axis=0)
    assert np.allclose([float(row["mean"]) for row in rows], expected, atol=1e-5)
    assert {float(row["noise_std"]) for row in rows} == {0.0}
    fractions = [float(row["fraction"]) for row in table(folder / "histogram.csv")]
    assert np.allclose(np.reshape(fractions, (D, 6)).sum(axis=1), 1.0, atol=1e-5)
    page = (folder / "index.html").read_text()
    assert "NOT PRIVATE" in page
    assert json.loads((folder / "results.json").read_text())["epsilon"] is None


def test_a_private_run_states_its_cost_and_its_error(consortium, tmp_path):
    folder = simulate(consortium, out=tmp_path / "out")
    results = json.loads((folder / "results.json").read_text())
    assert results["status"] == "released"
    assert results["private"]
    assert results["epsilon"] <= 8.0
    assert [told["file"] for told in results["tables"]] == ["mean.csv", "histogram.csv"]
    assert check_file(folder / "privacy.json").findings == ()
    row = table(folder / "mean.csv")[0]
    event = json.loads((folder / "privacy.json").read_text())["events"][0]
    assert float(row["noise_std"]) == pytest.approx(2.0 * event["noise_std_mean"], rel=1e-9)
    width = float(row["high_95"]) - float(row["low_95"])
    assert width == pytest.approx(2 * 1.96 * float(row["noise_std"]), rel=1e-4)
    page = (folder / "index.html").read_text()
    assert "Mean of every column over subjects" in page
    assert "SIMULATION" in page
    assert re.search(rf"<td[^>]*>{D} columns", page)  # the head once read "18 18 columns"
    private = tmp_path / "out" / "local0" / "private" / "index.html"
    assert "What left this site" in private.read_text()
    assert "no results for single subjects" not in private.read_text()


def test_settings_of_another_computation_in_the_file_are_left_out(consortium, tmp_path):
    other = OWNER + 'n_components = 2\nbasis = "dct"\nstandardize = "demean"\n'
    (consortium / "settings.toml").write_text(other)
    chosen = {"computation": "capemean", "low": -1, "high": 3}
    with pytest.warns(CapeWarning, match="capemean ignores: n_components, basis, standardize"):
        folder = simulate(consortium, out=tmp_path / "out", settings=chosen, seed=1)
    settings = json.loads((folder / "settings.json").read_text())["settings"]
    assert settings["standardize"] == settings["basis"] == "none"
    with pytest.raises(ConfigError), pytest.warns(CapeWarning, match="ignores: basis, standardize"):
        simulate(consortium, out=tmp_path / "out", settings={**chosen, "n_components": 2})


def test_the_engine_gets_flat_numbers(consortium, tmp_path):
    sites = {f"local{s}": consortium / f"local{s}" for s in range(len(SIZES))}
    settings = {"computation": "capemean", "epsilon": 8, "delta": 1e-5, "feature_space": "matrix",
                "n_features": 3, "min_timepoints": 3, "n_sites": len(SIZES)}  # fmt: skip
    work = tmp_path / "work"
    everybody = ActiveSites(list(sites), [], survives=False)
    policy = SitePolicy.of_simulation()
    make_places((*sites, "remote"), policy, work)
    link = DocumentTransport(sites, settings, work, InProcess(sites, work), everybody)
    run_to_end(link, None)
    assert link._input["summary"]["status"] == "the one planned release was made"
    tables = link._input["components"]
    assert set(tables) == {"Global column 1", "Global column 2", "Global column 3"}
    assert set(tables["Global column 1"]) == {"mean", "noise std", "low 95", "high 95"}


def test_a_site_that_refuses_the_histogram_leaves_the_means(consortium, tmp_path, monkeypatch):
    charge = SiteContext.charge

    def stingy(self, event):
        if (self.id, event.phase) == ("local1", "histogram"):
            raise PrivacyBudgetError("E154", site=self.id)
        charge(self, event)

    monkeypatch.setattr(SiteContext, "charge", stingy)
    folder = simulate(consortium, out=tmp_path / "out")
    assert json.loads((folder / "results.json").read_text())["status"] == "budget_exhausted"
    assert {row["fraction"] for row in table(folder / "histogram.csv")} == {"n/a"}
    assert all(math.isfinite(float(row["mean"])) for row in table(folder / "mean.csv"))
