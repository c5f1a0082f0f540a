"""The record of one release, planned or charged: all that its privacy depends on.

It holds integers, because every party must compute the same cost from it, exactly.  How they are
chosen, and checked by a site that did not choose them, is `cape.privacy.mechanisms`.

Calibration of one share (Imtiaz et al., Alg. 2, with the share count h = t - S_C of the parties
whose noise nobody can subtract): tau_g^2 = Delta^2 / (mu^2 h), hence mu = Delta / (tau_g sqrt(h)).
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.privacy.cost import INFINITE, Cost

Shape = Literal["ball", "psd"]

# The scale either way: 2^500 is still a float, and so is its inverse.
_MAX_LOG2_GAMMA: Final = 500

_LEAST: Final = {
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
    """One release.

    Raises
    ------
    ConfigError
        If an attribute is of a wrong type or outside its trivial range.  That the numbers fit
        each other is checked by `verify_event`.
    """

    phase: str  # phase of the computation
    round: int  # round within the phase, from 1
    field: str  # name of the released vector
    # {"ball", "psd"}: set that holds one subject's vector: a ball, or svec of PSD matrices within a
    # ball
    shape: Shape
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
    seed_ratio: int = dataclasses.field(default=0, metadata={"added": True})

    def __post_init__(self) -> None:
        # A float or a bool among them would make the cost inexact, so the type is checked, too.
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise impossible(f"{name} of a release is out of range")
        if self.log2_gamma > _MAX_LOG2_GAMMA:
            raise impossible("log2_gamma of a release is out of range")
        if self.shape not in ("ball", "psd"):
            raise impossible("the shape of a release is not ball or psd")
        if type(self.phase) is not str or type(self.field) is not str:
            raise impossible("phase and field of a release are not texts")

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
    if seed_ratio:  # every site's reply is seen, with its seed and the sum of the seeds
        top, bottom = top * (seed_ratio + shares), bottom * (seed_ratio + 1)
    return Cost(mu2=Fraction(top, bottom))


def impossible(problem: str) -> ConfigError:
    """Error of a release whose numbers cannot be."""
    return ConfigError("E232", problem=problem, do="correct the plan.")
