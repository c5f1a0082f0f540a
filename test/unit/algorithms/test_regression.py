"""The looks of a comparison: budget, exchanges, and answers in the fast driver."""

import math

import numpy as np
import pytest

from cape.algorithms import population
from cape.algorithms.answer import answers
from cape.algorithms.facts import Facts
from cape.algorithms.looks import plan
from cape.algorithms.placed import Seen
from cape.algorithms.regression import Regressed, facts_of
from cape.algorithms.typical import errors, typical
from cape.errors import MessageError
from support.fast_comparison import fast, run
from support.regressions import KINDS, draw_rows, question_of, regression_of

SETTINGS = {
    "variables": "dx HC/SZ, group HC/SZ/BD, sex F/M, age 18:90, iq 40:160",
    "outcomes": "u -8:8, v -80:80",
}


def tables(
    n: int, rng: np.random.Generator, S: int = 4, missing: float = 0.0
) -> dict[str, dict[str, np.ndarray]]:
    """Return sites whose groups differ by .4 in u and by 0 in v; sd 2 and 20, age .05 and .5."""
    made = {}
    for s in range(S):
        dx, sex = rng.integers(2, size=n), rng.integers(2, size=n)
        group = rng.integers(3, size=n)
        age = rng.normal(45 + 2 * dx, 12)
        values = {}
        for name, size, effect in (("u", 2.0, 0.4), ("v", 20.0, 0.0)):
            y = size * (rng.standard_normal(n) + 0.025 * (age - 45) + rng.normal(0, 0.5))
            y = y + size * (effect * dx + effect * (group == 2))
            values[name] = np.where(rng.random(n) < missing, np.nan, y)
        made[f"site {s}"] = {
            "dx": np.array(["HC", "SZ"])[dx],
            "group": np.array(["HC", "SZ", "BD"])[group],
            "sex": np.array(["F", "M"])[sex],
            "age": age,
            "iq": rng.normal(100, 15, n),
            **values,
        }
    return made


# -- the budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_every_question_are_the_whole_budget(kind: str) -> None:
    """A share that is lost makes noise larger for nothing; one too many would not be paid."""
    question, rng = question_of(kind), np.random.default_rng(1)
    for G in (20.0, 300.0, 1e4):
        rows = draw_rows(question, [30, 20, 40], rng)
        if not question.pattern:
            regression = regression_of(question, rows, G)
            assert regression.share == pytest.approx(1.0)
            assert sum(one.weight for one in regression.schedule(0)) == pytest.approx(1.0)
            assert max(one.round for one in regression.schedule(0)) <= 6
            continue
        whole = regression_of(question, rows, G, stage="design")
        designed = bool(whole.terms[0].x_columns)
        given = (whole, whole.start(0)) if designed else None
        exchanges = max(one.round for one in whole.schedule(0)) if designed else 0
        for K in (len(question.outcomes), 1):
            has = np.ones((3, K), dtype=bool)
            score = [one[:, len(question.outcomes) - K :] for one in rows]
            half = regression_of(question, score, G, has, stage="half", given=given)
            assert half.share + whole.share * designed == pytest.approx(1.0)
            exchanges += max(one.round for one in half.schedule(0))
        assert exchanges <= 11


def test_every_share_is_worth_asking() -> None:
    question = question_of("three terms")
    rows = draw_rows(question, [30, 20, 40], np.random.default_rng(1))
    for one in regression_of(question, rows, 300.0).schedule(0):
        assert one.weight > 0.003
        assert one.name.split(".")[0] in ("1", "2", "3")


def test_a_plan_hangs_on_public_numbers_alone() -> None:
    """Counts of a half are drawn after the plan is made: they change no look."""
    question = question_of("five outcomes")
    plans = [
        plan(regression_of(question, draw_rows(question, sizes, rng), 300.0).terms[0])
        for rng in (np.random.default_rng(1), np.random.default_rng(2))
        for sizes in ([30, 20, 40], [10, 90, 12])
    ]
    assert all(one == plans[0] for one in plans)


def test_a_state_of_another_form_is_refused() -> None:
    question = question_of("two groups")
    regression = regression_of(
        question, draw_rows(question, [9, 9], np.random.default_rng(1)), 99.0
    )
    start = regression.start(0)
    values, noise = start.values, start.noise
    for others in ((values[1:], noise, 0), (values, noise[:2], 0), (values, noise, 9)):
        made = others[2]
        state = Regressed(
            round=made, values=others[0], noise=others[1], status="released", record=start.record
        )
        with pytest.raises(MessageError, match="E202"):
            regression.queries(state)


# -- answers -------------------------------------------------------------------------------------


def test_two_groups_are_found_in_units_of_the_outcome() -> None:
    """Five standard errors: a false alarm once in a million and a half."""
    found = fast(
        {**SETTINGS, "formula": "dx + age + sex", "public": "dx"},
        tables(500, np.random.default_rng(1)),
        epsilon=6.0,
        rng=np.random.default_rng(2),
    )
    u, v = found.effects
    assert (u.term, u.contrast, u.outcome) == ("dx", "SZ - HC", "u")
    assert abs(u.estimate - 0.8) < 5 * u.se
    assert abs(v.estimate) < 5 * v.se
    assert u.se < 0.14
    assert 1.8 < u.sd < 2.2
    assert u.d == pytest.approx(u.estimate / u.sd)
    assert u.p < 1e-4 < v.p
    assert u.fits == "yes"
    assert u.se**2 == pytest.approx(
        u.se_sampling**2 + u.se_privacy**2 + u.se_adjustment**2 + u.se_shape**2 + u.se_sites**2
    )


def test_errors_are_as_large_as_said() -> None:
    """z of 40 null answers: the sum of squares is within chi2 of 40 at 1e-5 on each side."""
    squares = 0.0
    for seed in range(40):
        found = fast(
            {**SETTINGS, "formula": "dx + age", "public": "dx", "outcomes": "v -80:80"},
            tables(200, np.random.default_rng([seed, 1]), missing=0.1),
            epsilon=2.0,
            rng=np.random.default_rng([seed, 2]),
        )
        squares += (found.effects[0].estimate / found.effects[0].se) ** 2
    assert 11.0 < squares < 90.0


def test_ranges_ten_times_too_wide_change_little() -> None:
    """Units are found: .1 of the truth was d for such a range before."""
    settings = {**SETTINGS, "formula": "dx + age + sex", "public": "dx"}
    settings["outcomes"] = "u -60:100, v -600:1000"
    settings["variables"] = settings["variables"].replace("18:90", "0:600")
    found = fast(
        settings, tables(500, np.random.default_rng(1)), epsilon=6.0, rng=np.random.default_rng(2)
    )
    assert abs(found.effects[0].estimate - 0.8) < 5 * found.effects[0].se
    assert found.effects[0].se < 0.16
    assert 1.7 < found.effects[0].sd < 2.3


def test_an_outcome_that_one_site_lacks_is_answered_by_the_others() -> None:
    settings = {**SETTINGS, "formula": "dx + age", "public": "dx"}
    sites = tables(500, np.random.default_rng(1))
    found = fast(settings, sites, epsilon=6.0, rng=np.random.default_rng(2),
                 lacks={"site 0": {"u"}})  # fmt: skip
    u, v = found.effects
    assert abs(u.estimate - 0.8) < 5 * u.se
    assert u.se / u.sd > 1.05 * v.se / v.sd
    # Pairs of the site that is not asked were counted once: no d, and an error far too small.
    one = {**settings, "outcomes": "u -8:8"}
    without = {name: table for name, table in sites.items() if name != "site 0"}
    rows = [
        (
            fast(one, sites, epsilon=6.0, rng=np.random.default_rng(seed),
                 lacks={"site 0": {"u"}}).effects[0],
            fast(one, without, epsilon=6.0, rng=np.random.default_rng(seed)).effects[0],
        )
        for seed in range(7)
    ]  # fmt: skip
    assert all(row.fits == "yes" for both in rows for row in both)
    alone, others = np.median([[row.se for row in both] for both in rows], axis=0)
    assert alone == pytest.approx(others, rel=0.15)
    nobody = fast(settings, sites, epsilon=6.0, rng=np.random.default_rng(2),
                  lacks={name: {"u"} for name in sites})  # fmt: skip
    assert nobody.effects[0].fits == "lacks"
    assert nobody.effects[0].estimate is None
    assert nobody.effects[0].p is None
    assert nobody.effects[1].fits == "yes"


def test_ties_have_no_d_and_copies_no_p() -> None:
    """Nothing was said of scores with two thirds of equal values, whose p and d hold."""
    settings = {**SETTINGS, "formula": "dx + age + iq", "public": "dx", "outcomes": "u -8:8"}
    sites = tables(500, np.random.default_rng(1))
    for least, fits in ((3.0, "yes"), (4.5, "ties")):
        zeros = {name: {**one, "u": np.where(one["u"] < least, 0.0, one["u"])}
                 for name, one in sites.items()}  # fmt: skip
        row = fast(settings, zeros, epsilon=6.0, rng=np.random.default_rng(2)).effects[0]
        assert row.fits == fits
        assert row.p is not None
        assert (row.d is None) == (fits == "ties")
    copied = {name: {**one, "iq": 2.0 * one["age"]} for name, one in sites.items()}
    found = fast(settings, copied, epsilon=6.0, rng=np.random.default_rng(2))
    assert found.effects[0].fits == "partly"
    assert found.effects[0].p is None
    assert found.effects[0].estimate is not None


@pytest.mark.parametrize(("flipped", "told"), [(0.0, False), (0.1, True)])
def test_levels_that_say_the_same_as_the_groups_cannot_be_told_apart(flipped, told) -> None:
    """ "No difference was found" was said at +-2.3 sd."""
    settings = {**SETTINGS, "formula": "dx + sex", "public": "dx"}
    for n, epsilon, more in (
        (200, 2.0, {}), (200, 8.0, {}), (1000, 4.0, {}), (1000, 4.0, {"test": "pattern"})
    ):  # fmt: skip
        rng = np.random.default_rng(3)
        sites = tables(n, rng)
        for one in sites.values():
            other = (one["dx"] == "SZ") ^ (rng.random(n) < flipped)
            one["sex"] = np.where(other, "M", "F")
        row = fast({**settings, **more}, sites, epsilon=epsilon, rng=rng).effects[0]
        assert (row.fits != "partly") == (row.p is not None) == told, (n, epsilon)


# -- facts ---------------------------------------------------------------------------------------


def test_a_column_stretched_by_mistake_stays_in_its_ball() -> None:
    """Noise of a thousandth of runs made one column eightfold: answers of ten standard errors."""
    question = question_of("two groups")
    rows = draw_rows(question, [400, 400], np.random.default_rng(1))
    public = regression_of(question, rows, 300.0).terms[0]
    f = typical(public)
    assert math.isinf(f.limit)
    seen = {one.name: f.seen(one.name) for one in f.plan.looks}
    octaves = np.zeros(population.BINS)
    octaves[3] = 0.5
    seen["xwhere"] = Seen(octaves, 0.01)
    moments = f.seen("design").mean.copy()
    moments[0] = 4.0
    seen["design"] = Seen(moments, 0.1)
    wrong = Facts(public, f.plan, seen)
    assert wrong.stretch[0] > 5
    assert wrong.limit == wrong.b


def test_public_people_have_the_imbalance_asked_for_and_gamma_removes_it() -> None:
    question = question_of("three groups")
    rows = draw_rows(question, [300, 500], np.random.default_rng(1))
    public = regression_of(question, rows, 300.0).terms[0]
    r, g, site = population.public_people(public)
    assert np.abs(np.stack([r[site == s].sum(axis=0) for s in (0, 1)])).max() < 1e-9
    imbalance = np.array([[0.04, -0.02], [0.0, 0.03]])
    x = population.synthetic(r, g, imbalance, np.eye(2))
    assert x.T @ r / len(r) == pytest.approx(imbalance, abs=0.03)
    gamma = population.solve(r, x, None)
    assert np.abs(x.T @ population.weight(r, x @ gamma, None) / len(r)).max() < 1e-4


@pytest.mark.parametrize("octave", [-5.0, -1.0, 0.0, 2.0, 5.0])
def test_the_octave_of_an_outcome_is_found(octave: float) -> None:
    z = population.normals(4000, 2, seed=3) * 2.0**octave
    bins = population.octave_of(np.abs(z[:, 0] - z[:, 1]) / math.sqrt(2))
    shares = np.bincount(bins, minlength=population.BINS) / (2 * len(z))
    assert population.octave(shares, 1e-3, 1, (0.0, 2.0)) == pytest.approx(octave, abs=0.15)
    found, sd = population.careful_octave(shares, 1e-3)
    assert found == pytest.approx(octave, abs=0.15)
    assert sd < 0.2
    # Beside others the most likely place, and theirs where noise hides it
    others = np.roll(shares, -int(octave))
    several = np.array([shares, others, others, others])
    assert population.octaves(several, 1e-3) == pytest.approx([octave, 0, 0, 0], abs=0.15)
    several[0] = 0.0
    assert population.octaves(several, 0.2) == pytest.approx([0.0] * 4, abs=0.7)


@pytest.mark.parametrize("size", [0.0, 0.5, 0.8])
def test_tails_of_an_outcome_are_found(size: float) -> None:
    """Groups of lognormals of other spread were .39 of true nulls rejected: C was too near."""
    z = population.normals(8000, 2, seed=3)
    v = np.expm1(size * z) / size if size else z
    bins = population.octave_of(np.abs(v[:, 0] - v[:, 1]) / math.sqrt(2))
    shares = np.bincount(bins, minlength=population.BINS) / (2 * len(z))
    assert population.tail(shares, 0.004, 8000) == pytest.approx(size, abs=0.15)
    assert population.tail(shares, 0.05, 8000) < 0.05  # nothing is known of it
    wide = population.radius(0.02, 0.02, 1, population.tail(shares, 0.004, 8000))
    assert (wide > population.radius(0.02, 0.02, 1)) == (size > 0.0)


@pytest.mark.parametrize("K", [1, 6])
@pytest.mark.parametrize("size", [0.3, 0.5, 0.8])
def test_curves_say_what_a_cut_takes_of_skewed_groups(K: int, size: float) -> None:
    """Within two fifths, of groups whose spreads differ by e^.4; and rather too much."""
    z = population.normals(40000, 6, seed=5)
    z = z[:, :1] if K == 1 else math.sqrt(0.5) * z[:, :1] + math.sqrt(0.5) * z
    v = np.expm1(size * z) - np.mean(np.expm1(size * z))
    v = v / (np.median(np.abs(np.diff(v, axis=0))) / (0.6745 * math.sqrt(2)))
    norm = np.sqrt((v**2).mean(axis=1))
    said = (v / norm[:, None] * population.asymmetry(norm, K)[:, None]).mean(axis=0)
    skewness = float(np.linalg.norm(said)) / math.sqrt(K)
    there = [population.outside(math.exp(x) * norm, K).mean() for x in (0.2, -0.2)]
    spread = (there[0] - there[1]) / population.OUTSIDE[K > 1]
    assert spread == pytest.approx(0.4, rel=0.3)
    for c in (1.75, 2.5):
        lost = [
            (math.exp(x) * v * np.maximum(1 - c / (math.exp(x) * norm), 0.0)[:, None]).mean()
            for x in (0.2, -0.2)
        ]
        curve, careful = (
            spread * skewness * population.skewed_loss(c, K, skewness / factor)
            for factor in (population.HEAVIER, 1.0)
        )
        assert curve == pytest.approx(lost[0] - lost[1], rel=0.4)
        assert careful > lost[0] - lost[1]
    shifted = v + 0.1
    norm = np.sqrt((shifted**2).mean(axis=1))
    moved = (shifted / norm[:, None] * population.asymmetry(norm, K)[:, None]).mean(axis=0)
    assert np.linalg.norm(moved - said) < 0.03 * math.sqrt(K)  # a centre that is off by .1


def test_the_cut_goes_to_where_people_are() -> None:
    """A score of 45 outcomes that are all off lies 13 sd from the others."""
    shares = 0.97 * population.octave_shares(1)[np.argmin(np.abs(population.GRID))]
    assert population.reach(shares, 0.001, 0.0) == 0.0
    shares[10] += 0.015
    assert population.reach(shares, 0.001, 0.0) == pytest.approx(2.0**3.5)
    assert population.reach(shares, 0.02, 0.0) == 0.0


def test_protected_people_have_the_mean_square_asked_for() -> None:
    for square in (0.01, 0.06, 0.2, 0.249):
        z = population.protected_people(2000, square)
        assert np.mean(z**2) == pytest.approx(square, rel=0.01)
        assert np.abs(z).max() <= 0.5
    z = population.protected_levels(2000, 0.05, 0.2)
    assert len(np.unique(z)) == 2
    assert np.mean(z) == pytest.approx(0.0, abs=1e-3)


# -- the forecast --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["two groups", "five outcomes", "three groups", "age", "slopes"])
def test_the_forecast_is_near_the_error_of_a_run(kind: str) -> None:
    """The median of five runs lies within a quarter."""
    question = question_of(kind)
    rows = draw_rows(question, [500, 500, 500, 500], np.random.default_rng(1))
    regression = regression_of(question, rows, 1500.0)
    said = np.sqrt(np.einsum("kii->ik", errors(regression)[0].total)).mean()
    each = []
    for seed in range(5):
        (answer,) = answers(regression, run(regression, rows, np.random.default_rng(seed)))
        each.append(np.mean(np.sqrt(np.einsum("kii->ik", answer.cov)) / answer.sd))
    assert said == pytest.approx(float(np.median(each)), rel=0.25)


def test_facts_are_computed_once_for_a_state() -> None:
    question = question_of("two groups")
    regression = regression_of(
        question, draw_rows(question, [9, 9], np.random.default_rng(1)), 99.0
    )
    state = regression.start(0)
    assert facts_of(regression, state) is facts_of(regression, state)
