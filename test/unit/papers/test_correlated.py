"""The corrected CAPE formulas; docs/checks/view_of_cape.py holds them against all that is seen."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from cape.errors import ConfigError
from cape.papers.correlated import paper_colluders, printed_factor, view_factor
from support.closed_forms import printed_view_factor

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


SITES = {"n_sites": 4, "colluders": 1}
REFUSED = {
    "no site": lambda: view_factor(n_sites=0, colluders=0, ratio=1),
    "half a site": lambda: view_factor(n_sites=2.5, colluders=0, ratio=1),
    "negative colluders": lambda: view_factor(n_sites=4, colluders=-1, ratio=1),
    "all collude": lambda: view_factor(n_sites=4, colluders=4, ratio=1),
    "negative ratio": lambda: view_factor(**SITES, ratio=-0.1),
    "ratio nan": lambda: view_factor(**SITES, ratio=math.nan),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_refused_with_what_was_got_and_what_is_allowed(name):
    with pytest.raises(ConfigError) as caught:
        REFUSED[name]()
    assert caught.value.code == "CAPE-E011"
    assert "allowed" in caught.value.public
    assert caught.value.public.split("; ")[1].strip(" .")
