"""Whatever a subject holds, its answer is finite, bounded, and its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cape.algorithms.estimators import clip_rows
from cape.algorithms.linalg import polar, skew, skew_exp, smat, svec
from cape.algorithms.pca import ProjectorPca
from cape.algorithms.quasi_newton import QuasiNewton
from cape.algorithms.whitening import LogEuclidean, reduce_subject
from cape.papers.algorithms.covariance import CovariancePca
from cape.papers.algorithms.infomax import Infomax

ROWS, T = 4, 9
ANYTHING = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, -3e38, 1e20, -1e-20]),
)
STACKS = arrays(np.float32, (3, ROWS, T), elements=ANYTHING, fill=st.just(1.0))


def infomax(clip: str, n: int = 5) -> Infomax:
    return Infomax(
        n_rounds=n,
        learning_rate=0.5,
        clip=clip,
        subject_bound=2.0,
        gradient_bound=30.0,
        bias_bound=1.5,
        private=True,
    )


def quasi_newton(score: str) -> QuasiNewton:
    return QuasiNewton(
        n_rounds=5,
        clips=(0.35,),
        step_limit=0.8,
        alpha_first=2.0,
        alpha_last=0.3,
        private=True,
        score=score,
    )


ESTIMATORS = {
    "projector": ProjectorPca(n_components=2, private=True),
    "covariance": CovariancePca(n_components=2, clip=0.5, private=True),
    "log-euclidean": LogEuclidean(n_looks=1, clip=1.0, private=True),
    "volatility": quasi_newton("volatility"),
    "tanh": quasi_newton("tanh"),
    "subject": infomax("subject"),
    "time_point": infomax("time_point"),
}


@pytest.mark.parametrize("name", list(ESTIMATORS))
@settings(max_examples=60, deadline=None)
@given(stack=STACKS)
def test_every_answer_is_finite_bounded_and_independent_of_its_neighbours(name, stack) -> None:
    estimator = ESTIMATORS[name]
    query = estimator.query(estimator.start(ROWS))
    answers = query.answer(stack)
    assert answers.shape == (3, query.size)
    assert answers.dtype == np.float64
    assert np.all(np.isfinite(answers))
    assert np.all(np.linalg.norm(answers, axis=1) <= query.clip * (1 + 1e-6))
    alone = np.concatenate([query.answer(stack[m : m + 1]) for m in range(3)])
    np.testing.assert_array_equal(answers, alone)


def large(n_rows: int, T: int) -> np.ndarray:
    stack = np.random.default_rng(7).standard_normal((7, n_rows, T)).astype(np.float32)
    stack[0], stack[1, 2, 3], stack[2, 2, 3] = 0.0, np.nan, np.inf
    stack[3] *= 1e25
    return stack


@pytest.mark.parametrize("T", [8, 120])
@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_broken_subjects_answer_zero_loud_ones_within_the_bound(name: str, T: int) -> None:
    query = ESTIMATORS[name].query(ESTIMATORS[name].start(20))
    answers = query.answer(large(20, T))
    np.testing.assert_array_equal(answers[:3], np.zeros((3, query.size)))
    norms = np.linalg.norm(answers[3:], axis=1)
    assert np.all(norms <= query.clip * (1 + 1e-6))
    assert np.all(norms[1:] > 0.01 * query.clip)


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_an_answer_of_a_large_stack_is_that_of_its_subject_alone(name: str) -> None:
    answer = ESTIMATORS[name].query(ESTIMATORS[name].start(49)).answer
    alone = np.concatenate([answer(large(49, 120)[m : m + 1]) for m in range(7)])
    np.testing.assert_array_equal(answer(large(49, 120)), alone)


@pytest.mark.parametrize("name", ["projector", "covariance"])
@settings(max_examples=40, deadline=None)
@given(stack=STACKS)
def test_psd_answers_are_psd_so_no_two_are_further_apart_than_root_two(name, stack) -> None:
    estimator = ESTIMATORS[name]
    query = estimator.query(estimator.start(ROWS))
    answers = query.answer(stack)
    assert query.shape == "psd"
    for row in answers:
        assert np.min(np.linalg.eigvalsh(smat(row))) >= -1e-12
    for a in answers:
        for b in answers:
            assert np.linalg.norm(a - b) <= np.sqrt(2) * query.clip * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(
    Y=arrays(np.float32, (ROWS, T), elements=ANYTHING, fill=st.just(1.0)),
    prewhiten=st.sampled_from(["ar1", "none"]),
)
def test_a_reduced_subject_is_finite_and_of_unit_trace_or_zero(Y, prewhiten) -> None:
    Z = reduce_subject(np.eye(ROWS)[:, :3], Y, prewhiten)
    assert np.all(np.isfinite(Z))
    trace = np.sum(Z.astype(np.float64) ** 2) / Z.shape[1]
    assert trace == 0.0 or trace == pytest.approx(1.0, rel=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    rows=arrays(np.float64, (3, 6), elements=st.floats(allow_nan=True, allow_infinity=True)),
    bound=st.floats(1e-3, 1e3),
)
def test_clipping_bounds_any_row_and_keeps_its_direction(rows: np.ndarray, bound: float) -> None:
    clipped = clip_rows(rows, bound)
    assert np.all(np.isfinite(clipped))
    assert np.all(np.linalg.norm(clipped, axis=1) <= bound * (1 + 1e-12))
    with np.errstate(all="ignore"):
        assert np.all((clipped == 0) | (np.sign(clipped) == np.sign(rows)))


@given(arrays(np.float64, (5, 5), elements=st.floats(-1e3, 1e3)))
def test_svec_is_an_isometry(a: np.ndarray) -> None:
    s = a + a.T
    assert np.linalg.norm(svec(s)) == pytest.approx(np.linalg.norm(s))
    np.testing.assert_allclose(smat(svec(s)), s, rtol=1e-12)


@settings(deadline=None)
@given(arrays(np.float64, (10,), elements=st.floats(-50, 50)))
def test_the_exponential_of_a_skew_matrix_is_a_rotation(upper: np.ndarray) -> None:
    Q = skew_exp(skew(upper, 5))
    np.testing.assert_allclose(Q @ Q.T, np.eye(5), atol=1e-12)
    assert np.linalg.det(Q) == pytest.approx(1.0)
    np.testing.assert_allclose(polar(Q), Q, atol=1e-12)
