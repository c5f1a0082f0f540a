"""Public counts, weights, halves (group comparison, sections 3 and 6)."""

from __future__ import annotations

import numpy as np
import pytest

from cape.algorithms.group_design import Groups, half_of_sites, weights


def test_weights_of_a_site_sum_to_nothing_and_stay_within_a_half() -> None:
    for cases in range(8):
        r = weights(np.array([1] * cases + [0] * (7 - cases)))
        assert abs(r.sum()) < 1e-15
        assert np.abs(r).max() == (0.5 if 0 < cases < 7 else 0.0)


def test_what_is_known_of_the_groups_is_what_the_weights_give() -> None:
    sites = [np.array([1] * n1 + [0] * n0) for n1, n0 in ((3, 9), (10, 4), (0, 6), (5, 5))]
    groups = Groups(
        people=np.array([len(g) for g in sites]), cases=np.array([g.sum() for g in sites])
    )
    r = [weights(g) for g in sites]
    each = [float(np.mean(a * (g - g.mean()))) for a, g in zip(r, sites, strict=True)]
    np.testing.assert_allclose(groups.separation, each)
    everybody, g = np.concatenate(r), np.concatenate([g - g.mean() for g in sites])
    assert groups.mean_separation == pytest.approx(np.mean(everybody * g))
    assert groups.mean_square == pytest.approx(np.mean(everybody**2))
    assert groups.between == pytest.approx(np.var(np.concatenate(sites)))


def test_halves_of_sites_take_one_of_each_pair_of_like_size() -> None:
    names, people = ["d", "a", "c", "b", "e"], np.array([10, 99, 12, 80, 5])
    seen = {half_of_sites(bytes([i]), names, people).tobytes() for i in range(40)}
    assert len(seen) == 4
    for i in range(10):
        inside = half_of_sites(bytes([i]), names, people)
        assert inside[1] != inside[3]
        assert inside[0] != inside[2]
        assert inside[4]
