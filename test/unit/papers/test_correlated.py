"""The corrected CAPE formulas against the pseudo-inverse of everything that is seen."""

from __future__ import annotations

import itertools
import math
import runpy
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cape.errors import ConfigError
from cape.papers.correlated import paper_colluders, printed_factor, view_factor
from cape.privacy.accounting import gdp_delta, gdp_epsilon
from support.closed_forms import (
    estimate_variances,
    local_noise_std,
    noise_ratio,
    one_site_factor,
    printed_view_factor,
    seen_mu,
    share_variance,
)


def script(name):
    """Return the functions of a script of docs/checks."""
    path = Path(__file__).parents[3] / "docs" / "checks" / f"{name}.py"
    return SimpleNamespace(**runpy.run_path(str(path), run_name="check"))


UNEQUAL = script("unequal_sizes")

TABLE = [  # S, S_C, printed, printed view done right, right, secure sum
    (2, 0, 1.33333333, 1.33333333, Fraction(4, 3), 1),
    (3, 0, 1.25, 1.5, Fraction(3, 2), 1),
    (4, 0, 1.2, 1.6, Fraction(8, 5), 1),
    (4, 1, 1.47450980, 1.29523810, Fraction(28, 15), Fraction(4, 3)),
    (5, 1, 1.31944444, 1.31944444, Fraction(15, 8), Fraction(5, 4)),
    (6, 1, 1.23956044, 1.34025974, Fraction(66, 35), Fraction(6, 5)),
    (7, 2, 1.36818182, 1.27647059, Fraction(21, 10), Fraction(7, 5)),
    (8, 2, 1.27407407, 1.27407407, Fraction(56, 27), Fraction(4, 3)),
    (10, 3, 1.29557190, 1.24005027, Fraction(170, 77), Fraction(10, 7)),
    (20, 6, 1.15907902, 1.15907902, Fraction(340, 147), Fraction(10, 7)),
    (30, 9, 1.10880808, 1.11735370, Fraction(510, 217), Fraction(10, 7)),
    (60, 19, 1.06183371, 1.06427036, Fraction(6060, 2501), Fraction(60, 41)),
]
BEYOND = [(4, 2, 3.4, Fraction(12, 5)), (10, 8, -1.3747, Fraction(60, 11))]


# -- the oracle: covariance of ALL messages, pseudo-inverse ----------------------------------------


def seen_matrix(weights, colluders):
    """Return the map from (seeds, local noises) to all that the aggregator with colluders holds.

    Rows: the broadcast sum of seeds, every site's output, then the colluders' own noise.
    """
    n = len(weights)
    total = np.concatenate([weights, np.zeros(n)])
    rows = [total]
    for s in range(n):
        row = np.zeros(2 * n)
        row[s] = row[n + s] = 1.0
        rows.append(row - total / (weights[s] * n))
    for s in colluders:
        rows += [np.eye(2 * n)[s], np.eye(2 * n)[n + s]]
    return np.array(rows)


def oracle_mu2(weights, seeds, local, colluders, victim):
    """Return v' pinv(Cov) v, v the shift of the victim's output by 1."""
    weights = np.asarray(weights, dtype=float)
    # Units of the local noise make the matrix well conditioned for every seed ratio.
    seen = seen_matrix(weights, colluders)
    std = np.sqrt(np.concatenate([seeds, local]))
    left, values, _ = np.linalg.svd(seen * std, full_matrices=False)
    kept = values > 1e-11 * values[0]
    shift = left[1 + victim, kept] / values[kept]
    return float(shift @ shift)


def oracle_factor(n_sites, colluders, ratio):
    mu2 = oracle_mu2(
        np.ones(n_sites),
        np.full(n_sites, float(ratio)),
        np.ones(n_sites),
        range(n_sites - colluders, n_sites),
        0,
    )
    return mu2 * n_sites  # an outsider has 1/S in units of (Delta/tau_g)^2


@pytest.mark.parametrize("n_sites", range(1, 13))
def test_the_factor_is_the_pseudo_inverse_for_all_colluders_and_ratios(n_sites):
    rng = np.random.default_rng(n_sites)
    ratios = [0.3, 1, n_sites, 25, 100, *rng.uniform(0.01, 200.0, 3)]
    for colluders, ratio in itertools.product(range(n_sites), ratios):
        f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
        assert float(f) == pytest.approx(oracle_factor(n_sites, colluders, ratio), rel=1e-9)


def test_without_zero_sum_noise_the_local_noise_is_all_there_is():
    for n_sites, colluders in ((1, 0), (4, 1), (9, 4)):
        assert view_factor(n_sites=n_sites, colluders=colluders, ratio=0) == n_sites


@pytest.mark.parametrize("row", TABLE)
def test_the_table_of_printed_and_right_factors_is_reproduced(row):
    n_sites, colluders, printed, same_view, right, floor = row
    sites = {"n_sites": n_sites, "colluders": colluders}
    assert float(printed_factor(**sites)) == pytest.approx(printed, abs=5.1e-9)
    assert float(printed_view_factor(**sites)) == pytest.approx(same_view, abs=5.1e-9)
    assert view_factor(**sites, ratio=n_sites) == right
    assert view_factor(**sites, ratio=math.inf) == floor


@pytest.mark.parametrize("row", BEYOND)
def test_beyond_the_papers_number_of_colluders_the_printed_factor_is_anything(row):
    n_sites, colluders, printed, right = row
    sites = {"n_sites": n_sites, "colluders": colluders}
    assert float(printed_factor(**sites)) == pytest.approx(printed, abs=5.1e-5)
    assert view_factor(**sites, ratio=n_sites) == right


def test_the_printed_factor_can_be_undefined():
    assert printed_factor(n_sites=3, colluders=2) is None
    assert view_factor(n_sites=3, colluders=2, ratio=3) == 3


def test_with_the_papers_colluders_the_printed_factor_is_too_small_from_three_sites_on():
    for n_sites in range(3, 200):
        sites = {"n_sites": n_sites, "colluders": paper_colluders(n_sites)}
        right = view_factor(**sites, ratio=n_sites)
        assert printed_factor(**sites) < right
        assert printed_view_factor(**sites) <= right
        # Without colluders the honest seeds' sum is T itself, so nothing is missing from the view.
        assert (printed_view_factor(**sites) == right) == (sites["colluders"] == 0)


def test_the_printed_view_is_the_block_inverse_of_its_own_covariance():
    for n, c in itertools.product(range(1, 13), range(12)):
        if c >= n:
            continue
        h = n - c
        sigma = np.full((h + 1, h + 1), -1.0 / n)
        sigma[:h, :h] += (1 + 1 / n) * np.eye(h)
        sigma[h, :] = sigma[:, h] = 1 - h / n
        sigma[h, h] = h
        if c == 0:  # the sum is a constant times the outputs' noise there
            sigma = sigma[:h, :h]
        f = np.linalg.inv(sigma)[0, 0]
        assert float(printed_view_factor(n_sites=n, colluders=c)) == pytest.approx(f, rel=1e-9)


def test_the_papers_colluders_are_a_third_minus_one():
    assert [paper_colluders(n) for n in (1, 2, 3, 4, 6, 7, 9, 10, 60)] == [
        0, 0, 0, 1, 1, 2, 2, 3, 19,
    ]  # fmt: skip


def test_more_zero_sum_noise_leaks_less_and_nothing_goes_below_the_secure_sum():
    for n_sites, colluders in ((4, 1), (10, 3)):
        sites = {"n_sites": n_sites, "colluders": colluders}
        falling = [view_factor(**sites, ratio=r) for r in (0, 0.5, 1, 10, 100, 1e6, math.inf)]
        assert falling == sorted(set(falling), reverse=True)
    over = [view_factor(n_sites=4, colluders=1, ratio=r) * 3 / 4 for r in (1, 10, 100, 1000)]
    assert over == [2, Fraction(13, 11), Fraction(103, 101), Fraction(1003, 1001)]
    over = [view_factor(n_sites=10, colluders=3, ratio=r) * 7 / 10 for r in (1, 10, 100, 1000)]
    assert over == [4, Fraction(17, 11), Fraction(107, 101), Fraction(1007, 1001)]


def test_a_curious_site_subtracts_its_own_share():
    for n in (2, 4, 9):
        seeds, local = np.full(n, 3.0), np.ones(n)
        mine = np.eye(2 * n)
        total, sum_of_outputs = np.zeros(2 * n), np.zeros(2 * n)
        total[:n] = sum_of_outputs[n:] = 1.0
        seen = np.array([total, sum_of_outputs, mine[0], mine[n]])
        left, values, _ = np.linalg.svd(seen * np.sqrt(np.r_[seeds, local]), full_matrices=False)
        shift = left[1] / values
        assert n * float(shift @ shift) == pytest.approx(float(one_site_factor(n)), rel=1e-12)


def test_calibration_and_mu_are_inverse_and_the_integer_variance_is_the_least():
    sites = {"n_sites": 4, "colluders": 1}
    for ratio in (0, 1, 4, 1000, math.inf):
        std = local_noise_std(mu=0.3, sensitivity=2.0, **sites, ratio=ratio)
        mu = seen_mu(sensitivity=2.0, local_std=std, **sites, ratio=ratio)
        assert mu == pytest.approx(0.3, rel=1e-14)
        f = view_factor(**sites, ratio=ratio)
        s2 = share_variance(mu=0.3, delta_int=2000, **sites, ratio=ratio)
        assert Fraction(2000**2) * f / (4 * s2) <= Fraction(0.3) ** 2
        assert Fraction(2000**2) * f / (4 * (s2 - 1)) > Fraction(0.3) ** 2
        assert math.sqrt(s2) == pytest.approx(1000 * std, rel=1e-6)
    assert local_noise_std(mu=1.0, sensitivity=1.0, **sites, ratio=math.inf) == pytest.approx(
        3**-0.5
    )


THEOREM_1 = [(4, 0.8840, 0.8046), (6, 0.8091, 0.8091), (7, 0.8509, 0.8582), (8, 0.8205, 0.8524),
             (20, 0.7819, 0.9048)]  # fmt: skip


@pytest.mark.parametrize(("n_sites", "claimed", "true"), THEOREM_1)
def test_theorem_1_as_printed_is_false_from_seven_sites_on(n_sites, claimed, true):
    from cape.papers.formulas import tail_epsilon

    sites = {"n_sites": n_sites, "colluders": paper_colluders(n_sites)}
    scale = 0.5 / math.sqrt(2 * math.log(125))
    printed = tail_epsilon(scale * math.sqrt(printed_factor(**sites)), 1e-5)
    right = gdp_epsilon(mu=scale * math.sqrt(view_factor(**sites, ratio=n_sites)), delta=1e-5)
    assert printed == pytest.approx(claimed, abs=5.1e-5)
    assert right == pytest.approx(true, abs=5.1e-5)
    assert (printed < right) == (n_sites >= 7)


def test_pooled_data_are_never_worse_protected_than_what_cape_shows():
    def delta(f):
        return gdp_delta(epsilon=0.5, mu=math.sqrt(f) / 6.0)

    pooled, cape, conventional = delta(1), delta(view_factor(n_sites=4, colluders=1, ratio=4)), (
        delta(4)
    )  # fmt: skip
    assert pooled == pytest.approx(8.2e-5, abs=5.1e-6)
    assert cape == pytest.approx(1.4e-3, abs=5.1e-5)
    assert conventional == pytest.approx(1.2e-2, abs=5.1e-4)


# -- accuracy: H(n), gain, drop-outs ---------------------------------------------------------------


def test_unequal_sizes_cost_accuracy_by_h_of_n():
    sizes = [60, 80, 100, 160]
    h = float(UNEQUAL.imbalance(sizes))
    assert h == pytest.approx(1.432726, abs=5.1e-7)
    assert UNEQUAL.imbalance([25, 25, 25]) == UNEQUAL.imbalance([7]) == 1
    assert noise_ratio(sizes, lambda n: 1 / n) == pytest.approx(h, rel=1e-12)
    assert noise_ratio([50] * 4, lambda n: 2 / n) == pytest.approx(1.0, rel=1e-12)
    # Condition (ii) of Proposition 2, with another sensitivity: Delta(n) = n^-1/2 wastes 1/S^2.
    assert noise_ratio([50] * 4, lambda n: n**-0.5) == pytest.approx(1 / 4, rel=1e-12)


def test_the_gain_over_the_conventional_scheme_is_the_number_of_sites():
    found = estimate_variances([2.0, 2.0, 2.0, 2.0])
    assert (found.conventional, found.cape, found.gain) == (1.0, 0.25, 4.0)
    assert estimate_variances([0.3, 1.0, 7.0]).gain == pytest.approx(3.0, rel=1e-15)


# -- refusals --------------------------------------------------------------------------------------

SITES = {"n_sites": 4, "colluders": 1}
REFUSED = {
    "no site": lambda: view_factor(n_sites=0, colluders=0, ratio=1),
    "half a site": lambda: view_factor(n_sites=2.5, colluders=0, ratio=1),
    "negative colluders": lambda: view_factor(n_sites=4, colluders=-1, ratio=1),
    "all collude": lambda: view_factor(n_sites=4, colluders=4, ratio=1),
    "negative ratio": lambda: view_factor(**SITES, ratio=-0.1),
    "ratio nan": lambda: view_factor(**SITES, ratio=math.nan),
    "one site alone": lambda: one_site_factor(1),
    "no sensitivity": lambda: seen_mu(sensitivity=0.0, local_std=1.0, **SITES, ratio=1),
    "no noise": lambda: seen_mu(sensitivity=1.0, local_std=0.0, **SITES, ratio=1),
    "mu infinite": lambda: local_noise_std(mu=math.inf, sensitivity=1.0, **SITES, ratio=1),
    "delta_int 0": lambda: share_variance(mu=1.0, delta_int=0, **SITES, ratio=1),
    "an empty site, Prop. 2": lambda: noise_ratio([0], lambda n: 1.0),
    "sensitivity 0, Prop. 2": lambda: noise_ratio([2], lambda n: 0.0),
    "no sites": lambda: estimate_variances([]),
    "negative std": lambda: estimate_variances([1.0, -1.0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_refused_with_what_was_got_and_what_is_allowed(name):
    with pytest.raises(ConfigError) as caught:
        REFUSED[name]()
    assert caught.value.code == "CAPE-E011"
    assert "allowed" in caught.value.public
    assert caught.value.public.split("; ")[1].strip(" .")
