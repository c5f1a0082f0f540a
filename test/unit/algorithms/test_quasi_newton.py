"""The default solver: its scores, its question, its step."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm

from cape.algorithms.estimators import UNCLIPPED
from cape.algorithms.linalg import skew
from cape.algorithms.quasi_newton import (
    HALF_WINDOW,
    NU,
    QuasiNewton,
    Windows,
    dense_g,
    dither_signs,
    filter_gain,
    skew_moments,
    tuned_constants,
    turned,
)
from cape.algorithms.scores import isi
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.verdict import judge_run
from cape.algorithms.whitening import reduce_subject
from cape.lab.synthetic.generators import garch_sources

SIGNS = [-1, -1, 1, -1, 1, -1, -1, -1, 1, -1, 1, 1, -1, -1, 1, -1]


def solver(**changes: object) -> QuasiNewton:
    settings = {
        "n_rounds": 40,
        "clips": (0.35,),
        "step_limit": 3.0,
        "alpha_first": 2.0,
        "alpha_last": 0.3,
        "private": True,
    }
    return QuasiNewton(**(settings | changes))


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def direct_mean(power: np.ndarray) -> np.ndarray:
    """Moving mean of one row by its definition, border value repeated."""
    T = len(power)
    at = np.clip(np.arange(T)[:, None] + np.arange(-HALF_WINDOW, HALF_WINDOW + 1), 0, T - 1)
    return power[at].mean(axis=1)


def score(y: np.ndarray, name: str) -> np.ndarray:
    """Return psi(y) of a stack (n_subjects, R, T)."""
    windows = Windows(y.shape, y.dtype)
    windows.y[...] = y
    if name == "tanh":
        windows.tanh()
        return windows.psi
    windows.score()
    return windows.psi * (2 * HALF_WINDOW + 1)


@pytest.mark.parametrize("T", [1, 4, 11, 250])
def test_the_volatility_score_divides_by_the_moving_mean_of_the_power(T: int) -> None:
    y = noise(3, 4, T)
    v = np.array([[direct_mean(row**2) for row in subject] for subject in y])
    np.testing.assert_allclose(score(y, "volatility"), y / (NU + v), rtol=1e-13)


def contrast(y: np.ndarray, name: str, v: np.ndarray) -> float:
    """The function whose derivative the score is; `v` held fixed."""
    if name == "tanh":
        return float(np.sum(np.log(np.cosh(y))))
    return float(np.sum(y**2 / (2 * (NU + v))))


@pytest.mark.parametrize("name", ["tanh", "volatility"])
def test_the_moments_are_the_gradient_along_rotations(name: str) -> None:
    R, T = 4, 60
    stack, W = noise(2, R, T), np.linalg.qr(noise(R, R, seed=3))[0]
    K = skew_moments(W, stack, name)
    y = W @ stack
    v = np.array([[direct_mean(row**2) for row in subject] for subject in y])
    for m in range(2):
        for k, (i, j) in enumerate(zip(*np.triu_indices(R, 1), strict=True)):
            e = np.zeros((R, R))
            e[i, j], e[j, i] = 1e-6, -1e-6
            up, down = (contrast(expm(s * e) @ y[m], name, v[m]) for s in (1, -1))
            assert K[m, k] == pytest.approx((up - down) / 2e-6 / T, abs=1e-7)


def plain_moments(W: np.ndarray, Z: np.ndarray, name: str) -> np.ndarray:
    """One subject, row by row: what `skew_moments` does to chunks of whole subjects."""
    y = W.astype(np.float32) @ Z
    psi = np.empty_like(y)
    taps = 11 if name == "volatility" else 1
    for i, row in enumerate(y):
        if name == "tanh":
            psi[i] = np.tanh(row)
            continue
        p = np.pad(row, HALF_WINDOW, mode="edge") ** 2
        T = len(row)
        # Neighbours in the order of sums of 2, 4 and 8, which the bits depend on.
        pair = [p[k : k + T] + p[k + 1 : k + 1 + T] for k in range(0, 10, 2)]
        eight = (pair[0] + pair[1]) + (pair[2] + pair[3])
        psi[i] = row / (eight + pair[4] + p[10 : 10 + T] + np.float32(11 * NU))
    g = psi @ y.T
    upper = np.triu_indices(len(W), 1)
    return (g[upper].astype(np.float64) - g.T[upper]) * (taps / Z.shape[1])


@pytest.mark.parametrize("name", ["tanh", "volatility"])
@pytest.mark.parametrize(("n", "R", "T"), [(19, 20, 250), (60, 5, 37), (3, 40, 490), (2, 2, 11)])
def test_the_moments_have_the_bits_of_the_plain_form(n: int, R: int, T: int, name: str) -> None:
    stack = noise(n, R, T).astype(np.float32)
    W = np.linalg.qr(noise(R, R, seed=3))[0]
    plain = np.stack([plain_moments(W, Z, name) for Z in stack])
    np.testing.assert_array_equal(skew_moments(W, stack, name), plain)


def test_a_row_does_not_depend_on_the_stack() -> None:
    stack = noise(41, 20, 250).astype(np.float32)
    stack[3, 2, 7] = np.nan
    for name, dither in (("volatility", 0.0), ("volatility", 0.06), ("tanh", 0.0)):
        # A start makes all rounds dithered: a turn made from the stack would differ by it.
        origin = np.linalg.qr(noise(20, 20, seed=4))[0]
        estimator = solver(score=name, dither=dither, origin=origin if dither else None)
        answer = estimator.query(estimator.start(20)).answer
        together = answer(stack)
        alone = np.concatenate([answer(stack[m : m + 1]) for m in range(len(stack))])
        np.testing.assert_array_equal(together, alone)


def test_the_schedule_gives_late_rounds_more_and_follows_the_clips() -> None:
    asked = solver(clips=(0.2, 0.4)).schedule(20)
    assert len(asked) == 40
    assert {(a.size, a.shape) for a in asked} == {(190, "ball")}
    np.testing.assert_allclose([a.weight for a in asked], np.sqrt(np.arange(1, 41)))
    np.testing.assert_allclose([a.clip for a in asked], np.geomspace(0.2, 0.4, 40))
    assert {a.clip for a in solver().schedule(20)} == {0.35}
    assert {a.clip for a in solver(private=False).schedule(20)} == {UNCLIPPED}
    assert [a.clip for a in solver(clips=(0.2, 0.4), n_rounds=1).schedule(3)] == [0.2]


def test_queries_use_the_clip_that_was_planned() -> None:
    estimator = solver(clips=(0.2, 0.4))
    state = estimator.start(3)
    for asked in estimator.schedule(3):
        query = estimator.query(state)
        assert (query.clip, query.size) == (asked.clip, asked.size)
        state = estimator.step(state, np.zeros(3), 0.1)
    assert estimator.done(state)


def test_the_step_turns_by_the_limited_newton_angle() -> None:
    estimator = solver(n_rounds=1, alpha_first=0.5)
    mean = np.array([0.04, 0.0, 0.0])
    state = estimator.step(estimator.start(3), mean, 0.01)
    np.testing.assert_allclose(state.W, expm(skew(-0.5 * mean / 0.4, 3)), atol=1e-12)
    assert state.rho == 0.5
    assert state.record.noise_norm == pytest.approx(0.01 * np.sqrt(3))
    assert state.record.step_norm == pytest.approx(0.05 * np.sqrt(2))


def test_entries_and_spectral_norm_of_a_step_are_limited() -> None:
    estimator = solver(n_rounds=1, alpha_first=1.0)
    state = estimator.step(estimator.start(2), np.array([-1e6]), 0.0)
    np.testing.assert_allclose(state.W, expm(skew(np.array([0.5]), 2)), atol=1e-12)
    large = np.ones(190)
    for limit, expected in ((3.0, 1.5), (0.8, 0.8)):
        bounded = solver(n_rounds=1, alpha_first=1.0, step_limit=limit)
        state = bounded.step(bounded.start(20), large, 0.0)
        angles = np.abs(np.angle(np.linalg.eigvals(state.W)))
        assert np.max(angles) == pytest.approx(expected)


def test_a_step_that_is_not_finite_ends_the_run_as_diverged() -> None:
    estimator = solver()
    state = estimator.step(estimator.start(3), np.array([0.1, np.nan, 0.0]), 0.1)
    assert state.status == "diverged"
    assert estimator.done(state)
    np.testing.assert_array_equal(state.W, np.eye(3))


@pytest.mark.parametrize("name", ["volatility", "tanh"])
def test_it_separates_a_rotation_without_noise_and_stops_early(name: str) -> None:
    S = garch_sources(np.random.default_rng(5), 100, 6, 250, ar=0.0)
    rotation = np.linalg.qr(noise(6, 6, seed=9))[0]
    stack = np.stack([np.sqrt(6) * reduce_subject(rotation.T, s, "none") for s in S])
    public = tuned_constants(6, None)
    estimator = solver(
        private=False, score=name, step_limit=public.step_limit, alpha_first=public.alpha_first
    )
    state = estimator.start(6)
    while not estimator.done(state):
        state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    assert state.status == "converged"
    assert state.round < 40
    assert isi(state.W @ rotation) < 0.03
    np.testing.assert_allclose(state.W @ state.W.T, np.eye(6), atol=1e-12)


def test_the_regimes_depend_on_components_size_and_budget_alone() -> None:
    small, middle, roomy, free = (
        tuned_constants(20, 147.5),
        tuned_constants(20, 147.6),
        tuned_constants(20, 398.0),
        tuned_constants(20, None),
    )
    assert (small.mu2_weights, small.n_looks, small.whitening_clip) == ((0.55, 0.30, 0.15), 2, 3.0)
    assert (small.clips, small.step_limit, small.dither) == ((0.35,), 3.0, 0.06)
    assert (middle.mu2_weights, middle.n_looks, middle.whitening_clip) == (
        (0.27, 0.20, 0.53),
        2,
        4.0,
    )
    assert (middle.clips, middle.step_limit, middle.dither) == ((0.2, 0.4), 0.8, 0.03)
    assert (roomy.clips, roomy.step_limit, roomy.alpha_last) == ((0.35,), 3.0, 0.3)
    assert (free.n_looks, free.step_limit, free.alpha_first, free.dither) == (2, 0.8, 1.0, 0.0)


@pytest.mark.parametrize(
    ("R", "g"), [(2, 60), (3, 60), (5, 60), (10, 88), (15, 129), (20, 166), (30, 318), (40, 442)]
)
def test_what_networks_of_any_shape_need_follows_from_their_number(R: int, g: int) -> None:
    assert dense_g(R) == pytest.approx(g, abs=1.0)


@pytest.mark.parametrize(("R", "from_g", "to_g"), [(5, 59.9, 73.7), (10, 87.5, 104.3)])
def test_few_components_have_a_split_of_their_own(R: int, from_g: float, to_g: float) -> None:
    """Maps that are not sparse lost there what the rounds need: q .167 for .047 at R 10, G 90."""
    below, first, last, above = (
        tuned_constants(R, g) for g in (from_g - 0.2, from_g, to_g, to_g + 0.2)
    )
    assert below.mu2_weights == (0.55, 0.30, 0.15)
    assert first.mu2_weights == last.mu2_weights == (0.35, 0.25, 0.40)
    assert above.mu2_weights == (0.27, 0.20, 0.53)
    assert (last.clips, last.dither) == (above.clips, above.dither)


def test_clips_shrink_with_the_numbers_of_an_answer() -> None:
    few, many = tuned_constants(5, 50.0), tuned_constants(30, 150.0)
    assert few.clips[0] == pytest.approx(0.35 * np.sqrt(20 / 380))
    assert many.clips[0] == pytest.approx(0.35 * np.sqrt(870 / 380))
    # Two looks cannot reach the common mean with a clip that shrinks as fast.
    assert few.whitening_clip == pytest.approx(3.0 * (30 / 420) ** 0.25)


# -- dither and filter ----------------------------------------------------------------------------


def test_the_dither_is_public_fixed_and_balanced() -> None:
    """Its recipe is part of the format: these bits were written down once."""
    assert dither_signs(0, 16).astype(int).tolist() == SIGNS
    signs = np.stack([dither_signs(pair, 190) for pair in range(500)])
    assert set(np.unique(signs)) == {-1.0, 1.0}
    # 95,000 fair signs: |mean| above 4.5 / sqrt(95000) has probability 7e-6, and they are fixed.
    assert abs(signs.mean()) < 4.5 / np.sqrt(signs.size)
    assert np.max(np.abs(signs.mean(axis=0))) < 5.0 / np.sqrt(500)


def test_rounds_ask_in_pairs_of_opposite_turns() -> None:
    origin = np.linalg.qr(noise(4, 4, seed=2))[0]
    for begun, first in ((origin, 0), (None, 20)):
        estimator = solver(dither=0.03, origin=begun)
        turns = [estimator.turn(t, 6) for t in range(40)]
        assert [turn is not None for turn in turns] == [t >= first for t in range(40)]
        for one, two in zip(turns[first::2], turns[first + 1 :: 2], strict=True):
            np.testing.assert_array_equal(one, -two)
            assert set(np.abs(one)) == {0.03}
    assert solver(dither=0.0, origin=origin).turn(3, 6) is None


def test_a_dithered_question_is_that_of_the_turned_matrix_and_has_the_planned_clip() -> None:
    stack = noise(7, 4, 60).astype(np.float32)
    origin = np.linalg.qr(noise(4, 4, seed=2))[0]
    plain, dithered = solver(origin=origin), solver(origin=origin, dither=0.03)
    state = dithered.start(4)
    np.testing.assert_array_equal(state.W, origin)
    D = skew(0.03 * dither_signs(0, 6), 4)
    Q = turned(origin, 0.03 * dither_signs(0, 6))
    np.testing.assert_allclose(Q @ Q.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(Q, expm(D) @ origin, atol=np.linalg.norm(D) ** 3 / 12)
    expected = solver(origin=Q).query(solver(origin=Q).start(4)).answer(stack)
    asked = dithered.query(state)
    np.testing.assert_allclose(asked.answer(stack), expected, atol=1e-6)
    assert np.max(np.abs(asked.answer(stack) - plain.query(state).answer(stack))) > 1e-4
    assert (asked.clip, asked.size, asked.shape) == (0.35, 6, "ball")
    assert np.all(np.linalg.norm(asked.answer(50 * stack), axis=1) <= 0.35 * (1 + 1e-12))


def test_the_filter_steps_by_its_gain_and_leaves_the_dither_out_of_the_result() -> None:
    estimator = solver(dither=0.03, origin=np.eye(3))
    mean, s = np.array([0.04, 0.0, 0.0]), 0.02
    predicted = 0.04**2 + 0.005**2
    gain = predicted / (predicted + (s / 0.2) ** 2)
    state = estimator.step(estimator.start(3), mean, s)
    np.testing.assert_allclose(state.W, expm(skew(-gain * mean / 0.2, 3)), atol=1e-12)
    assert state.variance == pytest.approx((1 - gain) * predicted)
    assert (state.rho, state.round) == (pytest.approx(gain), 1)
    np.testing.assert_allclose(state.response, 0.03 * dither_signs(0, 3) * mean / s**2)
    assert state.information == pytest.approx((0.03 / s) ** 2)
    # Exact answers pull at once, answers of noise hardly at all.
    assert filter_gain(0.06**2, 1e-9)[0] == pytest.approx(1.0)
    assert filter_gain(0.06**2, 10.0)[0] < 1e-4


@pytest.mark.parametrize(("noise_std", "left"), [(0.02, 0.5), (0.045, 0.8), (0.1, 1.0)])
def test_what_was_found_in_space_is_not_lost_to_the_noise_of_a_small_budget(noise_std, left):
    """Angles of .05 at the start, 20 runs of fixed seeds: .44, .73 and .92 of them is left."""
    # It looked at what the verdict puts back, which is the optimum here, and so at nothing.
    R, ratio = 10, []
    estimator = solver(n_rounds=41, dither=0.06, origin=np.eye(R))
    upper = np.triu_indices(R, 1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        off = 0.05 * rng.standard_normal(len(upper[0]))
        state = replace(estimator.start(R), W=expm(skew(off, R)))
        state = play(estimator, R, 0.14, noise_std, seed=100 + seed, state=state, rounds=40)
        angles = (state.W - state.W.T)[upper] / 2
        ratio.append(np.mean(angles**2) / np.mean(off**2))
    assert 0.5 * left < np.sqrt(np.mean(ratio)) < left


@pytest.mark.parametrize("curvature", [0.14, 0.28])
def test_the_filter_expects_answers_as_steep_as_they_were_measured(curvature):
    """Without noise a round takes away what it sees: .3 of an error is left, or .4 beyond it."""
    estimator = solver(origin=np.eye(2))
    begun = replace(estimator.start(2), W=expm(skew(np.array([0.05]), 2)))
    state = estimator.step(begun, np.array([curvature * 0.05]), 1e-9)
    assert abs(state.W[0, 1] - state.W[1, 0]) / 2 < 0.42 * 0.05


def test_a_step_of_the_filter_is_limited() -> None:
    estimator = solver(origin=np.eye(20))
    state = estimator.step(estimator.start(20), np.ones(190), 1e-9)
    assert np.max(np.abs(np.angle(np.linalg.eigvals(state.W)))) == pytest.approx(0.8)
    two = solver(origin=np.eye(2))
    state = two.step(two.start(2), np.array([-1e6]), 1e-9)
    np.testing.assert_allclose(state.W, expm(skew(np.array([0.5]), 2)), atol=1e-6)


def play(
    estimator: QuasiNewton,
    R: int,
    curvature: float,
    s: float,
    seed: int,
    state: Unmixing | None = None,
    rounds: int = 1000,
) -> Unmixing:
    """At most `rounds` whose answers are those of an optimum at W = I with noise of std s."""
    rng, state = np.random.default_rng(seed), state or estimator.start(R)
    upper = np.triu_indices(R, 1)
    while state.round < rounds and not estimator.done(state):
        turn = estimator.turn(state.round, R * (R - 1) // 2)
        angle = (state.W - state.W.T)[upper] / 2 + (0.0 if turn is None else turn)
        mean = curvature * angle + s * rng.standard_normal(len(angle))
        state = estimator.step(state, mean, s)
    return state


@pytest.mark.parametrize("begun", [True, False])
def test_answers_of_an_optimum_are_confirmed_and_answers_of_noise_are_not(begun: bool) -> None:
    """Z of noise is N(0, 1): 3.2 by chance has probability 7e-4 and the seeds are fixed."""
    R = 10
    estimator = solver(dither=0.06, origin=np.eye(R) if begun else None, alpha_first=0.5)
    assert play(estimator, R, 0.3, 0.02, seed=4).status == "converged"
    nothing = play(estimator, R, 0.0, 0.02, seed=5)
    assert nothing.status == ("unconfirmed" if begun else "not_separated")
    # What was not confirmed in time is given as it was found in space.
    assert np.array_equal(nothing.W, np.eye(R)) == begun


def test_z_of_noise_is_standard_normal() -> None:
    """200 runs: their mean square is chi^2_200 / 200; outside .6 to 1.5 has probability 1e-5."""
    R, z = 4, []
    estimator = solver(n_rounds=10, dither=0.03, origin=np.eye(R))
    for seed in range(200):
        state = play(estimator, R, 0.0, 0.05, seed)
        z.append(
            judge_run(state.response, state.information, n_components=R, gate=True, dither=0.03).z
        )
    assert 0.6 < np.mean(np.square(z)) < 1.5
    assert abs(np.mean(z)) < 4.5 / np.sqrt(200)
