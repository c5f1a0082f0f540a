"""The integers of one release: scale, clip, sensitivity, noise variance, and their checks.

A release sums one clipped integer vector per subject and one discrete Gaussian share per site
(unit: one subject; relation: replace one).  All numbers follow from public ones in exact arithmetic
(a float is the rational number it is): all machines get equal integers, and a site can check a plan
that it did not make.  `cape.privacy.noise` draws, `cape.secagg.field` clips, `cape.privacy.cost`
computes mu.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from math import isqrt
from typing import Final

from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.cost import Event, Half, VectorShape, impossible

# Noise std of 2^10 units: below it the grid of the integers begins to show in delta.
MIN_VARIANCE: Final = 2**20

# Noise std of 2^28 units: products of the sampler still fit int64 (61 T0^2 < 2^62).
MAX_VARIANCE: Final = 2**56

MAX_LOG2_SUM: Final = 62
MAX_LOG2_GAMMA_WITHOUT_NOISE: Final = 40

# gamma is the largest power of two for which tau_g, without rounding, is at most this.
_NOISE_UNITS: Final = 2**22

# C_int >= 50 sqrt(d), so that rounding (at most sqrt(d)/2) is small against the clip.
_CLIP_PER_ROUNDING: Final = 50


def integer_sensitivity(shape: VectorShape, clip_int: int, size: int) -> int:
    """Delta_int: the largest L2 distance of two integer vectors that one subject can send."""
    if shape == "ball":
        # By the triangle inequality.
        return 2 * clip_int
    # svec of PSD matrices, rounded: <P, P'> >= 0 gives sqrt(2) C_int, and rounding, which leaves
    # the cone, adds at most sqrt(d) (1 - 1/sqrt(2)) < 0.3 sqrt(d).
    rounding = _ceil_root(-(-9 * size // 100))  # ceil(0.3 sqrt(d)), also when 9 d/100 is no integer
    return _ceil_root(2 * clip_int**2) + rounding + 1


def plan_event(
    *,
    phase: str,
    round: int,
    field: str,
    shape: VectorShape,
    size: int,
    clip: float,
    mu: float,
    shares: int,
    seed_ratio: int = 0,
    part: Half = "",
) -> Event:
    """Choose the integers of a release that costs at most mu^2 to the headline viewer, exactly.

    `clip` is C, bound of the L2 norm of one subject's vector in its units.  ConfigError if clip or
    mu is not positive and finite, or no scale fits: the noise would be too large for the integers.
    """
    # Exact rational numbers: every party gets the same integers on every machine.
    c, m = _positive("clip", clip), _positive("mu", mu)
    factor2 = 4 if shape == "ball" else 2  # Delta^2 / C^2
    view = Fraction(seed_ratio + shares, seed_ratio + 1) if seed_ratio else Fraction(1)
    # gamma <= 2^22 / tau_g, with tau_g = Delta / (mu sqrt(h)): compare the squares.
    log2_gamma = _floor_log4(_NOISE_UNITS**2 * m**2 * shares / (factor2 * c**2 * view))
    # A finer grid costs only room; it is made finer until rounding is small against the clip.
    while _clip_int(c, log2_gamma) ** 2 < _CLIP_PER_ROUNDING**2 * size:
        log2_gamma += 1
    while size * _clip_int(c, log2_gamma) ** 2 >= 2**63:  # very long vectors of a loud release
        log2_gamma -= 1
    clip_int = _clip_int(c, log2_gamma)
    delta_int = integer_sensitivity(shape, clip_int, size)
    # The variance belongs to the integer sensitivity, with rounding, and is itself rounded up: the
    # cost never exceeds mu^2.
    event = Event(
        phase=phase,
        round=round,
        field=field,
        shape=shape,
        size=size,
        log2_gamma=log2_gamma,
        clip_int=clip_int,
        delta_int=delta_int,
        variance=math.ceil(delta_int**2 * view / (m**2 * shares)),
        shares=shares,
        seed_ratio=seed_ratio,
        part=part,
    )
    # The planner obeys the rules that every site checks.
    if problem := _misfit(event, c):
        text = f"{event.name}: {problem}"
        raise ConfigError("E232", problem=text, do="lower the clip bound or raise epsilon.")
    return event


def plan_event_without_noise(
    *,
    phase: str,
    round: int,
    field: str,
    shape: VectorShape,
    size: int,
    clip: float,
    n_subjects: int,
    part: Half = "",
) -> Event:
    """Choose the integers of a release of a run with ``private=false``: variance 0.

    `clip` only bounds the integers.  ConfigError if not positive and finite, or no scale fits.
    """
    c = _positive("clip", clip)
    # The largest scale for which sums stay below 2^62 and squares below 2^63.
    log2_gamma = MAX_LOG2_GAMMA_WITHOUT_NOISE
    while (
        n_subjects * _clip_int(c, log2_gamma) >= 2**MAX_LOG2_SUM
        or size * _clip_int(c, log2_gamma) ** 2 >= 2**63
    ):
        log2_gamma -= 1
    clip_int = _clip_int(c, log2_gamma)
    if clip_int**2 < _CLIP_PER_ROUNDING**2 * size:
        raise impossible(f"clip {clip:g} does not fit a vector of {size} entries")
    return Event(
        phase=phase,
        round=round,
        field=field,
        shape=shape,
        size=size,
        log2_gamma=log2_gamma,
        clip_int=clip_int,
        delta_int=integer_sensitivity(shape, clip_int, size),
        variance=0,
        shares=1,
        part=part,
    )


def overflow_bound(event: Event, n_sites: int, n_subjects: int) -> int:
    """Bound B = M C_int + ceil(12 sqrt(S s2)): no entry of a true sum is larger, in units."""
    return n_subjects * event.clip_int + _ceil_root(144 * n_sites * event.variance)


def seed_bound(event: Event, n_sites: int) -> int:
    """Bound ceil(12 sqrt(S r s2)): no entry of the sum of the seeds is larger, in units."""
    return _ceil_root(144 * n_sites * event.seed_variance)


def check_overflow(event: Event, n_sites: int, n_subjects: int) -> None:
    """Refuse (ConfigError) a release whose sum could leave the integers modulo 2^64."""
    # 12 noise stds: farther out lies less than 4e-33 per entry.
    bound = overflow_bound(event, n_sites, n_subjects)
    if event.seed_ratio:  # S (x + g) + S e_hat - T of one site, and their sum
        one = _ceil_root(144 * event.variance) + _ceil_root(576 * event.seed_variance)
        bound = n_sites * max(bound, one + n_subjects * event.clip_int)
    if bound >= 2**MAX_LOG2_SUM:
        raise ConfigError("E221", got=bound.bit_length())


def verify_event(event: Event, clip: float, *, site: str = "(self)") -> None:
    """Check, as a site, a release that another party planned; `clip` is this site's C.

    Exact: C_int <= gamma C, Delta_int as by `integer_sensitivity`, noise std between 2^10 and 2^28
    units, no coarser grid than a site would plan, room for rounding and for squares in int64.
    `check_plan` checks the budget, the caller whether noise may be absent.  ConfigError if `clip`
    is not positive and finite; PrivacyBudgetError, which names `site`, if a check fails.
    """
    if problem := _misfit(event, _positive("clip", clip)):
        raise PrivacyBudgetError("E231", site=site, problem=f"{event.name}: {problem}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatticeSlack:
    """Upper bounds of what discrete noise adds to (epsilon, delta) of Gaussian DP."""

    epsilon: float
    delta: float


def lattice_slack(events: Iterable[Event]) -> LatticeSlack:
    """Bound the difference between discrete and rounded continuous noise over a whole run."""
    # A run that is mu-GDP by its ledger satisfies (epsilon + 2 kappa, delta + 4e-33 n), n entries
    # in all; about 6e-9 and 1e-28 for a run of 43 releases.
    # Within 12 noise stds the masses differ by a factor of at most exp(kappa), kappa = sum over
    # releases of 143 d / (24 h s2); beyond lies less than 4e-33 per entry.
    kappa, entries = 0.0, 0
    for event in events:
        if not event.private:
            raise ConfigError("E234", what=event.name)
        kappa += 143 * event.size / (24 * event.shares * event.variance)
        entries += event.size
    return LatticeSlack(epsilon=2.0 * kappa, delta=4e-33 * entries)


def _misfit(event: Event, clip: Fraction) -> str:
    """Name the first rule that the integers of a release break; an empty text if none."""
    # A looser clip would let a subject count for more than this site agreed to.
    if event.clip_int > _clip_int(clip, event.log2_gamma):
        return "the integer clip is above the clip"
    # A smaller sensitivity would make the noise look sufficient when it is not.
    if event.delta_int != integer_sensitivity(event.shape, event.clip_int, event.size):
        return "the integer sensitivity is not that of its clip"
    if event.private and not MIN_VARIANCE <= event.variance <= MAX_VARIANCE:
        return "the noise is not between 2^10 and 2^28 units"
    if event.private and _is_coarse(event, clip):
        return "the grid is coarser than a site would plan it"
    if event.seed_variance > MAX_VARIANCE:
        return "the seeds of the zero-sum noise are above 2^28 units"
    if event.clip_int**2 < _CLIP_PER_ROUNDING**2 * event.size:
        return "the integer clip is too small for the vector"
    if event.size * event.clip_int**2 >= 2**63:
        return "squares of the integers do not fit 63 bits"
    return ""


def _is_coarse(event: Event, clip: Fraction) -> bool:
    """Tell whether `plan_event` would choose a finer grid, whose noise adds less slack."""
    # Its noise has at least half of `_NOISE_UNITS` units, but for the rounding of the clip, unless
    # the next grid has no room for squares.
    least = (_NOISE_UNITS * event.clip_int) ** 2
    has_room = event.size * _clip_int(clip, event.log2_gamma + 1) ** 2 < 2**63
    return has_room and 4 * event.variance * (event.clip_int + 1) ** 2 < least


def _clip_int(clip: Fraction, log2_gamma: int) -> int:
    return math.floor(clip * Fraction(2) ** log2_gamma)


def _floor_log4(value: Fraction) -> int:
    """Largest k with 4^k <= value, for value > 0."""
    # Bit lengths give log2 to within 1; the loop takes the last step.  No float: it must be exact.
    k = (value.numerator.bit_length() - value.denominator.bit_length()) // 2 + 1
    while Fraction(4) ** k > value:
        k -= 1
    return k


def _ceil_root(square: int) -> int:
    """Smallest integer whose square is at least `square` >= 0."""
    return isqrt(square - 1) + 1 if square > 0 else 0


def _positive(setting: str, got: float) -> Fraction:
    """Positive finite float as the rational number it is."""
    if not (math.isfinite(got) and got > 0.0):
        raise ConfigError(
            "E011", setting=setting, got=got, allowed="finite, more than 0", do="correct it."
        )
    return Fraction(got)
