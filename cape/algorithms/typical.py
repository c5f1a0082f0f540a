"""What a comparison would release of typical people: the forecast of its errors, without draws.

Typical: normal outcomes with an sd of one public unit, covariates that explain .15 of them (of many
outcomes .05) and in which, together, groups lie .6 sd apart, sites .3 sd apart, nobody missing.
The values go through the same facts and the same answer as released ones, so the forecast follows
every rule of the estimator; a test holds it near the errors of runs
(`test_the_forecast_is_near_the_error_of_a_run`).
Noise is as planned; a value that is shrunk by its noise has the size it has with noise.
"""

import math
from dataclasses import replace

import numpy as np

from cape.algorithms.adjusted import GAMMA
from cape.algorithms.answer import Parts, TermAnswer, answer_of
from cape.algorithms.design import Public
from cape.algorithms.estimators import Array
from cape.algorithms.facts import Facts
from cape.algorithms.linalg import svec
from cape.algorithms.looks import PAIR, PART, Stage, look_noise, plan
from cape.algorithms.placed import Seen
from cape.algorithms.population import BINS, GRID, ball, cut_curve, inside, normals, octave_shares
from cape.algorithms.regression import Regression, table_of

# Shares of an outcome; APART: mean x r' of groups over that of r r', x as long as SQUARE says
EXPLAINED, OF_MANY, APART, SITES_APART = 0.15, 0.05, 0.45, 0.3
# Mean squares of a range: scaled it is .59 (`Adjusted.z_square`), and an asked one, by that test,
# somewhat more.  A factor's two levels, -1 and 1, have 1.
SQUARE, ASKED_SQUARE = 0.6, 0.7
# Correlation of covariates with an asked range, over APART: groups 1 sd apart correlate by 1/2, so
# half of that of two factors
ALIKE_RANGE, ALIKE_LEVELS = 0.38, 0.76
# What the look shows of an effect: .93 (`Adjusted.effects`) of a slope of .96 in the ball, less
# some people who lie outside
LOOK_SHOWS = 0.85
# G of hardly any noise
HARDLY_ANY = 1e9
# log2 of the sd of a covariate, in public units
OCTAVE_OF_X = -0.4


def errors(regression: Regression) -> tuple[Parts, ...]:
    """Return the expected errors (K, q, q) of the answer of each term, in squared sd of people."""
    return tuple(one.parts for one in expected(regression))


def expected(regression: Regression) -> tuple[TermAnswer, ...]:
    """Return the answer of each term for typical people, errors in squared sd of people."""
    design = None
    if regression.given is not None:
        asked, _ = regression.given
        design = typical(asked.terms[0], asked.stage)
    found = [answer_of(typical(public, regression.stage, design)) for public in regression.terms]
    return tuple(
        replace(one, parts=one.parts.times((1.0 / one.sd**2)[:, None, None])) for one in found
    )


def typical(public: Public, stage: Stage = "whole", design: Facts | None = None) -> Facts:
    """Return the facts after all looks of a stage; `design`: those of a pattern's first stage."""
    if math.isinf(public.G):  # least squares has the error of looks with hardly any noise
        public, stage = replace(public, G=HARDLY_ANY), "whole"
    asked = plan(public, stage, design.plan if design else None)
    f = Facts(public, asked, {}, stage=stage, design=design)
    seen: dict[str, Seen] = {}
    for look in asked.looks:
        planned = table_of(f)[look.name]
        noise = look_noise(public, planned.bound(f), look.share, psd=planned.shape == "psd")
        seen[look.name] = Seen(_value(f, look.name, planned.size, noise), noise)
        f = f.after(seen)
    return f


def _value(f: Facts, name: str, size: int, noise: float) -> Array:
    p, q, K = f.p, f.q, f.K
    if name == "where":
        curves = octave_shares(1 if K == 1 or f.by_outcome else 3 if f.few else 6)
        return np.tile(curves[np.argmin(np.abs(GRID))], size // BINS)
    if name == "xwhere":
        one = octave_shares(1)[np.argmin(np.abs(GRID - OCTAVE_OF_X))]
        return np.tile(one, size // len(one))
    if name == "middle":
        value = np.zeros(size)
        value[size - 1 - (0 if f.public.protected else q)] = f.middle_radius  # everybody is there
        return value
    if name in ("xsites", "zsites", "sites"):
        side = np.where(np.arange(f.S) % 2, -SITES_APART, SITES_APART) * f.n_s / f.M
        blocks = np.repeat(side[:, None], size // f.S, axis=1)
        if name == "sites":
            blocks[:, K:] = 0.0  # nobody is missing
        return blocks.ravel()
    if name == "design":
        return _moments(f, noise)
    if name == "moments":
        return np.asarray(svec(np.eye(p)) * float((ball(normals(4000, p), f.b) ** 2).mean()))
    if name == "balance":
        return f.shown.ravel()
    if name == "effects":
        each = LOOK_SHOWS * math.sqrt(EXPLAINED / max(p, 1))
        alternate = np.where(np.arange(size) % 2, -1.0, 1.0) * math.hypot(each, noise)
        return alternate if f.few else np.array([OF_MANY * f.n_pairs / f.M])
    if name == "squares":
        kept = cut_curve(f.C / math.sqrt(K), K)[1] * f.square * (1 - (EXPLAINED if f.few else 0.0))
        return np.full(size, (kept - (f.squares_radius / 2 if K == 1 else 0.0)) * f.n_pairs / f.M)
    if name == "by_site":
        square = f.square * cut_curve(f.C / math.sqrt(K), K)[1]
        by_site = np.sqrt(square * f.n_s / f.M**2 + noise**2)
        by_site = by_site * np.where(np.arange(f.S) % 2, -1, 1)
        return np.repeat(by_site, size // f.S)
    if name not in ("slope", "kept"):  # centres and the contrast
        return np.zeros(size)
    c = f.C / math.sqrt(K)
    J = cut_curve(c, K)[0]
    if K > 1:  # who is cut keeps nothing along the own direction
        J -= (J - inside(c)) / K
    if name == "slope":
        return np.array([(float(f.D_all[0, 0]) * J - sum(PAIR) / 2) * f.n_pairs / f.M])
    value = np.zeros(size)
    value[0] = J - 0.5
    value[1 + 2 * q : 1 + 2 * q + K] = -0.5 * PART / math.sqrt(K)
    if not f.public.protected:
        value[1 + 2 * q + K :] = (f.D_all / f.D_unit).ravel()
    return value


def _moments(f: Facts, noise: float) -> Array:
    p, q = f.p, f.q
    S = np.diag(np.where(f.public.ranges, SQUARE, 1.0))
    if f.public.protected:
        square, alike = (1 / 16, ALIKE_LEVELS)
        if f.public.z_range:
            square, alike = ASKED_SQUARE / 16, ALIKE_RANGE
        apart = alike * math.sqrt(square)
    else:
        apart = float(np.trace(f.people[0].T @ f.people[1])) / f.M / q
    cross = np.zeros((p, q))
    cross[:, 0] = APART * apart / math.sqrt(max(p, 1))
    root = math.sqrt(2) * GAMMA
    value = [svec(S), (np.hypot(cross, noise / root) * root).ravel()]
    if f.public.protected:
        value.append(np.array([GAMMA**2 * (square - (0.0 if p else 0.125))]))
    return np.concatenate(value)
