"""What an adversary records of a real run; loaded by path, since test/ is no package.

`Wiretap` is the memory link of the simulator with ears: it keeps the replies that the aggregator
gets, and the streams that colluding sites draw from, which give them their own noise shares.  The
`CANARY` computation makes one secure sum a round in which subject k answers with +-C e_k.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Literal

import numpy as np
from scipy import stats

from cape.algorithms.estimators import OneRelease, PlannedRelease, StepRecord, SubjectQuery
from cape.frozen import dataclass
from cape.papers import carriers
from cape.papers.carriers import SeedSum, ZeroSumSettings, zero_sum_carrier
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import Event
from cape.privacy.ledger import by_exchange
from cape.privacy.mechanisms import overflow_bound
from cape.privacy.noise import SecureNoise
from cape.protocol import secure_sum, wire
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace, Masked
from cape.protocol.model import Model, joined
from cape.protocol.phases import Computation, prefix_of
from cape.protocol.plan import PlannedStage, make_plan, verify_plan
from cape.protocol.report_phase import nothing_for_sites, outcome_in_tables, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.subject_views import prepared
from cape.protocol.zero_sum import ZeroSum
from cape.secagg.keys import RunSecret
from cape.settings.config import MAX_BASIS, Config
from cape.settings.option import option
from cape.simulation import memory as links
from cape.site.policy import SitePolicy

DELTA = 1e-5
ONE_SIDE = 5e-7
"""Error probability of each Clopper-Pearson bound: a false accusation has at most 1e-6."""


# -- certification --------------------------------------------------------------------------------


def certified_mu(statistic: np.ndarray, bits: np.ndarray) -> float:
    """Return a lower bound of mu from guesses "bit is +1" where the statistic is positive."""
    # Any mu-GDP mechanism obeys Phi^-1(TPR) - Phi^-1(FPR) <= mu; both rates enter by their
    # Clopper-Pearson bounds, so that the result exceeds the true mu with probability < 1e-6.
    guess, truth = statistic > 0, bits > 0
    hits, positives = int((guess & truth).sum()), int(truth.sum())
    alarms, negatives = int((guess & ~truth).sum()), int((~truth).sum())
    low = stats.beta.ppf(ONE_SIDE, hits, positives - hits + 1)
    high = stats.beta.isf(ONE_SIDE, alarms + 1, negatives - alarms)
    return float(stats.norm.ppf(low) - stats.norm.ppf(high))


# -- ears -----------------------------------------------------------------------------------------


class Ears:
    """The secret of a site's run, with the streams that were made of it."""

    label = "os"

    def __init__(self) -> None:
        self._asked = {}
        self.renew()

    def renew(self) -> None:
        """Take another secret, as another run would."""
        self._secret = RunSecret(secret=SecureNoise().token_bytes(32), label="os")

    def stream(self, *context: str | bytes) -> Any:
        stream = self._secret.stream(*context)
        # Streams of releases: purpose, transcript, the release's line, ...
        self._asked[context[0], *context[2:3]] = stream
        return stream

    def made(self, purpose: str, event: Event) -> Any:
        """Return the stream of that purpose that was used for a release."""
        return self._asked[purpose, wire.dumps(wire.encode(event, Event))]


@dataclasses.dataclass(frozen=True)
class Subjects:
    """A source of invented subjects, each a matrix (D, T)."""

    matrices: tuple[np.ndarray, ...]
    n_features: int

    @property
    def space(self) -> FeatureSpace:
        return FeatureSpace.of_matrix(self.n_features)

    @property
    def n_subjects(self) -> int:
        return len(self.matrices)

    def reduced(self, n_basis: int) -> Iterator[tuple[str, np.ndarray]]:
        for m, matrix in enumerate(self.matrices):
            yield f"{m:04d}", matrix[:n_basis]


class Wiretap(links.MemoryTransport):
    """A run in memory; `colluders` are sites that tell the aggregator their noise."""

    def __init__(
        self,
        computation: Computation[Any],
        settings: Mapping[str, object],
        sources: Mapping[str, Subjects],
        colluders: tuple[str, ...] = (),
    ) -> None:
        config = computation.config.from_input({"n_sites": len(sources), **settings})
        super().__init__(computation, config, sources, SitePolicy.of_simulation(), None)
        self.colluders, self.sources = colluders, sources
        for party in self._parties.values():
            party.noise = Ears()  # of all sites; only that of colluders is looked at
        self.replies: dict[str, Any] = {}
        # What was drawn from each stream; streams are kept, so that no other one gets its number.
        self._heard: dict[int, tuple[Any, np.ndarray]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what sites draw: drawn again by the plan, half the noise would not be missed."""
        honest = secure_sum.discrete_gaussian

        def heard(variance: int, size: int, source: Any) -> Any:
            found = honest(variance, size, source)
            self._heard[id(source)] = source, found
            return found

        secure_sum.discrete_gaussian = carriers.discrete_gaussian = heard
        try:
            yield
        finally:
            secure_sum.discrete_gaussian = carriers.discrete_gaussian = honest

    def drawn(self, site: str, event: Event, purpose: str = "noise") -> np.ndarray:
        """Return the noise, or the seed, that a colluding site drew for a release."""
        assert site in self.colluders
        return self._heard[id(self._parties[site].noise.made(purpose, event))][1]

    def exchange(self) -> Any:
        """Play a round and keep what the aggregator got."""
        honest = links.advance_aggregator

        def listening(state: Any, inbox: Any, party: Any) -> Any:
            self.replies = {site: envelope.body for site, envelope in inbox.items()}
            self.cursor = state.cursor
            return honest(state, inbox, party)

        links.advance_aggregator = listening
        try:
            with self.listening():
                return super().exchange()
        finally:
            links.advance_aggregator = honest

    def until(self, phase: str) -> Wiretap:
        """Play rounds until sites are about to answer `phase`."""
        while self._state.cursor.phase != phase:
            self.exchange()
        return self

    def snapshot(self) -> tuple[Any, ...]:
        """Return the public state of all parties."""
        return dict(self._runs), self._state, self._request

    def back(self, snapshot: tuple[Any, ...], *, renew: bool = True) -> None:
        """Put the parties back to a snapshot; with other secrets, unless they were in it."""
        for party in self._parties.values() if renew else ():
            party.noise.renew()
        runs, self._state, self._request = snapshot
        self._runs = dict(runs)

    def events(self) -> tuple[Event, ...]:
        """Return the releases that were just made."""
        made = prefix_of(self.cursor.phase), self.cursor.round
        return by_exchange(joined(self._state.model).plan)[made]

    def event(self) -> Event:
        """Return the only release of the round that was just made."""
        (event,) = self.events()
        return event

    def seen(self) -> np.ndarray:
        """Return the decoded sum less the colluders' noise: all that is left of the honest sites.

        Colluders have no data here (their subjects answer with zeros).
        """
        total = np.zeros(len(next(iter(self.replies.values())).total), dtype=np.uint64)
        for reply in self.replies.values():
            assert type(reply) is Masked
            total = total + reply.total
        signed = total.view(np.int64)
        roster, events = joined(self._state.model), self.events()
        assert np.abs(signed).max() <= max(
            overflow_bound(event, roster.n_sites, roster.n_subjects) for event in events
        )
        noise = [
            np.concatenate([self.drawn(site, event) for event in events]) for site in self.colluders
        ]
        return signed - sum(noise)


# -- the canary computation -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryConfig(ZeroSumSettings, Config):
    n_rounds: int = option(1)
    mu: float = option(2.0)
    zero_sum: Literal["ring", "gaussian"] = option("ring")
    seed_ratio: int = option(1000, low=0)
    part: Literal["", "A", "B"] = option("")
    by_site: bool = option(False)


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryState:
    size: int
    round: int
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryModel(Model):
    canary: CanaryState | None = None
    seed_sum: SeedSum | None = field(default=None, metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryEstimator(OneRelease[CanaryState]):
    """Subject k answers its own first column, with the other sign in every second round."""

    n_rounds: int

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (PlannedRelease(size=rows, clip=1.0, shape="ball", weight=1.0),) * self.n_rounds

    def start(self, rows: int) -> CanaryState:
        nothing = StepRecord(statistic_norm=0.0, noise_norm=0.0, step_norm=0.0)
        return CanaryState(size=rows, round=0, record=nothing)

    def query(self, state: CanaryState) -> SubjectQuery:
        sign = sign_of(state.round + 1)

        def answer(stack: np.ndarray) -> np.ndarray:
            return sign * stack[:, :, 0].astype(np.float64)

        return SubjectQuery(size=state.size, clip=1.0, shape="ball", answer=answer)

    def step(self, state: CanaryState, mean: np.ndarray, noise_std: float) -> CanaryState:
        del mean, noise_std
        return CanaryState(size=state.size, round=state.round + 1, record=state.record)

    def done(self, state: CanaryState) -> bool:
        return state.round >= self.n_rounds


def sign_of(round_: int) -> float:
    return 1.0 if round_ % 2 else -1.0


def _stages(config: Any, rows: int) -> tuple[PlannedStage, ...]:
    asked = CanaryEstimator(n_rounds=config.n_rounds).schedule(rows)
    return (
        PlannedStage(
            phase="canary", releases=asked, mu2_weight=1.0, fixed_mu=config.mu, part=config.part
        ),
    )


def _plan(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    rows = space.n_features
    plan = make_plan(config, _stages(config, rows), n_sites=n_sites, n_subjects=n_subjects)
    return RunPlan(releases=plan, n_basis=rows, warnings=())


CANARY = Computation(
    name="canary",
    config=CanaryConfig,
    model=CanaryModel,
    table=(
        join("canary", by_sizes(_plan), then="zero-sum"),
        ZeroSum(
            lambda site, roster: verify_plan(
                site, roster, _stages(site.config, roster.n_basis), n_basis=roster.n_basis
            ),
            then="canary",
        ),
        SecureSum(
            name="canary",
            state=CanaryState,
            model_field="canary",
            estimator=lambda config, model: CanaryEstimator(n_rounds=config.n_rounds),
            input=lambda site, model: prepared(site, joined(model).space),
            close=lambda config, model: model.canary,
            by_site=lambda config: config.by_site,
            carrier=zero_sum_carrier,
        ),
        report(
            nothing_for_sites,
            lambda party, model: outcome_in_tables(
                "canary", party, model, status="done", tables=(), reasons={"done": ""}
            ),
        ),
    ),
)


def budget(mu: float) -> dict[str, object]:
    """Return settings that allow a total mu; what an auditor's few people show is noise."""
    epsilon = gdp_epsilon(mu=mu * (1 + 1e-6), delta=DELTA)
    return {"epsilon": epsilon, "delta": DELTA, "accept_low_quality": True}


def canary_run(
    bits: np.ndarray, *, n_rounds: int, mu: float = 2.0, rows: int = 0, **more: object
) -> tuple[Wiretap, dict[str, np.ndarray]]:
    """Return a run of four sites, the last of which colludes, and the subjects of each site."""
    # Subject k holds 3 times bit k at row k: past the clip norm 1, so clipping counts.  `rows` is
    # the length of the vector, if there are to be more entries than subjects.
    n, D = len(bits), rows or len(bits)
    owned = {f"local{s}": np.arange(s, n, 3) for s in range(3)}
    sources = {}
    for site, own in owned.items():
        matrices = []
        for k in own:
            Y = np.zeros((D, 1), dtype=np.float32)
            Y[k] = 3.0 * bits[k]
            matrices.append(Y)
        sources[site] = Subjects(matrices=tuple(matrices), n_features=D)
    sources["local3"] = Subjects(matrices=(np.zeros((D, 1), np.float32),), n_features=D)
    settings = {
        **budget(mu * math.sqrt(n_rounds)),
        "mu": mu,
        "n_rounds": n_rounds,
        **more,
        "feature_space": "matrix",
        "basis": "none",
        "max_features": MAX_BASIS,
    }
    return Wiretap(CANARY, settings, sources, ("local3",)), owned
