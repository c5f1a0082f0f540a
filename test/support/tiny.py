"""The smallest computation over the real secure sum: three rounds of a clipped mean.

Every party runs in memory through the engine, as in a real run; a site's answer is the first time
point of each subject, so the plain sum is known exactly.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from cape.algorithms.estimators import Array, OneRelease, PlannedRelease, StepRecord, SubjectQuery
from cape.frozen import dataclass
from cape.papers import carriers
from cape.papers.carriers import SeedSum, ZeroSumSettings, check_zero_sum, zero_sum_carrier
from cape.privacy.noise import discrete_gaussian
from cape.protocol import secure_sum, subject_views
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace, Progress
from cape.protocol.model import Model, joined, records
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage, make_plan, verify_plan
from cape.protocol.report_phase import report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.secagg.field import quantized_sum
from cape.settings.config import Config
from cape.settings.option import option
from cape.simulation.memory import MemoryTransport
from cape.simulation.transports import Drop
from cape.site.policy import SitePolicy

SIZE = 4
CLIP = 2.0
ROUNDS = 3


def fixed_noise(monkeypatch: Any) -> None:
    """Let every site add the same known integers: runs told other things draw other noise."""
    fixed = lambda variance, size, source: np.full(size, variance % 997)  # noqa: E731
    _draw_by(monkeypatch, fixed)


def draws(monkeypatch: Any) -> list[Any]:
    """Return a list that gets all noise of the sites, in the order in which it is drawn."""
    drawn: list[Any] = []

    def listening(variance: int, size: int, source: Any) -> Any:
        drawn.append(discrete_gaussian(variance, size, source))
        return drawn[-1]

    _draw_by(monkeypatch, listening)
    return drawn


def _draw_by(monkeypatch: Any, draw: Any) -> None:
    for module in (secure_sum, carriers):
        monkeypatch.setattr(module, "discrete_gaussian", draw)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """What is released."""

    mean: Array
    noise_std: float
    rounds: int
    record: StepRecord
    status: str = "max_rounds"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanEstimator(OneRelease[Mean]):
    """Asks for the first time point."""

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (PlannedRelease(size=rows, clip=CLIP, shape="ball", weight=1.0),) * ROUNDS

    def start(self, rows: int) -> Mean:
        record = StepRecord(statistic_norm=0.0, noise_norm=0.0, step_norm=0.0)
        return Mean(mean=np.zeros(rows), noise_std=0.0, rounds=0, record=record)

    def query(self, state: Mean) -> SubjectQuery:
        return SubjectQuery(
            size=SIZE, clip=CLIP, shape="ball", answer=lambda stack: stack[:, :, 0].astype(float)
        )

    def step(self, state: Mean, mean: Array, noise_std: float) -> Mean:
        return replace(state, mean=mean, noise_std=noise_std, rounds=state.rounds + 1)

    def done(self, state: Mean) -> bool:
        return state.rounds >= ROUNDS


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyModel(Model):
    mean: Mean | None = None

    def progress(self, config: Any, ledger: Any, cursor: Any) -> Progress:
        return Progress(
            phase=cursor.phase,
            round=cursor.round,
            rounds=ROUNDS,
            exchange=cursor.seq,
            exchanges=cursor.seq,
            mu=0.0,
            mu_budget=0.0,
            epsilon=0.0,
            step=0.0,
            stability=0.0,
        )


STAGES = (PlannedStage(phase="mean", releases=MeanEstimator().schedule(SIZE), mu2_weight=1.0),)


def make_run_plan(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    plan = make_plan(config, STAGES, n_sites=n_sites, n_subjects=n_subjects)
    return RunPlan(releases=plan, n_basis=SIZE, warnings=())


MEAN = SecureSum(
    name="mean",
    state=Mean,
    model_field="mean",
    estimator=lambda config, model: MeanEstimator(),
    rows=lambda model: SIZE,
    input=lambda site, model: subject_views.prepared(site, joined(model).space),
    close=lambda config, model: model.mean,
)

TINY = Computation(
    name="tiny",
    config=Config,
    model=TinyModel,
    table=(
        join("tiny", by_sizes(make_run_plan), then="zero-sum"),
        ZeroSum(
            lambda site, roster: verify_plan(site, roster, STAGES, n_basis=roster.n_basis),
            then="mean",
        ),
        MEAN,
        report(lambda site, model: None, lambda party, model: SimpleNamespace(status="done")),
    ),
)

# -- the same with the papers' carrier -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededConfig(ZeroSumSettings, Config):
    zero_sum: Literal["ring", "gaussian"] = option("gaussian")
    seed_ratio: int = option(1000, low=0)

    def check(self) -> None:
        Config.check(self)
        check_zero_sum(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededModel(TinyModel):
    seed_sum: SeedSum | None = field(default=None, metadata={"omittable": True})


SEEDED = replace(
    TINY,
    config=SeededConfig,
    model=SeededModel,
    table=tuple(
        replace(line, carrier=zero_sum_carrier) if line is MEAN else line for line in TINY.table
    ),
)


@dataclasses.dataclass(frozen=True)
class TinySource:
    """Subjects of one site, shape (n, SIZE, 2)."""

    data: Any
    space: FeatureSpace = field(default_factory=lambda: FeatureSpace.of_matrix(SIZE))

    @property
    def n_subjects(self) -> int:
        return len(self.data)

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Any]]:
        for i, subject in enumerate(self.data):
            yield f"s{i}", subject


def data_of(n_sites: int) -> dict[str, Any]:
    rng = np.random.default_rng(n_sites)
    return {
        f"site{i}": rng.normal(size=(3 + i, SIZE, 2)).astype(np.float32) for i in range(n_sites)
    }


def settings(**given: object) -> Config:
    chosen: dict[str, object] = {
        "epsilon": 4.0,
        "delta": 1e-3,
        "feature_space": "matrix",
        "basis": "none",
        **given,
    }
    kind = SeededConfig if {"zero_sum", "seed_ratio"} & set(given) else Config
    return kind.from_input(chosen)


def counted(config: Config, sites: Collection[str]) -> Config:
    """Return the settings with the number of sites, as an owner says it, if they lack it."""
    return config if config.expected_sites else replace(config, n_sites=len(sites))


def link_of(
    config: Config,
    data: dict[str, Any],
    *,
    drops: Sequence[Drop] = (),
    seed: int = 3,
    computation: Computation[Any] | None = None,
    folders: Mapping[str, Path] | None = None,
) -> MemoryTransport:
    policy = SitePolicy.of_simulation(simulation_seed=seed)
    sources = {site: TinySource(values) for site, values in data.items()}
    config = counted(config, sources)
    computation = computation or (SEEDED if isinstance(config, SeededConfig) else TINY)
    return MemoryTransport(computation, config, sources, policy, None, drops=drops, folders=folders)


def released(link: MemoryTransport) -> dict[int, Mean]:
    """Play the run to its end; returns what was released, by round."""
    found: dict[int, Mean] = {}
    while link.exchange()[0] is not None:
        mean = link._state.model.mean
        if mean is not None:
            found[mean.rounds] = mean
    return found


def survivors(link: MemoryTransport, round_: int) -> tuple[str, ...]:
    """Return the sites that a round's sum is of; empty where all must answer."""
    model = link._state.model
    return records(model.trace, model.roster)[round_ - 1].survivors


def plain_mean(link: MemoryTransport, data: dict[str, Any], sites: Sequence[str]) -> Array:
    """The mean over the subjects of these sites, of exactly the integers that are summed."""
    event = link._state.model.roster.plan[0]
    total = sum(
        quantized_sum(
            data[site][:, :, 0].astype(float),
            log2_gamma=event.log2_gamma,
            clip_int=event.clip_int,
            shape=event.shape,
        )
        for site in sites
    )
    return total / (event.gamma * sum(len(data[site]) for site in sites))
