"""Forecast of the smallest effect that a comparison of groups can find, before it is run.

The estimator itself (`cape.algorithms.contrast`) runs through its looks on values of an ordinary
study with the noise of the plan: groups differ by .2 to .4 sd in covariates, which explain a few
percent of an outcome.
`bench/contrast.py` compares its standard errors with those of runs.
"""

from __future__ import annotations

import math

import numpy as np

from cape.algorithms.contrast import (
    MAX_WHOLE_JACOBIAN,
    OCTAVES,
    Contrast,
    Contrasted,
    Estimates,
    estimates,
)
from cape.algorithms.estimators import Array
from cape.algorithms.linalg import svec
from cape.algorithms.significance import Z80, Z95, power
from cape.frozen import dataclass

# Effects, in sd, whose power is forecast
EFFECTS = (0.2, 0.3, 0.5, 0.8)
# A plan whose smallest difference is larger than this is refused unless the owner accepts it.
MAX_USEFUL = 0.8

# Ordinary studies (`bench/contrast.py`, row "motion .4 sd"): imbalance c_x of a covariate; its
# effect on an outcome; rms of the centre of many outcomes, in scales; share of many outcomes that
# the clip leaves; spread of one outcome with its sites, in sd; mean r^2 of a continuous question.
IMBALANCE, COVARIATE, CENTRE, SLOPE, SPREAD, AGE_SQUARE = 0.055, 0.12, 0.8, 0.91, 1.03, 0.045
# Number of simulated studies (half of it for many outcomes), and their seed: of eight seeds the one
# whose 50 draws are nearest to 800 draws (25 draws of the first seed were 3 to 7 % too high)
DRAWS, SEED = 50, 23


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastForecast:
    """Precision of a planned question, in sd."""

    se: float  # standard error of a difference
    privacy: float  # share of se^2 that privacy noise adds, adjustment included
    power: tuple[float, ...]  # for each of `EFFECTS`, tested at .05

    @property
    def smallest(self) -> float:
        """Smallest difference that is found with power .8."""
        return (Z95 + Z80) * self.se

    @property
    def usable(self) -> bool:
        return self.smallest <= MAX_USEFUL


def forecast(question: Contrast) -> ContrastForecast:
    """Forecast a question whose `noise` is that of the plan; for a pattern, that of half B."""
    n = DRAWS if question.n_outcomes == 1 else DRAWS // 2
    draws = [_drawn(question, np.random.default_rng([SEED, i])) for i in range(n)]
    variances = np.array([np.mean(draw.se**2) for draw in draws])
    sampling = np.array([np.mean(draw.se_sampling**2) for draw in draws])
    se = float(np.sqrt(np.median(variances)))
    return ContrastForecast(
        se=se,
        privacy=1.0 - float(np.median(sampling / variances)),
        power=tuple(power(effect, se) for effect in EFFECTS),
    )


def _drawn(question: Contrast, rng: np.random.Generator) -> Estimates:
    """Simulate all looks of a question: typical values plus the planned noise."""
    state = question.start(0)
    for look, std in zip(question.looks, question.noise, strict=True):
        scale = look.bound(question, state) * question.everybody / question.groups.n
        mean = _typical(question, state, look.name) / scale
        state = question.step(state, mean + std * rng.standard_normal(look.size), std)
    return estimates(question, state)


def _typical(question: Contrast, state: Contrasted, look: str) -> Array:
    """Return the noise-free answer of an ordinary study to one look, in the look's units."""
    outcomes, p = question.n_outcomes, len(question.covariates)
    square = AGE_SQUARE if question.strict else question.groups.mean_square
    slope, square_left = SLOPE, SLOPE
    if outcomes == 1:  # a clip at C scales leaves this of a normal outcome and of its square
        spread = SPREAD / float(state.scale[0])
        cut = state.radius / spread
        inside = math.erf(cut / math.sqrt(2.0))
        tail = cut * math.sqrt(2.0 / math.pi) * math.exp(-(cut**2) / 2)
        slope = max(inside - 0.02, 0.0)
        square_left = spread**2 * (inside - tail + cut**2 * (1.0 - inside))
    if look in ("scale", "rescale"):
        below = [math.erf(edge / SPREAD / math.sqrt(2.0)) for edge in OCTAVES]
        return np.diff(np.concatenate([[0.0], below, [1.0]]))
    if look == "moments":
        return svec(0.9 * np.eye(p))
    if look == "pull":
        pull = 0.5 * (1 - slope) / outcomes
        if outcomes > MAX_WHOLE_JACOBIAN:
            return np.full(1, outcomes * pull - 0.5)
        return svec(pull * np.eye(outcomes))
    if look == "squares":
        squares = np.full(outcomes, square_left * (square + state.reach**2 / 4))
        # The squares of a single outcome are centred at half their largest value.
        largest = ((0.5 + state.reach) * state.radius) ** 2
        return squares - largest / 2 if outcomes == 1 else squares
    values = {
        "centre": (outcomes, CENTRE),
        # r of a continuous question is smaller, and so is its imbalance.
        "imbalance": (p, IMBALANCE / (4 if question.strict else 1)),
        "separation": (1, square - 0.125),
        "slope": (1, slope - 0.5),
        "effects": (p * outcomes, COVARIATE * slope),
        "contrast": (outcomes, 0.0),
        "kappa": (1, slope - 0.5),
        "spread": (1, 0.0),
    }
    size, value = values[look]
    return np.full(size, value)
