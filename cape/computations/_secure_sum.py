"""`secure_sum`: the only door through which a number computed from data leaves a site.

One release asks every subject one question, bounds the answer, and sums: clip -> integers ->
exact integer re-clip -> sum -> charge -> + noise share g_s -> + zero-sum noise e_s.  Nobody sees
anything but the modular sum over all sites.  Here, and nowhere else, the accountant's half
(`cape.privacy`) and the cryptographer's half (`cape.secagg`) meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Data, Estimator, Query
from cape.computations._model import Model, everybody, joined
from cape.computations._zero_sum import mask
from cape.config import Config
from cape.errors import MessageError, PrivacyBudgetError
from cape.messages import Masked, RoundRecord
from cape.phases import Aggregator, AnyPhase, Phase, Site, Stacks
from cape.privacy.ledger import Plan
from cape.privacy.mechanisms import Event, overflow_bound, verify_event
from cape.privacy.sampler import discrete_gaussian
from cape.secagg.field import decode_sum, quantized_sum

FIELD = "total"
CHUNK = 32
"""Subjects whose answers are held at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecureSum:
    """A line of a table: a stage that makes one release per round until its estimator is done.

    Attributes
    ----------
    name : str
        Of the phase.
    state : type
        Of the estimator's state, which is what is broadcast.
    into : str
        Field of the model that holds it.
    estimator : callable
        ``estimator(config, model)``: from public values only.
    rows : callable
        ``rows(model)``: number of rows of what `sees` gives.
    sees : callable
        ``sees(site, model)``: the subjects, as this stage sees them.
    later : tuple of SecureSum
        Stages that may follow, in order; the first one that is not done opens next.
    close : callable, optional
        ``close(config, model)``: last state of the run, for the stage that opens `report`.
    """

    name: str
    state: type
    into: str
    estimator: Callable[[Config, Model], Estimator[Any]]
    rows: Callable[[Model], int]
    sees: Callable[[Site, Model], Stacks]
    later: tuple[SecureSum, ...] = ()
    close: Callable[[Config, Model], Any] | None = None

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return the phase of the all-sites secure sum."""
        del config
        end = ("report",) if self.close is not None else ()
        return (
            Phase(
                name=self.name,
                reply=Masked,
                broadcast=self.state,
                answer=self._answer,
                combine=self._combine,
                absorb=self._absorb,
                then=(self.name, *(stage.name for stage in self.later), *end),
            ),
        )

    def current(self, config: Config, model: Model) -> Any:
        """Return the released state, or the one to start from."""
        released = getattr(model, self.into)
        if released is not None:
            return released
        return self.estimator(config, model).start(self.rows(model))

    def finished(self, config: Config, model: Model) -> bool:
        """Tell whether this stage needs no further release."""
        return self.estimator(config, model).done(self.current(config, model))

    def _answer(self, site: Site, model: Model) -> Masked:
        query = self.estimator(site.config, model).query(self.current(site.config, model))
        event = Plan(releases=joined(model).plan).find(site.cursor.phase, site.cursor.round)
        check_query(event, query)
        total = clipped_sum(chunks(self.sees(site, model)), query, event)
        try:
            site.charge(event)  # on record before any noise is drawn
        except PrivacyBudgetError:
            return Masked(total=np.zeros(0, dtype=np.uint64), refused=True)
        if event.private:
            entropy = site.noise.stream(site.id, event.phase, event.round, "noise")
            total = total + discrete_gaussian(event.variance, query.size, entropy)
        hidden = total.view(np.uint64) + mask(site, model, query.size, FIELD)
        return Masked(total=hidden, refused=False)

    def _combine(
        self, party: Aggregator, replies: Mapping[str, Masked], model: Model
    ) -> tuple[Any, str | None]:
        everybody(model, replies, party.cursor)
        config, roster = party.config, joined(model)
        state = self.current(config, model)
        if refusing := [site for site, reply in replies.items() if reply.refused]:
            return self._stopped(config, model, refusing[0])
        estimator = self.estimator(config, model)
        event = Plan(releases=roster.plan).find(party.cursor.phase, party.cursor.round)
        party.charge(event)
        size = estimator.query(state).size
        for site, reply in replies.items():
            if reply.total.shape != (size,):
                problem = f"site {site} sent {reply.total.shape} numbers, needed {size}"
                raise MessageError("E202", problem=problem)
        bound = overflow_bound(event, roster.n_sites, roster.n_subjects)
        total = decode_sum([reply.total for reply in replies.values()], bound=bound)
        mean = total / (event.gamma * roster.n_subjects)
        state = estimator.step(state, mean, event.noise_std(roster.n_sites, roster.n_subjects))
        after = replace(model, **{self.into: state})
        name = self._next(config, after)
        if name == "report" and self.close is not None:
            state = self.close(config, after)
        return state, name

    def _next(self, config: Config, model: Model) -> str:
        stages = (self, *self.later)
        waiting = (stage.name for stage in stages if not stage.finished(config, model))
        return next(waiting, "report")

    def _stopped(self, config: Config, model: Model, site: str) -> tuple[Any, str]:
        """Return the last good state when a site refused this release; nothing was summed."""
        if self.close is None:
            raise PrivacyBudgetError("E154", site=site)
        state = replace(self.current(config, model), status="budget_exhausted")
        after = replace(model, **{self.into: state})
        return self.close(config, after), "report"

    def _absorb(self, model: Model, state: Any) -> Model:
        record = RoundRecord(
            phase=self.name,
            round=1 + sum(row.phase == self.name for row in model.trace),
            statistic_norm=state.record.statistic_norm,
            noise_norm=state.record.noise_norm,
            step_norm=state.record.step_norm,
            stability=state.record.stability,
        )
        refused = getattr(state, "status", "") == "budget_exhausted"
        trace = model.trace if refused else (*model.trace, record)
        return replace(model, trace=trace, **{self.into: state})


def chunks(stacks: Stacks) -> Iterator[Data]:
    """Yield the subjects in stacks of at most `CHUNK`."""
    for array in stacks.arrays:
        for first in range(0, len(array), CHUNK):
            yield array[first : first + CHUNK]


def clipped_sum(stacks: Iterator[Data], query: Query, event: Event) -> npt.NDArray[np.int64]:
    """Return the exact sum of all subjects' bounded integer answers, shape (size,)."""
    total = np.zeros(query.size, dtype=np.int64)
    for stack in stacks:
        part = quantized_sum(
            query.answer(stack),
            log2_gamma=event.log2_gamma,
            clip_int=event.clip_int,
            shape=event.shape,
        )
        total += part.total
    return total


def check_query(event: Event, query: Query) -> None:
    """Raise PrivacyBudgetError unless the planned release covers the question exactly."""
    if query.size > event.size or query.shape != event.shape:
        problem = f"{event.phase} round {event.round} asks for another vector than planned"
        raise PrivacyBudgetError("E012", problem=problem, do="nothing is released.")
    verify_event(event, query.clip)
