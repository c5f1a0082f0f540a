"""The entropy of the operating system, and the sampler with fixed seeds.

Its law is tested with fresh entropy in test/statistical.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from cape.privacy import noise as noise_module
from cape.privacy.noise import GUARD_BAND, SecureNoise, discrete_gaussian
from cape.secagg.keys import RunSecret, seeded_secret


def seeded(seed, purpose=""):
    return RunSecret(secret=seeded_secret(seed, "a"), label="seeded").stream(purpose)


class Fixed:
    """A source that repeats one word, or plays a list of words first."""

    def __init__(self, words=(), then=0):
        self.words, self.then = list(words), then

    def token_bytes(self, n):
        count = -(-n // 8)
        words = [self.words.pop(0) if self.words else self.then for _ in range(count)]
        return b"".join(word.to_bytes(8, "little") for word in words)[:n]


@pytest.mark.parametrize("size", [0, 1, 2, 190, 70_000])
def test_it_returns_as_many_integers_as_asked(size):
    noise = discrete_gaussian(2**42, size, SecureNoise())
    assert noise.shape == (size,)
    assert noise.dtype == np.int64


def test_the_same_seed_gives_the_same_integers():
    first = discrete_gaussian(2**42, 500, seeded(3, "a"))
    assert np.array_equal(first, discrete_gaussian(2**42, 500, seeded(3, "a")))
    assert not np.array_equal(first, discrete_gaussian(2**42, 500, seeded(3, "b")))


@pytest.mark.parametrize(("variance", "size"), [(0, 1), (-1, 1), (2**56 + 1, 1), (4, -1)])
def test_arguments_out_of_range_are_refused(variance, size):
    with pytest.raises(ValueError, match="allowed"):
        discrete_gaussian(variance, size, SecureNoise())


def test_a_guard_band_too_small_for_floats_is_refused():
    with pytest.raises(ValueError, match="guard_band"):
        discrete_gaussian(4, 1, SecureNoise(), guard_band=GUARD_BAND / 2)


def test_a_source_stuck_at_zero_is_noticed():
    with pytest.raises(ArithmeticError, match="entropy"):
        discrete_gaussian(2**42, 5, Fixed())


def test_no_numpy_generator_is_used(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("numpy generator")

    for name in ("normal", "default_rng", "standard_normal", "random", "seed"):
        monkeypatch.setattr(np.random, name, forbidden)
    discrete_gaussian(2**30, 1000, SecureNoise())


@pytest.mark.parametrize("variance", [1, 3, 2**20, 2**43 + 12345, 2**56])
def test_deciding_everything_exactly_gives_the_very_same_integers(variance):
    # Floats decide outside the band only, so the band cannot change a decision (barring the
    # 2^-64 chance of a decision that needs more bits; the seed is fixed).
    fast = discrete_gaussian(variance, 300, seeded(11))
    slow = discrete_gaussian(variance, 300, seeded(11), guard_band=1.0)
    assert np.array_equal(fast, slow)


def test_a_word_inside_the_band_is_decided_exactly_with_more_bits():
    # The first 64 bits of exp(-1): only the bits behind them can decide.
    with localcontext() as context:
        context.prec = 80
        digits = int(Decimal(-1).exp() * 2**192)
    first, second, third = digits >> 128, (digits >> 64) % 2**64, digits % 2**64
    below = Fixed([second, third - 1])
    assert noise_module._below_exp(first, 1, 1, below)
    assert below.words == []
    assert not noise_module._below_exp(first, 1, 1, Fixed([second, third + 1]))
    assert noise_module._below_exp(first, 1, 1, Fixed([second - 1]))
    assert not noise_module._below_exp(first, 1, 1, Fixed([second + 1]))
    assert noise_module._below_exp(first - 1, 1, 1, Fixed())
    assert not noise_module._below_exp(first + 1, 1, 1, Fixed())


def test_the_vectorised_decision_uses_the_exact_one_at_its_threshold():
    first = int(Decimal(-1).exp() * 2**64)
    words = [first - 2, first + 2, first - 2**30, first + 2**30]
    exact = []

    def ratio(i):
        exact.append(i)
        return 1, 1

    bits = noise_module._bernoulli_exp(np.ones(4), ratio, Fixed(words), GUARD_BAND)
    assert bits.tolist() == [True, False, True, False]
    assert exact == [0, 1]


@pytest.mark.parametrize("bound", [1, 2, 3, 2**22, 2**28 + 1])
def test_words_of_the_uneven_rest_are_dropped(bound):
    limit = 2**64 // bound * bound
    words = [0, bound - 1, bound, limit - 1, *([limit, 2**64 - 1] if limit < 2**64 else [])]
    drawn = noise_module._uniform_below(bound, len(words), Fixed(words))
    assert drawn.tolist() == [0, bound - 1, 0, bound - 1]


def test_zero_is_counted_once_not_with_two_signs():
    # At s2 = 1 the law has mass .3989 at zero; with two zeros it would be .57.
    drawn = discrete_gaussian(1, 20_000, seeded(2))
    mass = 1 / sum(math.exp(-(x**2) / 2) for x in range(-9, 10))
    assert abs(np.mean(drawn == 0) - mass) < 0.02


def test_the_secure_source_gives_fresh_bytes():
    source = SecureNoise()
    assert len(source.token_bytes(33)) == 33
    assert source.token_bytes(32) != source.token_bytes(32)
    with pytest.raises(ValueError, match="negative"):
        source.token_bytes(-1)
