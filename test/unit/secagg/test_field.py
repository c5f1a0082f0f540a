"""Fixed point, exact clip, decoding (cape/secagg/field.py)."""

import math
from fractions import Fraction

import numpy as np
import pytest

from cape.errors import ConfigError, SecureAggregationError
from cape.secagg import field

CLIP = 22937  # ICA round 1 of the worked plan: C = .35, gamma = 2^16, d = 190


def naive(row: list[float], *, log2_gamma: int, clip_int: int, d: int) -> list[int]:
    """Clip and round one ball row in rationals: no float but the answer itself."""
    v = [Fraction(x) * Fraction(2) ** log2_gamma for x in row]
    rho = Fraction(clip_int - math.sqrt(d) / 2 - 1)
    n2 = sum(x * x for x in v)
    if n2 > rho * rho:
        scale = rho / Fraction(math.isqrt(int(n2 * 2**80))) * 2**40
        v = [x * scale for x in v]
    return [round(x) for x in v]


def squared_norm(u: np.ndarray) -> int:
    return sum(int(x) ** 2 for x in u)


def test_a_small_answer_is_scaled_by_gamma_and_rounded_half_to_even():
    answers = np.array([[0.5, 1.25, -1.75, 3.0]])
    u = field.quantize(answers, log2_gamma=1, clip_int=1000, shape="ball")
    assert u.tolist() == [[1, 2, -4, 6]]
    assert u.dtype == np.int64


def test_the_integers_agree_with_rational_arithmetic():
    rng = np.random.default_rng(7)
    answers = rng.normal(size=(40, 190)) * np.logspace(-6, 3, 40)[:, np.newaxis]
    u = field.quantize(answers, log2_gamma=16, clip_int=CLIP, shape="ball")
    for row, got in zip(answers, u, strict=True):
        expected = naive(row.tolist(), log2_gamma=16, clip_int=CLIP, d=190)
        assert max(abs(int(g) - e) for g, e in zip(got, expected, strict=True)) <= 1
        assert sum(int(g) != e for g, e in zip(got, expected, strict=True)) <= 1


@pytest.mark.parametrize("log2_gamma", [-9, 0, 16, 40])
def test_scaling_is_exact_for_any_power_of_two(log2_gamma):
    answers = np.array([[3.0, -5.0, 100.0]]) * 2.0**-log2_gamma
    u = field.quantize(answers, log2_gamma=log2_gamma, clip_int=1000, shape="ball")
    assert u.tolist() == [[3, -5, 100]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_non_finite_entry_counts_as_zeros_and_spares_the_others(bad):
    answers = np.full((3, 4), 0.25)
    answers[1, 2] = bad
    u = field.quantize(answers, log2_gamma=2, clip_int=100, shape="ball")
    assert u.tolist() == [[1] * 4, [0] * 4, [1] * 4]
    result = field.quantized_sum(answers, log2_gamma=2, clip_int=100, shape="ball")
    assert result.tolist() == [2] * 4


@pytest.mark.parametrize("size", [1e300, 1.7e308])
def test_a_huge_row_is_scaled_to_the_bound_without_overflow(size):
    answers = np.full((1, 190), size)
    answers[0, ::2] *= -1
    result = field.quantized_sum(answers, log2_gamma=16, clip_int=CLIP, shape="ball")
    norm = math.sqrt(squared_norm(result))
    assert CLIP - 2 * math.sqrt(190) < norm <= CLIP


def test_denormal_and_zero_rows_become_zeros():
    answers = np.array([[5e-324, 0.0], [0.0, 0.0]])
    result = field.quantized_sum(answers, log2_gamma=16, clip_int=CLIP, shape="ball")
    assert result.tolist() == [0, 0]


def test_the_float_clip_leaves_room_for_rounding():
    """Half a unit per entry is the worst that rounding adds; the exact clip stays unused."""
    d = 400
    rho = CLIP - math.sqrt(d) / 2 - 1
    row = np.full((1, d), rho / math.sqrt(d))
    scaled = np.floor(row) + 0.5  # every entry is rounded away as far as possible
    scaled *= rho / np.linalg.norm(scaled)
    exact = field._integer_clip(scaled, clip_int=CLIP, shape="ball")
    assert exact.tolist() == np.rint(scaled).tolist()


def test_the_integer_clip_alone_keeps_a_ball_row_inside_the_bound():
    scaled = np.array([[90.0, 90.0, -90.0], [60.0, 70.0, 20.0]])
    exact = field._integer_clip(scaled, clip_int=100, shape="ball")
    q = math.isqrt(3 * 90**2 - 1) + 1
    assert exact[0].tolist() == [9000 // q, 9000 // q, -(9000 // q)]
    assert exact[1].tolist() == [60, 70, 20]


def test_a_norm_of_exactly_the_bound_passes_and_one_more_unit_does_not():
    exact = field._integer_clip(np.array([[60.0, 80.0], [60.0, 81.0]]), clip_int=100, shape="ball")
    assert exact[0].tolist() == [60, 80]
    assert exact[1].tolist() != [60, 81]
    assert squared_norm(exact[1]) <= 100**2


def test_the_integer_clip_drops_a_psd_row_instead_of_flooring_it():
    scaled = np.array([[90.0, 90.0, -90.0], [60.0, 70.0, 20.0]])
    exact = field._integer_clip(scaled, clip_int=100, shape="psd")
    assert exact.tolist() == [[0, 0, 0], [60, 70, 20]]


@pytest.mark.parametrize("wild", [101.0, -1e300, np.inf, np.nan])
def test_the_integer_clip_drops_a_row_with_an_entry_past_the_bound(wild):
    exact = field._integer_clip(np.array([[1.0, wild]]), clip_int=100, shape="ball")
    assert exact.tolist() == [[0, 0]]


def test_the_largest_squares_that_fit_63_bits_do_not_wrap():
    clip = math.isqrt((2**63 - 1) // 4)
    exact = field._integer_clip(np.full((1, 4), float(clip)), clip_int=clip, shape="ball")
    assert 0 < squared_norm(exact[0]) <= clip**2


@pytest.mark.parametrize("shape", ["ball", "psd"])
def test_the_sum_equals_the_sum_of_the_rows_over_many_blocks(shape, monkeypatch):
    monkeypatch.setattr(field, "_BLOCK", 100)
    answers = np.random.default_rng(3).normal(size=(57, 30))
    answers[5] = np.nan
    answers[7] *= 1e-3
    u = field.quantize(answers, log2_gamma=10, clip_int=3000, shape=shape)
    result = field.quantized_sum(answers, log2_gamma=10, clip_int=3000, shape=shape)
    assert result.tolist() == [sum(int(x) for x in column) for column in u.T]


def test_no_subjects_give_a_sum_of_zeros():
    answers = np.empty((0, 3))
    assert field.quantize(answers, log2_gamma=4, clip_int=99, shape="ball").shape == (0, 3)
    result = field.quantized_sum(answers, log2_gamma=4, clip_int=99, shape="ball")
    assert result.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("form", "log2_gamma", "clip_int", "problem"),
    [
        ((3,), 4, 99, "answers are not a matrix"),
        ((2, 2), 4, 2**31, "squared norms do not fit 63 bits"),
        ((2, 400), 4, 11, "rounding would use up the clip"),
        ((2, 2), 501, 99, "log2_gamma is out of range"),
    ],
)
def test_a_plan_that_cannot_keep_the_bound_is_refused(form, log2_gamma, clip_int, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        field.quantized_sum(np.zeros(form), log2_gamma=log2_gamma, clip_int=clip_int, shape="ball")
    assert caught.value.code == "CAPE-E232"
    assert ";" in caught.value.public  # the remedy follows the problem


def test_decoding_sums_modulo_2_to_the_64_and_reads_signs():
    mask = np.array([2**63 + 5, 17, 2**64 - 1], dtype=np.uint64)
    x = np.array([-3, 4, 10], dtype=np.int64)
    total = field.decode_sum([x.view(np.uint64) + mask, np.uint64(0) - mask], bound=10)
    assert total.tolist() == [-3, 4, 10]
    assert total.dtype == np.int64


@pytest.mark.parametrize("value", [11, -11, -(2**63), 2**63 - 1])
def test_an_entry_past_the_bound_is_refused_as_a_failed_mask(value):
    vector = np.array([0, value], dtype=np.int64).view(np.uint64)
    with pytest.raises(SecureAggregationError, match="the masks do not cancel") as caught:
        field.decode_sum([vector], bound=10)
    assert caught.value.code == "CAPE-E220"
    assert str(abs(value)) not in caught.value.public


@pytest.mark.parametrize(
    "vectors",
    [
        [],
        [np.zeros(3, dtype=np.uint64), np.zeros(1, dtype=np.uint64)],
        [np.zeros(3, dtype=np.int64)],
        [np.zeros((1, 3), dtype=np.uint64)],
    ],
)
def test_vectors_of_another_form_are_not_summed(vectors):
    with pytest.raises(SecureAggregationError, match="do not have one form"):
        field.decode_sum(vectors, bound=10)


@pytest.mark.parametrize("bound", [-1, 2**62])
def test_a_bound_that_proves_nothing_is_refused(bound):
    with pytest.raises(SecureAggregationError, match="the bound of the sum is out of range"):
        field.decode_sum([np.zeros(3, dtype=np.uint64)], bound=bound)
