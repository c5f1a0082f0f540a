"""Formulas of a comparison of groups; sections are those of docs/group-comparison.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms import contrast
from cape.algorithms.contrast import Contrast, Contrasted, estimates
from cape.algorithms.group_design import Groups, weights

PUBLIC = Groups(people=np.array([30, 50, 20]), cases=np.array([10, 30, 9]))


def question(K: int = 1, *, groups: Groups = PUBLIC, **how: object) -> Contrast:
    asked = Contrast(
        scales=(1.0,) * K, covariates=(2.5, 1.0, 2.0), groups=groups, everybody=groups.n, **how
    )
    return replace(asked, noise=(1e-9,) * len(asked.looks))


def sites(K: int, effect: float = 0.0, groups: Groups = PUBLIC, seed: int = 0) -> list[np.ndarray]:
    """Return rows of people: outcomes near 1 with an offset at each site, confounded covariates."""
    rng, made = np.random.default_rng(seed), []
    assert groups.cases is not None
    for n, cases in zip(groups.people, groups.cases, strict=True):
        case = np.array([1] * cases + [0] * (n - cases))
        x = np.column_stack(
            [0.87 * rng.standard_normal(n), rng.choice([-1.0, 1.0], n), rng.standard_normal(n)]
        )
        x[:, 2] = np.clip(x[:, 2] + 0.8 * (case - 0.5), -2, 2)
        u = rng.standard_normal((n, K)) + rng.standard_normal(K) + effect * case[:, None]
        u += 0.3 * x[:, [2]]
        made.append(np.column_stack([u, x, weights(case)]))
    return made


def total(asked: Contrast, state: Contrasted, people: list[np.ndarray]) -> np.ndarray:
    query, sums = asked.query(state), []
    for site in people:
        stack = site[:, None, :]
        sums.append(query.answer(stack).sum(axis=0))
        if query.part is not None:
            sums.append(query.part(stack))
    return np.asarray(np.sum(sums, axis=0))


def play(asked: Contrast, people: list[np.ndarray], noise: float = 0.0) -> Contrasted:
    state, rng = asked.start(0), np.random.default_rng(1)
    while not asked.done(state):
        mean = total(asked, state, people) / asked.everybody
        state = asked.step(state, mean + noise * rng.standard_normal(len(mean)), max(noise, 1e-9))
    return state


def test_shares_of_every_question_are_the_whole_budget() -> None:
    """Section 4: a share that is lost makes noise larger for nothing."""
    kinds = [question(K) for K in (1, 2, 8, 9, 70)]
    kinds += [question(strict=True), question(found=True, random=True)]
    for asked in kinds:
        assert sum(look.share for look in asked.looks) == pytest.approx(1.0)
    bare = Contrast(scales=(1.0,), covariates=(), groups=PUBLIC, everybody=100)
    assert sum(look.share for look in bare.looks) == pytest.approx(1.0)
    assert {look.name for look in bare.looks}.isdisjoint({"imbalance", "moments", "effects"})


def test_a_difference_comes_back_in_units() -> None:
    """Sections 3 and 5, without noise and with many people."""
    large = Groups(people=np.array([3000, 5000, 2000]), cases=np.array([1000, 3000, 900]))
    for K in (1, 3, 12):
        asked = question(K, groups=large)
        found = estimates(asked, play(asked, sites(K, effect=0.5, groups=large)))
        assert np.all(np.abs(found.estimate - 0.5) < 4 * found.se), K
        assert np.all(found.se < (0.06 if K < 9 else 0.1)), K


def test_what_is_common_to_a_site_drops_out() -> None:
    """Section 3: scanners add what they like, no parameter of theirs is released."""
    asked, people = question(3), sites(3)
    place = [look.name for look in asked.looks].index("contrast")
    state = replace(asked.start(0), looks=place, radius=50.0)
    moved = [site + np.array([9.0 * i, -i, 3.0, 0, 0, 0, 0]) for i, site in enumerate(people)]
    np.testing.assert_allclose(total(asked, state, moved), total(asked, state, people), atol=1e-9)


def test_a_site_with_one_group_adds_zeros_to_the_contrast() -> None:
    """Section 3."""
    lone = Groups(people=np.array([40, 25]), cases=np.array([20, 25]))
    asked = question(3, groups=lone)
    first, second = sites(3, groups=lone)
    state = replace(asked.start(0), looks=[a.name for a in asked.looks].index("contrast"))
    assert not np.any(total(asked, state, [second]))
    assert np.any(total(asked, state, [first]))


def test_who_has_no_outcome_or_covariate_adds_nothing() -> None:
    asked = question(3)
    people = sites(3)
    for state in states_of(asked, people):
        rows = asked.query(state).answer
        stack = people[0][:, None, :].copy()
        stack[0, 0, 1], stack[1, 0, -2] = np.nan, np.inf
        answers = rows(stack)
        assert not np.any(answers[:2])
        assert np.all(np.isfinite(answers))
        np.testing.assert_array_equal(answers[2:], rows(people[0][:, None, :])[2:])


def states_of(asked: Contrast, people: list[np.ndarray]) -> list[Contrasted]:
    state, seen = asked.start(0), []
    while not asked.done(state):
        seen.append(state)
        mean = total(asked, state, people) / asked.everybody
        state = asked.step(state, mean, 1e-3)
    return seen


@pytest.mark.parametrize(
    "asked",
    [question(), question(3), question(12), question(70), question(found=True, random=True),
     question(strict=True, groups=Groups(people=PUBLIC.people, cases=None))],
)  # fmt: skip
def test_a_look_has_its_planned_form_and_a_row_is_of_one_person(asked: Contrast) -> None:
    """Section 4: every look in units of its own bound, so its clip is 1 whatever came before."""
    K = asked.n_outcomes
    people = sites(K)
    for state, planned in zip(states_of(asked, people), asked.schedule(0), strict=True):
        query, stack = asked.query(state), people[1][:, None, :] * 3.0
        answers = query.answer(stack)
        assert (query.size, query.clip, query.shape) == (planned.size, 1.0, planned.shape)
        assert np.all(np.linalg.norm(answers, axis=1) <= 1 + 1e-9)
        alone = np.concatenate([query.answer(one[None]) for one in stack])
        np.testing.assert_allclose(alone, answers, atol=1e-15)


def test_a_scale_is_the_median_of_absolute_values() -> None:
    """Section 4: half octaves."""
    asked, rng = question(), np.random.default_rng(3)
    for sd in (0.4, 1.0, 3.0):
        u = sd * rng.standard_normal(20_000)
        place = np.searchsorted(contrast.OCTAVES, np.abs(u))
        mean = np.bincount(place, minlength=len(contrast.OCTAVES) + 1) / len(u)
        state = asked.step(asked.start(0), mean, 0.0)
        assert state.scale[0] == pytest.approx(sd, rel=0.08)


def test_the_part_of_a_site_takes_out_what_weights_and_outcomes_share() -> None:
    """Section 3: - n R(mean z) Y(mean v), projections and not tests of a bound."""
    part = contrast.projected_part(4.0, np.array([3.0, 0.0]), 10, 1.0, 1.0)
    np.testing.assert_allclose(part, [-10 * 0.4 * 0.3, 0.0])
    part = contrast.projected_part(-40.0, np.array([30.0, 40.0]), 10, 1.0, 1.0)
    np.testing.assert_allclose(part, [10 * 1.0 * 0.6, 10 * 1.0 * 0.8])
    assert not np.any(contrast.projected_part(0.0, np.zeros(2), 0, 1.0, 1.0))


def test_covariates_may_explain_more_of_a_found_pattern() -> None:
    """Section 6: half A points it at the covariates, so each may explain .3 of it."""
    noise = (0.5**2 + 1 / PUBLIC.n) + contrast.SITE_R2 / (4 * 3)
    for found, prior in ((True, 0.3), (False, 0.15 / 3)):
        asked = question(found=found)
        state = contrast._fold_effects(asked, asked.start(0), np.zeros(3), 0.5)
        np.testing.assert_allclose(state.effect_error, prior * noise / (prior + noise))


def test_interval_of_a_large_effect_holds_the_error_of_the_slope() -> None:
    """Section 5: p at the null's error; the interval is wider where there is an effect."""
    asked = question()
    state = play(asked, sites(1, effect=2.0))
    noise = state.noise.copy()
    noise[[look.name for look in asked.looks].index("kappa")] = 0.1
    found = estimates(asked, replace(state, noise=noise))
    size = (found.estimate**2 - found.se**2) * (0.1 / np.clip(state.kappa, 0.3, 1.0)) ** 2
    np.testing.assert_allclose(found.se_interval**2, found.se**2 + size)
    assert found.se_interval[0] > 1.02 * found.se[0]
    parts = found.se_sampling**2 + found.se_privacy**2 + found.se_adjustment**2
    np.testing.assert_allclose(parts, found.se**2)


@pytest.mark.parametrize("strict", [False, True])
def test_d_of_a_large_effect_is_in_sd_of_people_within_groups(strict: bool) -> None:
    """One scale is around one centre and holds the groups' difference: d 1.2 was said to be 1."""
    large = Groups(people=np.array([4000, 6000]), cases=np.array([2000, 3000]))
    people = sites(1, effect=1.2, groups=large)
    for rows in people:
        rows[:, 0] -= 0.3 * rows[:, 3]
        rows[:, 0] -= rows[rows[:, -1] < 0, 0].mean()
    asked = question(1, groups=replace(large, cases=None) if strict else large, strict=strict)
    found = estimates(asked, play(asked, people))
    assert found.estimate[0] == pytest.approx(1.2, rel=0.05)
    assert found.d[0] == pytest.approx(1.2, rel=0.08)


def test_people_who_are_not_asked_do_not_dilute_an_answer() -> None:
    """Section 6: half of the people are asked, and the sum is over everybody."""
    asked = question(3)
    people = sites(3, effect=0.5)
    half = replace(asked, everybody=2 * asked.everybody)
    alone, among = play(asked, people), play(half, people)
    np.testing.assert_allclose(among.total, alone.total, rtol=1e-6)


def test_people_in_neither_group_change_nothing_but_who_is_counted() -> None:
    """They once made the mean of a site smaller, whose product the site's part takes out."""
    asked, people = question(2), sites(2)
    state = asked.start(0)
    while asked.looks[state.looks].name != "contrast":
        state = asked.step(state, total(asked, state, people) / asked.everybody, 1e-9)
    state = replace(state, lam=0.5, reach=0.3)
    neither = np.full((25, people[0].shape[1]), 2.0)
    neither[:, -1] = np.nan
    more = [np.vstack([site, neither]) for site in people]
    np.testing.assert_allclose(total(asked, state, more), total(asked, state, people), atol=1e-9)
