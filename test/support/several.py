"""A toy whose rounds carry several releases: two of other shapes and units, then three.

All that releases may differ in is here: size, shape, clip, share of the budget, the unit that is
asked, a part of the site, and a question that needs the answers of the round before.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from cape import computations
from cape.algorithms.estimators import (
    NO_STEP,
    Array,
    Data,
    PlannedRelease,
    StepRecord,
    SubjectQuery,
    clip_rows,
)
from cape.algorithms.linalg import svec
from cape.frozen import dataclass
from cape.privacy.cost import Half
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model
from cape.protocol.outcome import Outcome, Table
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage, make_plan, verify_plan
from cape.protocol.ports import Aggregator, Site, View
from cape.protocol.report_phase import nothing_for_sites, outcome_in_tables, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.subject_views import as_read
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import option

NAME = "several"
# Numbers of a person that are asked
ROWS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralConfig(Config):
    part: Literal["", "A"] = option("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Several:
    """What was released: all means one after the other, and the std of the noise of each."""

    round: int
    values: Array  # (12,)
    noise: Array  # (5,)
    status: str
    record: StepRecord


PLANNED = (
    PlannedRelease(size=ROWS, clip=2.0, shape="ball", weight=2.0, round=1, name="mean"),
    PlannedRelease(size=3, clip=3.0, shape="psd", weight=1.0, round=1, name="pairs"),
    PlannedRelease(size=1, clip=1.0, shape="ball", weight=1.0, round=2, name="rest"),
    PlannedRelease(size=1, clip=1.0, shape="ball", weight=1.0, round=2, name="again"),
    PlannedRelease(size=3, clip=2.0, shape="ball", weight=3.0, round=2, name="site"),
)
LAST = 2


def of_round(number: int) -> tuple[PlannedRelease, ...]:
    return tuple(release for release in PLANNED if release.round == number)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralEstimator:
    """Stacks are (n, `ROWS`, 1)."""

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return PLANNED

    def start(self, rows: int) -> Several:
        n = sum(release.size for release in PLANNED)
        noise = np.zeros(len(PLANNED))
        return Several(round=0, values=np.zeros(n), noise=noise, status="waiting", record=NO_STEP)

    def queries(self, state: Several) -> tuple[SubjectQuery, ...]:
        def pairs(stack: Data) -> Array:
            n = len(stack) // 2
            apart = stack[: 2 * n : 2, :2, 0] - stack[1 : 2 * n : 2, :2, 0]
            apart = apart.astype(np.float64)
            return np.array([svec(np.outer(one, one)) for one in apart]).reshape(n, 3)

        def rest(stack: Data) -> Array:
            return stack[:, :1, 0] - state.values[:1]

        answers: dict[str, dict[str, Any]] = {
            "mean": {"answer": lambda stack: stack[:, :, 0].astype(np.float64)},
            "pairs": {"answer": pairs, "unit": "pair"},
            "rest": {"answer": rest},
            "again": {"answer": rest},
            "site": {
                "answer": lambda stack: clip_rows(stack[:, 1:, 0], 1.0),
                "part": lambda stack: np.tanh(stack.sum(axis=(0, 2))[1:]) / np.sqrt(3.0),
            },
        }
        return tuple(
            SubjectQuery(size=one.size, clip=one.clip, shape=one.shape, **answers[one.name])
            for one in of_round(state.round + 1)
        )

    def steps(self, state: Several, means: Sequence[Array], noise_stds: Sequence[float]) -> Several:
        asked = [one.round == state.round + 1 for one in PLANNED]
        of_numbers = np.repeat(asked, [one.size for one in PLANNED])
        values, noise = state.values.copy(), state.noise.copy()
        values[of_numbers], noise[asked] = np.concatenate(means), noise_stds
        return replace(state, round=state.round + 1, values=values, noise=noise, status="released")

    def done(self, state: Several) -> bool:
        return state.round >= LAST or state.status == "budget_exhausted"


def released(state: Several, name: str) -> Array:
    """Return the mean that a release of that name gave."""
    first = 0
    for release in PLANNED:
        if release.name == name:
            return state.values[first : first + release.size]
        first += release.size
    raise KeyError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralModel(Model):
    look: Several | None = None


def stages(config: Any) -> tuple[PlannedStage, ...]:
    part: Half = config.part
    return (PlannedStage(phase="look", releases=PLANNED, mu2_weight=1.0, part=part),)


def plan_run(config: Any, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    plan = make_plan(config, stages(config), n_sites=n_sites, n_subjects=n_subjects)
    return RunPlan(releases=plan, n_basis=space.n_features, warnings=())


def people(site: Site, model: Model) -> View:
    """Return the first numbers of each person's first time point, of some size near 1."""
    return View(stacks=as_read(site, model), one=lambda Y: np.tanh(Y[:ROWS, :1]))


def _outcome(party: Aggregator, model: SeveralModel) -> Outcome:
    state = LOOK.released(model)
    rows = tuple((f"{value:.17g}",) for value in state.values)
    table = Table(name="values", title="", note="", header=("value",), rows=rows)
    return outcome_in_tables(NAME, party, model, status=state.status, tables=(table,))


LOOK = SecureSum(
    name="look",
    state=Several,
    model_field="look",
    estimator=lambda config, model: SeveralEstimator(),
    input=people,
)

COMPUTATION = Computation(
    name=NAME,
    config=SeveralConfig,
    model=SeveralModel,
    table=(
        join(NAME, by_sizes(plan_run), then="zero-sum"),
        ZeroSum(
            lambda site, roster: verify_plan(
                site, roster, stages(site.config), n_basis=roster.n_basis
            ),
            then="look",
        ),
        LOOK,
        report(nothing_for_sites, _outcome),
    ),
)


@contextmanager
def found_by_name() -> Iterator[None]:
    """Let the toy be one of the computations."""
    homes: Mapping[str, str] = {**computations._homes(), NAME: __name__}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computations, "_homes", lambda: homes)
        yield
