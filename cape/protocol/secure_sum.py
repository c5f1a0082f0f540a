"""`secure_sum`: the only door through which a number computed from data leaves a site.

One release asks every subject one question, bounds the answer, and sums: clip -> integers ->
exact integer re-clip -> sum -> charge -> + noise share g_s -> + zero-sum noise e_s.  Nobody sees
anything but the modular sum over all sites (`_gaussian` and `_local` are for comparison).  Here,
and nowhere else, the accountant's half (`cape.privacy`) and the cryptographer's half
(`cape.secagg`) meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data, Estimator, SubjectQuery, same_form
from cape.config import Config
from cape.errors import MessageError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.event import Event
from cape.privacy.ledger import Plan
from cape.privacy.mechanisms import overflow_bound, verify_event
from cape.privacy.sampler import discrete_gaussian
from cape.protocol.droppable_sum import DroppableSum
from cape.protocol.gaussian_sum import GaussianSum
from cape.protocol.local_sum import LocalReduction, LocalSum, seen_singly
from cape.protocol.messages import Masked, RoundRecord
from cape.protocol.model import Model, attendance, joined, own_subjects
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.zero_sum import entry, hide
from cape.secagg.aggregator_stages import SurvivorSum
from cape.secagg.field import Integers, decode_sum, quantized_sum

FIELD = "total"
M = TypeVar("M", bound=Model)

CHUNK = 32
"""Subjects whose answers are held at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecureSum(Generic[M]):
    """A line of a table: a stage that makes one release per round until its estimator is done.

    Attributes
    ----------
    name : str
        Of the phase.
    state : type
        Of the estimator's state, which is what is broadcast.
    model_field : str
        Field of the model that holds it.
    estimator : callable
        ``estimator(config, model)``: from public values only.
    rows : callable
        ``rows(model)``: number of rows of what `input` gives.
    input : callable
        ``input(site, model)``: the subjects, as this stage sees them.
    successors : tuple of SecureSum
        Stages that may follow, in order; the first one that is not done opens next.
    close : callable, optional
        ``close(config, model)``: last state of the run, for the stage that opens `report`.
    local_reduction : LocalReduction, optional
        What a site sends of its own noisy sum where it is seen by itself (``noise=local``).
    enabled_if : callable, optional
        ``enabled_if(config)``: whether these settings have the stage at all.
    may_reduce_rank : bool
        Whether a rank guard may keep fewer than the estimator's `n_components` directions.
    """

    # Settings are those of the computation itself, so its functions may name their type.
    name: str
    state: type
    model_field: str
    estimator: Callable[[Any, M], Estimator[Any]]
    rows: Callable[[M], int]
    input: Callable[[Site, M], Stacks]
    successors: tuple[SecureSum[M], ...] = ()
    close: Callable[[Any, M], Any] | None = None
    local_reduction: LocalReduction | None = None
    enabled_if: Callable[[Any], bool] | None = None
    may_reduce_rank: bool = False

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return the phases of one release under the chosen aggregation; () if there is none."""
        if self.enabled_if is not None and not self.enabled_if(config):
            return ()
        end = ("report",) if self.close is not None else ()
        stages = (self, *self.successors)
        then = (*(entry(stage.name, config) for stage in stages), *end)
        if config.zero_sum == "gaussian":
            return self._gaussian(config, then)
        if seen_singly(config):
            return self._local(config, then)
        if config.aggregation == "secagg":
            return self._droppable(config, then)
        return (
            Phase(
                name=self.name,
                reply=Masked,
                broadcast=self.state,
                answer=self._answer,
                combine=self._combine,
                absorb=self._absorb,
                then=then,
                attendance=attendance,
                check=functools.partial(self._check, config),
            ),
        )

    def _gaussian(self, config: Config, then: tuple[str, ...]) -> tuple[AnyPhase, ...]:
        return GaussianSum(
            name=self.name,
            broadcast=self.state,
            event=self._event,
            size=self._size,
            noisy=self._noisy,
            charge=self._charged_size,
            step=self._step_of_all,
            stopped=self._stopped,
            absorb=self._absorb,
            then=then,
            check=functools.partial(self._check, config),
        ).phases()

    def _local(self, config: Config, then: tuple[str, ...]) -> tuple[AnyPhase, ...]:
        return LocalSum(
            name=self.name,
            broadcast=self.state,
            local_reduction=self.local_reduction,
            event=self._event,
            noisy=self._noisy,
            charge=self._charged_size,
            step=self._step_of_all,
            step_of_mean=self._step_of_mean,
            stopped=self._stopped,
            absorb=self._absorb,
            then=then,
            check=functools.partial(self._check, config),
        ).phases()

    def _droppable(self, config: Config, then: tuple[str, ...]) -> tuple[AnyPhase, ...]:
        return DroppableSum(
            name=self.name,
            field=FIELD,
            broadcast=self.state,
            answer=self._answer,
            size=self._charged_size,
            bound=self._bound,
            finish=self._finish,
            absorb=self._absorb,
            then=then,
            check=functools.partial(self._check, config),
        ).phases()

    def current(self, config: Config, model: M) -> Any:
        """Return the released state, or the one to start from."""
        released = getattr(model, self.model_field)
        if released is not None:
            return released
        return self.estimator(config, model).start(self.rows(model))

    def finished(self, config: Config, model: M) -> bool:
        """Tell whether this stage needs no further release."""
        return self.estimator(config, model).done(self.current(config, model))

    def _answer(self, site: Site, model: M) -> Masked:
        noisy = self._noisy(site, model)
        if noisy is None:
            return Masked(total=np.zeros(0, dtype=np.uint64), refused=True)
        return Masked(total=hide(site, model, noisy, FIELD), refused=False)

    def _noisy(self, site: Site, model: M) -> Integers | None:
        """Return x + g of this site, or None if its policy or budget refuses the release."""
        query = self.estimator(site.config, model).query(self.current(site.config, model))
        event = self._event(site, model)
        check_query(event, query)
        subjects = self.input(site, model)
        if event.private:
            check_subjects(event, subjects, own_subjects(site.id, model))
        total = clipped_sum(chunks(subjects), query, event)
        try:
            site.charge(event)  # on record before any noise is drawn
        except PrivacyBudgetError:
            return None
        if event.private:
            entropy = site.noise.stream(site.id, event.phase, event.round, "noise")
            total = total + discrete_gaussian(event.variance, query.size, entropy)
        return total

    def _combine(
        self, party: Aggregator, replies: Mapping[str, Masked], model: M
    ) -> tuple[Any, str | None]:
        size = self._charged_size(party, model)  # the sites that answered have charged it too
        if refusing := [site for site, reply in replies.items() if reply.refused]:
            return self._stopped(party.config, model, refusing[0])
        for site, reply in replies.items():
            if reply.total.shape != (size,):
                problem = f"site {site} sent {reply.total.shape} numbers, needed {size}"
                raise MessageError("E202", problem=problem)
        vectors = [reply.total for reply in replies.values()]
        total = decode_sum(vectors, bound=self._bound(party, model))
        return self._step_of_all(party, model, total)

    def _step_of_all(self, party: Aggregator, model: M, total: Integers) -> tuple[Any, str | None]:
        roster = joined(model)
        return self._step(party, model, total, roster.n_sites, roster.n_subjects)

    def _finish(self, party: Aggregator, total: SurvivorSum, model: M) -> tuple[Any, str | None]:
        """Take the step of a sum over the sites that are left."""
        return self._step(party, model, total.total, len(total.survivors), total.n_subjects)

    def _event(self, party: Site | Aggregator, model: M) -> Event:
        return Plan(releases=joined(model).plan).find(self.name, party.cursor.round)

    def _charged_size(self, party: Aggregator, model: M) -> int:
        """Put the release on record and return the length of its vector."""
        party.charge(self._event(party, model))
        return self._size(party.config, model)

    def _size(self, config: Config, model: M) -> int:
        return self.estimator(config, model).query(self.current(config, model)).size

    def _bound(self, party: Aggregator, model: M) -> int:
        roster = joined(model)
        return overflow_bound(self._event(party, model), roster.n_sites, roster.n_subjects)

    def _step(
        self, party: Aggregator, model: M, total: Integers, n_sites: int, n_subjects: int
    ) -> tuple[Any, str | None]:
        """Turn a sum over sites into the next state and the phase to open."""
        event = self._event(party, model)
        mean = total / (event.gamma * n_subjects)
        return self._advanced(party, model, mean, event.noise_std(n_sites, n_subjects))

    def _step_of_mean(self, party: Aggregator, model: M, mean: Array) -> tuple[Any, str | None]:
        """Take the step of a mean over all subjects that was put together from parts."""
        roster = joined(model)
        noise_std = self._event(party, model).noise_std(roster.n_sites, roster.n_subjects)
        return self._advanced(party, model, mean, noise_std)

    def _advanced(
        self, party: Aggregator, model: M, mean: Array, noise_std: float
    ) -> tuple[Any, str | None]:
        config = party.config
        estimator = self.estimator(config, model)
        state = estimator.step(self.current(config, model), mean, noise_std)
        after = replace(model, **{self.model_field: state})
        name = self._next(config, after)
        if name == "report" and self.close is not None:
            state = self.close(config, after)
        return state, name

    def _next(self, config: Config, model: M) -> str:
        stages = (self, *self.successors)
        waiting = (entry(s.name, config) for s in stages if not s.finished(config, model))
        return next(waiting, "report")

    def _stopped(self, config: Config, model: M, site: str) -> tuple[Any, str]:
        """Return the last good state when a site refused this release; nothing was summed."""
        if self.close is None:
            raise PrivacyBudgetError("E154", site=site)
        state = replace(self.current(config, model), status="budget_exhausted")
        after = replace(model, **{self.model_field: state})
        return self.close(config, after), "report"

    def _check(self, config: Config, model: M, state: Any) -> None:
        """Raise MessageError unless a broadcast state has the form that its first one has here.

        A site computes with what it is told: an array with an axis more would ask every subject
        many times for one charge, a large one would fill the memory.
        """
        estimator, rows = self.estimator(config, model), self.rows(model)
        most = min(getattr(estimator, "n_components", 0), rows) if self.may_reduce_rank else 0
        if not same_form(estimator.start(rows), state, most=most):
            raise MessageError("E202", problem=f"{self.name}: arrays of another shape than planned")

    def _absorb(self, model: M, state: Any) -> M:
        record = RoundRecord(
            phase=self.name,
            round=1 + sum(row.phase == self.name for row in model.trace),
            statistic_norm=state.record.statistic_norm,
            noise_norm=state.record.noise_norm,
            step_norm=state.record.step_norm,
            stability=state.record.stability,
            survivors=model.drop_outs.survivors if model.drop_outs else (),
        )
        refused = getattr(state, "status", "") == "budget_exhausted"
        trace = model.trace if refused else (*model.trace, record)
        return replace(model, trace=trace, **{self.model_field: state})


def chunks(stacks: Stacks) -> Iterator[Data]:
    """Yield the subjects in stacks of at most `CHUNK`."""
    for array in stacks.arrays:
        for first in range(0, len(array), CHUNK):
            yield array[first : first + CHUNK]


def clipped_sum(stacks: Iterator[Data], query: SubjectQuery, event: Event) -> npt.NDArray[np.int64]:
    """Return the exact sum of all subjects' bounded integer answers, shape (size,).

    Raises
    ------
    PrivacyBudgetError
        An answer is not one vector of that size for each subject.
    """
    total = np.zeros(query.size, dtype=np.int64)
    for stack in stacks:
        answers = query.answer(stack)
        if answers.shape != (len(stack), query.size):
            raise _uncovered(event, "does not ask each subject for one vector of the planned size")
        total += quantized_sum(
            answers, log2_gamma=event.log2_gamma, clip_int=event.clip_int, shape=event.shape
        ).total
    return total


def check_subjects(event: Event, subjects: Stacks, n_subjects: int) -> None:
    """Raise PrivacyBudgetError unless every subject enters a sum once, which its bound counts on.

    The working arrays follow from broadcasts: they must not make two subjects out of one.
    """
    if sum(len(array) for array in subjects.arrays) != n_subjects:
        raise _uncovered(event, f"does not ask each of {n_subjects} subjects once")


def _uncovered(event: Event, problem: str) -> PrivacyBudgetError:
    return PrivacyBudgetError("E233", phase=event.phase, round=event.round, problem=problem)


def check_query(event: Event, query: SubjectQuery) -> None:
    """Raise PrivacyBudgetError unless the planned release covers the question exactly."""
    if query.size > event.size or query.shape != event.shape:
        raise _uncovered(event, "asks for another vector than planned")
    verify_event(event, query.clip)
