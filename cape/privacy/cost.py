"""The record of a release, planned or charged, and what releases cost: mu squared, exact.

Several mu_j-GDP releases are together sqrt(sum mu_j^2)-GDP, even if earlier answers choose later
releases (Dong, Roth and Su 2022, Cor. 3.3).  Hence mu^2 adds; it is infinite without noise.
Epsilon is computed once, from the sum; adding epsilons would be wrong.

If releases ask one half of the people each (`Event.part`), only the half with the larger cost
counts, even if the answer of A decides the question to B.  A neighbouring data set differs in one
person, whose half is fixed before data are read (`cape.privacy.halves`), so the releases of the
other half have the same law in both.

One share (Imtiaz et al., Alg. 2, h = t - S_C shares of parties whose noise nobody can subtract):
tau_g^2 = Delta^2 / (mu^2 h), hence mu = Delta / (tau_g sqrt(h)).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, Protocol

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, root_up

Noise = Literal["correlated", "local"]
VectorShape = Literal["ball", "psd"]
Viewer = Literal["outsider", "one_site", "aggregator"]
# Who is asked: all people, or one half of the people of every site
Half = Literal["", "A", "B"]

# Sums for display are rounded to units of 2^-256, far below the last bit of any float mu.
BITS: Final = 256

# A decimal exponent would pass Fraction() too, and "1e9999999" fills the memory.
_WRITTEN: Final = re.compile(r"[0-9]{1,999}(/[0-9]{1,999})?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """mu^2 of one release or of many together; None is infinite."""

    mu2: Fraction | None

    @classmethod
    def of_mu(cls, mu: float) -> Cost:
        # A float is the rational number it is; squaring it as a float would round.
        return cls(mu2=Fraction(mu) ** 2)

    @classmethod
    def parse(cls, text: str) -> Cost:
        """Read "p/q", "p" or "infinite"; ValueError for other texts and unless it is above 0."""
        if text == "infinite":
            return INFINITE
        if not _WRITTEN.fullmatch(text) or not (mu2 := Fraction(text)):
            raise ValueError("mu2 is no positive fraction of whole numbers")
        return cls(mu2=mu2)

    def __str__(self) -> str:
        return "infinite" if self.mu2 is None else f"{self.mu2.numerator}/{self.mu2.denominator}"

    def __add__(self, other: Cost) -> Cost:
        if self.mu2 is None or other.mu2 is None:
            return INFINITE
        return Cost(mu2=self.mu2 + other.mu2)

    def __sub__(self, spent: Cost) -> Cost:
        """Return the unspent part of this cost; 0 if more is spent (sums are rounded up)."""
        if self.mu2 is None or spent.mu2 is None:
            return self if spent.mu2 is not None else FREE
        return Cost(mu2=max(self.mu2 - spent.mu2, Fraction(0)))

    def __le__(self, other: Cost) -> bool:
        if self.mu2 is None or other.mu2 is None:
            return other.mu2 is None
        return self.mu2 <= other.mu2

    def mu(self) -> float | None:
        """Root of mu^2, rounded up; None is infinite."""
        # Up, so that what is shown never understates what was spent.
        return None if self.mu2 is None else root_up(self.mu2)

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at delta, rounded up; None is infinite."""
        mu = self.mu()
        return None if mu is None else gdp_epsilon(mu=mu, delta=delta)

    def if_unknown(self, n_unknown: int, *, noise_shares: int) -> Cost:
        """Cost against a viewer who does not know `n_unknown` of the noise shares in the sum.

        This cost assumes that `noise_shares` are unknown.  All shares have the same variance, so
        the noise that a viewer cannot subtract is proportional to the number of unknown shares.
        """
        if self.mu2 is None:
            return self
        if noise_shares < 1 or n_unknown < 1:
            # A viewer who knows all shares sees the sum without noise.
            problem = "a view needs an unknown share"
            raise ConfigError("E232", problem=problem, do="pass 1 or more.")
        return Cost(mu2=self.mu2 * noise_shares / n_unknown)

    def by_viewer(self, *, noise_shares: int, n_sites: int, noise: Noise) -> dict[Viewer, Cost]:
        """Cost against the three viewers of a run, for subjects of other sites.

        outsider: sees results and decoded sums and knows no noise share.  one_site: a curious site
        that knows its own share.  aggregator: with all assumed colluders, the headline.
        `noise_shares` is h = t - S_C, for which this cost is charged; `n_sites` is the number of
        shares in every sum: S, or the smallest number of survivors t if sites may drop out.
        """
        # With local noise each site's release is seen alone, so all views cost the same.
        if noise == "local":
            return {"outsider": self, "one_site": self, "aggregator": self}
        # With one site there is no other site: its view is the headline.
        unknown: dict[Viewer, int] = {
            "outsider": n_sites,
            "one_site": max(1, n_sites - 1),
            "aggregator": noise_shares,
        }
        return {v: self.if_unknown(n, noise_shares=noise_shares) for v, n in unknown.items()}


FREE: Final = Cost(mu2=Fraction(0))
INFINITE: Final = Cost(mu2=None)


def total_cost(costs: Iterable[Cost], *, bits: int = BITS) -> Cost:
    """Sum of the costs, each rounded up to a multiple of 2^-bits: never too small."""
    # Denominators of exact sums would grow.  `fits` decides exactly.
    units = 0
    for cost in costs:
        if cost.mu2 is None:
            return INFINITE
        units -= (-cost.mu2.numerator << bits) // cost.mu2.denominator
    return Cost(mu2=Fraction(units, 1 << bits))


class Costly(Protocol):
    """A planned or charged release: its cost, and the people who bear it."""

    @property
    def part(self) -> Half: ...

    @property
    def cost(self) -> Cost: ...


def largest_cost(costs: Iterable[Cost]) -> Cost:
    """Return the largest cost; 0 if there is none."""
    return max(costs, key=lambda cost: math.inf if cost.mu2 is None else cost.mu2, default=FREE)


def by_half(releases: Iterable[Costly]) -> list[list[Cost]]:
    """Return the costs that a person of each half bears; one list without releases of halves."""
    listed = list(releases)
    halves = sorted({one.part for one in listed} - {""}) or [""]
    return [[one.cost for one in listed if one.part in ("", half)] for half in halves]


def total_of(releases: Iterable[Costly], *, bits: int = BITS) -> Cost:
    """Largest cost of a person: sum of "" + max(sum of "A", sum of "B"), rounded up."""
    return largest_cost(total_cost(costs, bits=bits) for costs in by_half(releases))


def all_within(releases: Iterable[Costly], limit: Cost) -> bool:
    """Tell exactly (`fits`) whether each person bears at most `limit`."""
    return all(fits(costs, limit) for costs in by_half(releases))


def fits(costs: Sequence[Cost], limit: Cost) -> bool:
    """Tell exactly, without a tolerance, whether the sum is at most `limit`."""
    upper = total_cost(costs)
    if upper.mu2 is None or limit.mu2 is None:
        return upper <= limit
    if upper.mu2 <= limit.mu2:
        return True
    # Rounding up added less than 2^-256 per cost, so the exact sum is needed only within that.
    if upper.mu2 - Fraction(len(costs), 1 << BITS) > limit.mu2:
        return False
    return sum(costs, FREE) <= limit


# 2^500 and its inverse are both floats.
_MAX_LOG2_GAMMA: Final = 500

_MINIMA: Final = {
    "round": 0,
    "size": 1,
    "log2_gamma": -_MAX_LOG2_GAMMA,
    "clip_int": 1,
    "delta_int": 1,
    "variance": 0,
    "shares": 1,
    "seed_ratio": 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One release: all that its privacy depends on, as integers, so that all compute the same cost.

    ConfigError if an attribute is of a wrong type or outside its trivial range;
    `cape.privacy.mechanisms.verify_event` checks that the numbers fit each other.
    """

    phase: str  # phase of the computation
    round: int  # round within the phase, from 1
    field: str  # name of the released vector, one of those of its round
    # Set that holds one subject's vector: a ball, or svec of PSD matrices within a ball
    shape: VectorShape
    size: int  # d, length of the vector
    log2_gamma: int  # units per 1.0 are gamma = 2^log2_gamma
    clip_int: int  # C_int, bound of the L2 norm of one subject's integer vector, in units
    delta_int: int  # delta_int, replace-one L2 sensitivity of the integer sum, in units
    # s2, integer variance of the noise share of one site, in squared units; 0 in runs with
    # ``private=false`` only
    variance: int
    # h, noise shares that the headline viewer cannot subtract; 1 where every site's own noise
    # protects its own release (no correlated noise)
    shares: int
    # r of Gaussian zero-sum noise (Imtiaz et al., Alg. 1): integer variance of a seed over s2; 0
    # where masks modulo 2^64 hide all but the sum.
    seed_ratio: int = dataclasses.field(default=0, metadata={"omittable": True})
    # The half whose vectors are summed; those of the other half are zero
    part: Half = dataclasses.field(default="", metadata={"omittable": True})

    def __post_init__(self) -> None:
        # The type is checked, too: a float would make the cost inexact.
        for name, minimum in _MINIMA.items():
            value = getattr(self, name)
            if type(value) is not int or value < minimum:
                raise impossible(f"{name} of a release is out of range")
        if self.log2_gamma > _MAX_LOG2_GAMMA:
            raise impossible("log2_gamma of a release is out of range")
        if self.shape not in ("ball", "psd"):
            raise impossible("the shape of a release is not ball or psd")
        if self.part not in ("", "A", "B"):
            raise impossible("the part of a release is not A or B")
        if type(self.phase) is not str or type(self.field) is not str:
            raise impossible("phase and field of a release are not texts")

    def __hash__(self) -> int:
        # Every round looks up all earlier charges; these three tell events of a run apart.
        return hash((self.phase, self.round, self.field))

    @property
    def name(self) -> str:
        return f"{self.phase} round {self.round} ({self.field})"

    @property
    def private(self) -> bool:
        return self.variance > 0

    @property
    def cost(self) -> Cost:
        """mu^2 = Delta_int^2 / (h s2); times (r + h) / (r + 1) where the seeds are Gaussian."""
        return _cost(self.delta_int, self.shares, self.variance, self.seed_ratio)

    @property
    def seed_variance(self) -> int:
        """Integer variance r s2 of a seed of Gaussian zero-sum noise."""
        return self.seed_ratio * self.variance

    @property
    def gamma(self) -> float:
        return math.ldexp(1.0, self.log2_gamma)

    # All S shares stay in the mean, also those that a viewer knows.
    def noise_std(self, n_sites: int, n_subjects: int) -> float:
        """Noise std of each entry of the mean over subjects, sqrt(S s2) / (gamma M)."""
        return math.sqrt(n_sites * self.variance) / (self.gamma * n_subjects)


@lru_cache(maxsize=65536)  # every charge adds up all that were charged before
def _cost(delta_int: int, shares: int, variance: int, seed_ratio: int) -> Cost:
    if not variance:
        return INFINITE  # never 0: a sum must not take "no noise" for "no cost"
    top, bottom = delta_int**2, shares * variance
    if seed_ratio:  # the viewer sees every site's reply, with its seed and the sum of the seeds
        top, bottom = top * (seed_ratio + shares), bottom * (seed_ratio + 1)
    return Cost(mu2=Fraction(top, bottom))


def impossible(problem: str) -> ConfigError:
    return ConfigError("E232", problem=problem, do="correct the plan.")
