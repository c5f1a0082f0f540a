"""The G rule: thresholds, basis size, what to tell people."""

import math

import pytest

from cape.computations import load, planner_of
from cape.data.space import mask_space
from cape.errors import ConfigError
from cape.forecast import temporal
from cape.forecast.rule import Forecast, RunSize, g_eff
from cape.forecast.temporal import TemporalRule
from cape.privacy.accounting import gdp_mu


def test_g_counts_only_the_shares_that_nobody_can_subtract() -> None:
    full = g_eff(n_subjects=1024, mu=0.268, noise_shares=4, n_sites=4)
    assert full == pytest.approx(1024 * 0.268)
    less = g_eff(n_subjects=1024, mu=0.268, noise_shares=3, n_sites=4)
    assert full / less == pytest.approx(math.sqrt(4 / 3))


@pytest.mark.parametrize(
    ("r", "possible", "sure"),
    [(3, 38, 83.7), (5, 58, 103.3), (10, 70, 146.1), (15, 88, 180.3), (20, 105, 231.8),
     (25, 125, 322.0), (30, 145, 444.4)],
)  # fmt: skip
def test_measured_thresholds(r: int, possible: float, sure: float) -> None:
    assert temporal.likely_g(r) == possible
    assert temporal.sure_g(r) == pytest.approx(sure, abs=0.1)


def test_thresholds_between_and_beyond_the_measured_numbers() -> None:
    assert temporal.likely_g(2) == temporal.likely_g(3)
    assert temporal.likely_g(22) == pytest.approx(105 + 0.4 * 20)
    assert temporal.likely_g(40) == pytest.approx(196)
    assert temporal.sure_g(40) == pytest.approx(1.4 * 0.92 * 480)
    for threshold in (temporal.likely_g, temporal.sure_g):
        values = [threshold(r) for r in range(2, 51)]
        assert values == sorted(values)
    assert all(temporal.likely_g(r) < temporal.sure_g(r) for r in range(2, 51))


def test_largest_number_of_components_is_the_inverse_of_the_threshold() -> None:
    rule = TemporalRule(n_components=20)
    assert rule.largest_possible(10.0) == rule.largest_components(10.0) == 0
    assert rule.largest_possible(math.inf) == rule.largest_components(math.inf) == 50
    for r in (5, 13, 20, 31):
        assert rule.largest_components(temporal.sure_g(r)) >= r
        assert rule.largest_components(0.999 * temporal.sure_g(r)) < r
        assert rule.largest_possible(temporal.likely_g(r)) >= r
        assert rule.largest_possible(0.999 * temporal.likely_g(r)) < r


@pytest.mark.parametrize(("n_subjects", "epsilon"), [(256, 4.61), (1024, 0.973), (4096, 0.2143)])
def test_smallest_epsilon_of_four_sites_with_one_colluder(n_subjects: int, epsilon: float) -> None:
    """The figures that the owner reads before a run (R = 20, delta = 1e-5)."""
    size = RunSize(n_subjects=n_subjects, n_sites=4, noise_shares=3, delta=1e-5)
    got = size.epsilon_for(TemporalRule(n_components=20).needed_g())
    assert got == pytest.approx(epsilon, rel=0.01)
    mu = gdp_mu(epsilon=got, delta=1e-5)
    g = g_eff(n_subjects=n_subjects, mu=mu, noise_shares=3, n_sites=4)
    assert g == pytest.approx(temporal.sure_g(20))


@pytest.mark.parametrize(
    ("g", "d"),
    [(100, 100), (265, 100), (280, 200), (395, 200), (410, 400), (1030, 400), (1050, 1000)],
)
def test_basis_grows_with_g(g: float, d: int) -> None:
    assert temporal.best_n_basis(n_components=20, g=g) == d


def test_basis_is_the_best_of_the_allowed_sizes() -> None:
    for r in (5, 10, 20, 40):
        for g in (60.0, 150.0, 300.0, 700.0, 2000.0):
            got = temporal.best_n_basis(n_components=r, g=g)
            scores = {
                d: energy * (1 - r * d / (0.27 * g * g))
                for d, energy in temporal.BRAIN_ENERGY.items()
            }
            assert scores[got] == max(scores.values())


def test_basis_respects_the_limits() -> None:
    assert temporal.best_n_basis(n_components=20, g=math.inf) == 1000
    assert temporal.best_n_basis(n_components=20, g=math.inf, limit=300) == 200
    assert temporal.best_n_basis(n_components=20, g=500, limit=64) == 64
    image = temporal.best_n_basis(n_components=20, g=275, energies=temporal.IMAGE_ENERGY)
    assert image == 100
    with pytest.raises(ConfigError, match="number of features"):
        temporal.best_n_basis(n_components=20, g=500, limit=20)


def test_expected_energy_follows_the_measured_formula() -> None:
    """Table of the base algorithm: G 275, f_P .4."""
    for d, energy, expected in [(64, 0.922, 0.90), (100, 0.979, 0.93), (225, 0.999, 0.86)]:
        rule = TemporalRule(n_components=20, basis_energy=energy, pca_share=0.4)
        assert rule.map_energy(275, d) == pytest.approx(expected, abs=0.015)
    rule = TemporalRule(n_components=20, basis_energy=0.94)
    assert rule.map_energy(50, 1000) == 0.0
    assert rule.map_energy(math.inf, 1000) == 0.94


def test_energy_inside_the_basis_is_monotone() -> None:
    assert temporal.energy_inside(100) == 0.72
    assert temporal.energy_inside(300) == pytest.approx(0.855)
    assert temporal.energy_inside(5000) == 0.94
    values = [temporal.energy_inside(d) for d in range(0, 1200, 25)]
    assert values == sorted(values)


def verdict(
    *,
    n_subjects: int = 1024,
    n_components: int = 20,
    n_basis: int = 100,
    epsilon: float = 1.0,
    brains: bool = False,
) -> Forecast:
    size = RunSize(n_subjects=n_subjects, n_sites=4, noise_shares=3, delta=1e-5)
    mu = math.inf if math.isinf(epsilon) else gdp_mu(epsilon=epsilon, delta=1e-5)
    rule = TemporalRule(n_components=n_components, basis_energy=0.979, brains=brains)
    return rule.forecast(size, mu, n_basis=n_basis)


@pytest.mark.parametrize("people", [290, 1024, 100_000])
def test_of_images_of_brains_the_answer_is_no_at_any_g_and_no_change_would_help(people) -> None:
    """`budget` said no, and the warnings of the run said "On synthetic data all 70 runs"."""
    got = verdict(n_subjects=people, brains=True)
    assert got.answer == "no"
    assert got.usable == (people > 290)  # G alone refuses a run
    assert got.text == f"No: {temporal.NO_TEMPORAL}."
    assert not any("synthetic data" in text for text in got.warnings)
    assert verdict(n_subjects=people, brains=True, epsilon=math.inf).answer == "yes"


def test_a_run_on_images_says_what_budget_says() -> None:
    settings = {"epsilon": 8.0, "mask": "MNI152-10mm", "n_components": 10}
    given = planner_of("capedjica").config.from_input({**settings, "delta": 1e-5})
    with_warnings = planner_of("capedjica").plan_run(given, 4, 1000, mask_space(given))
    assert f"No: {temporal.NO_TEMPORAL}." in with_warnings.warnings


def test_a_good_plan_is_a_yes_and_synthetic_and_real_data_are_told_apart() -> None:
    got = verdict()
    assert (got.answer, got.usable) == ("yes", True)
    assert got.g == pytest.approx(237.7, abs=0.1)
    assert got.smallest_epsilon == pytest.approx(0.973, abs=0.005)
    assert got.largest_n_components >= 20
    assert got.text == "Yes: the effective size is 238, and 20 components need 232."
    told = (got.warnings, verdict(brains=True).warnings)
    on = [[[w for w in each if f"{kind} data" in w] for kind in ("synthetic", "real")]
          for each in told]  # fmt: skip
    assert [[len(texts) for texts in each] for each in on] == [[1, 0], [0, 1]]
    assert "spatial" in on[1][1][0]


def test_between_the_thresholds_the_answer_depends_on_the_maps() -> None:
    got = verdict(n_subjects=500)
    assert (got.answer, got.usable) == ("perhaps", True)
    assert got.text.startswith(
        "Perhaps: the effective size is 116, and 20 components need 232 to be sure, 68"
    )
    assert "on synthetic focal (sparse) maps 9 of 10 runs like this confirmed" in got.text
    assert "of smooth ones nothing is separated" in got.text


def test_a_chance_is_said_in_runs_of_ten_and_no_only_where_few_confirm_a_map() -> None:
    """G 105 of R 20 was once a "no", where 19 of 20 focal runs come back, and `join` refused it."""
    for R, no in ((3, 25), (5, 38), (10, 46), (20, 69), (30, 95)):
        rule = TemporalRule(n_components=R)
        assert rule.answer(no - 1) == "no"
        assert rule.answer(no) == "perhaps"
        values = [rule.chance(g) for g in range(0, 300)]
        assert values == sorted(values)
        assert rule.chance(rule.refused_below()) < 0.2
    rule = TemporalRule(n_components=20)
    for g, words in (
        (69, "1 of 10 runs like this"), (84, "5 of 10 runs like this"),
        (93, "8 of 10 runs like this"), (104, "9 of 10 runs like this"), (127, "all runs"),
    ):  # fmt: skip
        assert f"on synthetic focal (sparse) maps {words} confirmed" in rule.reason(g)
    assert "of smooth ones not always something is separated" in rule.reason(127)
    # Only of the default algorithm: nothing else was measured there.
    for changes in ({"unmeasured": "n_rounds=19"}, {"spatial_start": False}, {"effort": 1.14}):
        rule = TemporalRule(n_components=20, **changes)
        assert rule.refused_below() == rule.likely_g()


def test_a_hopeless_plan_says_what_would_help_and_the_advice_works() -> None:
    got = verdict(n_subjects=290)
    assert (got.answer, got.usable) == ("no", False)
    assert got.text.startswith(
        "No: the effective size is 67, and 20 components need 232 to be sure, 68 at"
    )
    assert verdict(n_subjects=got.smallest_n_subjects).answer == "yes"
    assert verdict(n_subjects=got.smallest_n_subjects - 1).answer == "perhaps"
    epsilon = float(got.text.split("epsilon: at least ")[1].split(";")[0])
    assert verdict(n_subjects=290, epsilon=epsilon).answer == "yes"
    middle = verdict(n_subjects=500)
    assert f"components: at most {middle.largest_n_components}" in middle.text
    fewer = verdict(n_subjects=500, n_components=middle.largest_n_components)
    assert fewer.answer == "yes"


def test_nobody_is_told_to_raise_epsilon_past_what_a_board_can_sign() -> None:
    got = verdict(n_subjects=40)
    assert got.smallest_epsilon > 10
    assert "epsilon: at least" not in got.text
    (caution,) = [text for text in got.warnings if "almost nothing" in text]
    assert caution.startswith("Epsilon alone would have to be 50.2, and above 10 ")
    (caution,) = [t for t in verdict(epsilon=12.0).warnings if "almost nothing" in t]
    assert caution == "Epsilon is 12: above 10 it protects almost nothing."
    assert not any("almost nothing" in text for text in verdict().warnings)


MATRIX = {"feature_space": "matrix", "n_features": 100}


@pytest.mark.parametrize(
    ("settings", "g", "answer"),
    [
        ({"n_rounds": 19}, 240, "perhaps"),
        ({"n_rounds": 19}, 104, "no"),
        ({"n_rounds": 40}, 240, "yes"),
        ({"solver": "infomax"}, 10_000, "no"),
        ({"solver": "infomax"}, 20_000, "perhaps"),
        ({"pca": "covariance"}, 600, "no"),
        ({"score": "tanh"}, 300, "no"),
        ({"prewhiten": "none"}, 240, "perhaps"),
        ({"shares": "0.4,0.3,0.3"}, 240, "perhaps"),
        ({"shares": "auto", "n_looks": 0}, 240, "yes"),
    ],
)
def test_what_was_not_measured_is_never_a_yes_and_noise_is_refused_for_it_too(settings, g, answer):
    name = "paperdjica" if {"solver", "pca"} & set(settings) else "capedjica"
    if name == "paperdjica":  # beside one choice of the papers the others are those of capedjica
        settings = {
            "pca": "projector", "whitening": "log-euclidean", "solver": "quasi-newton",
            "prewhiten": "ar1", **settings,
        }  # fmt: skip
    config = load(name).config.from_input({"epsilon": 1.0, "delta": 1e-5, "basis": "none",
                                           **MATRIX, **settings})  # fmt: skip
    rule = planner_of(name).rule(config, 100)
    size = RunSize(n_subjects=1024, n_sites=4, noise_shares=3, delta=1e-5)
    told = rule.advice(size, g / size.g_of(1.0))
    assert told.answer == answer
    if answer == "perhaps":
        assert "was not measured" in told.reason
        assert told.synthetic_data == ""
    if answer != "yes" and g >= temporal.sure_g(20):
        (change,) = told.changes
        paper = name == "paperdjica"  # leaving a default out chooses it again
        assert change.startswith("computation: capedjica" if paper else "settings: without ")
    assert rule.forecast(size, g / size.g_of(1.0), n_basis=100).usable == (answer != "no")


def test_a_run_without_noise_promises_nothing() -> None:
    got = verdict(epsilon=math.inf)
    assert (got.answer, got.usable) == ("yes", True)
    assert math.isinf(got.g)
    assert "nobody is protected" in got.text
    assert got.map_energy == pytest.approx(0.979)


def test_too_large_a_basis_and_too_many_components_are_warned_about() -> None:
    assert any("basis of 1000" in text for text in verdict(n_basis=1000).warnings)
    assert not any("basis" in text for text in verdict(n_basis=64).warnings)
    assert any("never measured" in text for text in verdict(n_components=40).warnings)
