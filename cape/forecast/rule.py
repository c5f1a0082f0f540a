"""G, the effective size of a run, and the base of all forecast rules: will it work, what helps.

Thresholds were measured on synthetic data unless a sentence says otherwise.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Final, Literal

from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu

# Components independent in time, independent in space, or led by templates
ComponentKind = Literal["temporal", "spatial", "template"]
ForecastAnswer = Literal["no", "perhaps", "yes"]

# The three answers as every command and page prints them
ANSWER_WORDS: Final[dict[ForecastAnswer, str]] = {"no": "No", "perhaps": "Perhaps", "yes": "Yes"}

MAX_COMPONENTS: Final = 50

# Epsilons of the curve, beside the planned one
EPSILONS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

# Above this epsilon an observer's odds that a person took part may change more than 22,000-fold
# (e^10).  No board can sign that, so no such epsilon is advised.
SIGNABLE: Final = 10.0


def g_eff(*, n_subjects: int, mu: float, noise_shares: int, n_sites: int) -> float:
    """Return G = M mu sqrt(h / S), the one number that quality depends on.

    `mu`: of the whole run against the headline viewer (inf without noise); h = `noise_shares`: the
    noise shares that this viewer cannot subtract (1 with noise=local).
    """
    # The sum carries S noise shares, and the viewer can subtract all but h of them.
    return n_subjects * mu * math.sqrt(noise_shares / n_sites)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSize:
    """Sites, subjects and noise shares of a plan (S, M, h), and its delta."""

    n_sites: int
    n_subjects: int
    noise_shares: int
    delta: float

    def g(self, epsilon: float) -> float:
        return self.g_of(gdp_mu(epsilon=epsilon, delta=self.delta))

    def g_of(self, mu: float) -> float:
        return g_eff(
            n_subjects=self.n_subjects, mu=mu, noise_shares=self.noise_shares, n_sites=self.n_sites
        )

    def epsilon_for(self, g: float) -> float:
        return gdp_epsilon(mu=g / self.g_of(1.0), delta=self.delta)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The forecast of a run in numbers."""

    g: float  # G of the run; inf without noise
    needed: float  # smallest G with the answer "yes"
    possible: float  # smallest G with the answer "perhaps"
    answer: ForecastAnswer
    usable: bool  # G is enough for maps; other runs are refused unless the owner accepts them
    largest_n_components: int  # largest R at this G, 0 if none is
    smallest_epsilon: float  # smallest total epsilon for this number of components, all else equal
    smallest_n_subjects: int  # fewest subjects for this number of components, all else equal
    # Expected share of the maps' energy inside the released subspace; NaN where unknown
    map_energy: float
    text: str  # the answer, its reason and helpful changes, in words
    warnings: tuple[str, ...]  # further sentences


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The answer to "will it work?", and each single change that would make it a yes."""

    answer: ForecastAnswer
    reason: str  # the rest of the sentence that begins with the answer
    changes: tuple[str, ...] = ()  # each by itself is enough; empty if nothing needs to change
    synthetic_data: str = ""  # results on synthetic data with this answer, one sentence
    real_data: str = ""  # results on real data at this G, one sentence
    caution: str = ""  # if the given or the needed epsilon protects almost nothing; else empty
    networks: str = ""  # maps expected to be networks, "7 of 12"; empty if not measured

    @property
    def sentence(self) -> str:
        """The answer and its reason."""
        return f"{ANSWER_WORDS[self.answer]}: {self.reason}."


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One point of the curve: the same sites and subjects at this epsilon."""

    epsilon: float
    g: float
    answer: ForecastAnswer
    largest_n_components: int  # with the answer "yes"
    expected_q: float | None


def size_text(g: float, *bounds: float) -> str:
    """Return an effective size, with a digit more where it is below a bound of the same rounding.

    Else "50, at least 50 are needed" stood for 49.7.
    """
    if any(g < bound and round(g) >= round(bound) for bound in bounds):
        return f"{math.floor(10 * g) / 10:.1f}"
    return f"{g:.0f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastRule(ABC):
    """The rule of one kind of components, for R components (K templates)."""

    n_components: int
    brains: bool = True  # false for plain columns: results on brains do not apply
    noun: ClassVar[str]  # word for the components

    @abstractmethod
    def needed_g(self) -> float:
        """Return the smallest G with the answer "yes"."""

    def refused_below(self) -> float:
        """Return the smallest G with the answer "perhaps"; below, a run is refused."""
        return self.needed_g()

    def answer(self, g: float) -> ForecastAnswer:
        if g >= self.needed_g():
            return "yes"
        return "perhaps" if g >= self.refused_below() else "no"

    @abstractmethod
    def largest_components(self, g: float) -> int:
        """Return the most components with the answer "yes" at G, 0 if none."""

    def largest_possible(self, g: float) -> int:
        """Return the most components that come back at G on favourable data, 0 if none."""
        return self.largest_components(g)

    @abstractmethod
    def reason(self, g: float) -> str:
        """Return the reason of the answer at G."""

    def networks(self, g: float) -> str:
        """Return how many maps are expected to be networks, "7 of 12"; empty if not measured."""
        return ""

    def sentence(self, g: float) -> str:
        """Return the answer at G and its reason, as every command and page prints them."""
        return f"{ANSWER_WORDS[self.answer(g)]}: {self.reason(g)}."

    @abstractmethod
    def synthetic_data(self, g: float) -> str:
        """Return the results on synthetic data with the answer at G, in one sentence."""

    def largest_text(self, g: float) -> str:
        """Return `largest_components` in a sentence; empty where it does not depend on G."""
        return ""

    @abstractmethod
    def real_data(self, g: float) -> str:
        """Return the results on one real resting-state data set at this G, in one sentence."""

    def expected_q(self, g: float) -> float | None:
        """Return the expected recovery error; None if it was not measured."""
        return None

    def map_energy(self, g: float, n_basis: int) -> float:
        """Return E, the expected share of the maps' energy that is kept; NaN if unknown."""
        return math.nan

    def largest_without_noise(self) -> int:
        """Return the most components of a run without noise: the data alone limit them."""
        return self.n_components

    def forecast(self, size: RunSize, mu: float, *, n_basis: int) -> Forecast:
        """Return the forecast of a run of total `mu` (inf without noise) and d = `n_basis`."""
        g, needed, advice = size.g_of(mu), self.needed_g(), self.advice(size, mu)
        helps = f" What would help: {'; or '.join(advice.changes)}." if advice.changes else ""
        finite = math.isfinite(g)
        largest = self.largest_components(g) if finite else self.largest_without_noise()
        return Forecast(
            g=g,
            needed=needed,
            possible=self.refused_below(),
            answer=advice.answer,
            usable=g >= self.refused_below(),
            largest_n_components=largest,
            smallest_epsilon=size.epsilon_for(needed) if finite else 0.0,
            # Without noise G is infinite: no number of subjects is too small.
            smallest_n_subjects=math.ceil(needed * size.n_subjects / g) if g > 0 else 0,
            map_energy=self.map_energy(g, n_basis),
            text=f"{advice.sentence}{helps}",
            warnings=self._warnings(size, mu, n_basis),
        )

    def _warnings(self, size: RunSize, mu: float, n_basis: int) -> tuple[str, ...]:
        advice = self.advice(size, mu)
        return tuple(filter(None, (advice.synthetic_data, advice.real_data, advice.caution)))

    def advice(self, size: RunSize, mu: float) -> Advice:
        """Return the advice to the owner of a plan of total `mu` (inf without noise)."""
        g = size.g_of(mu)
        # Without noise no person is protected: say that instead of a forecast of quality.
        if math.isinf(g):
            return Advice(
                answer="yes",
                reason="no noise is added, so only the data limit the maps; nobody is protected",
            )
        answer = self.answer(g)
        return Advice(
            answer=answer,
            reason=self.reason(g),
            changes=() if answer == "yes" else self._changes(size, g),
            synthetic_data=self.synthetic_data(g),
            real_data=self.real_data(g),
            caution=self._caution(size, mu),
            networks=self.networks(g),
        )

    def _caution(self, size: RunSize, mu: float) -> str:
        spent, needed = gdp_epsilon(mu=mu, delta=size.delta), size.epsilon_for(self.needed_g())
        almost_nothing = f"above {SIGNABLE:g} it protects almost nothing"
        if spent > SIGNABLE:
            return f"Epsilon is {rounded_up(spent)}: {almost_nothing}."
        if needed > SIGNABLE:
            return f"Epsilon alone would have to be {rounded_up(needed)}, and {almost_nothing}."
        return ""

    def _changes(self, size: RunSize, g: float) -> tuple[str, ...]:
        needed = self.needed_g()
        changes = [f"subjects: at least {math.ceil(size.n_subjects * needed / g)}"]
        if (epsilon := size.epsilon_for(needed)) <= SIGNABLE:
            changes.append(f"epsilon: at least {rounded_up(epsilon)}")
        trusting = replace(size, noise_shares=size.n_sites)
        # Without colluders all noise shares count; offer that only if it is enough by itself.
        gained = trusting.g_of(1.0) / size.g_of(1.0)
        if size.noise_shares < size.n_sites and gained * g >= needed:
            changes.append("assumed_colluders: 0, if every site trusts all others not to collude")
        return tuple(changes)

    def curve(self, size: RunSize, *, epsilon: float) -> tuple[CurvePoint, ...]:
        return tuple(
            CurvePoint(
                epsilon=at,
                g=g,
                answer=self.answer(g),
                largest_n_components=self.largest_components(g),
                expected_q=self.expected_q(g),
            )
            for at, g in ((at, size.g(at)) for at in sorted({*EPSILONS, epsilon}))
        )


def rounded_up(value: float) -> str:
    """Return `value` with three digits, rounded up."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    # 1e-9 keeps a number that has three digits already.
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"
