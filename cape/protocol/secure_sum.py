"""`SecureSum`: the only way for a number computed from data to leave a site.

One release computes a bounded answer per subject and sums the answers.  The releases of a round,
each with its own clip, charge and noise, travel as one vector.  A `Release` is one stage under the
settings of a run: `noisy_sum` clips, charges and adds noise; `masked_sum` masks the result.  Sums
travel (`carried`) under masks that cancel over all sites, so that only the modular sum is visible;
under masks that cancel over the surviving sites (`DroppableSum`); or unmasked, with all the noise
added at every site.  Only this module uses both accounting (`cape.privacy`) and cryptography
(`cape.secagg`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data, Estimator, Refused, SubjectQuery
from cape.errors import DataError, MessageError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.privacy.halves import half_of_sites, halves
from cape.privacy.ledger import Plan
from cape.privacy.mechanisms import overflow_bound, verify_event
from cape.privacy.noise import Entropy, discrete_gaussian
from cape.protocol import wire
from cape.protocol.messages import Masked, Refusal, Released, RingVector
from cape.protocol.model import (
    Model,
    broadcast_roster,
    joined,
    n_basis,
    own_subjects,
    start_trace,
    with_row,
)
from cape.protocol.phases import AnyPhase, Phase, of_public_values
from cape.protocol.plan import SUM_FIELD
from cape.protocol.ports import Aggregator, Site, Stacks, View
from cape.protocol.subject_views import map_stack
from cape.protocol.zero_sum import mask_vector
from cape.secagg.field import Integers, decode_sum, quantized_sum
from cape.settings.config import Config

M = TypeVar("M", bound=Model)

# How a refused release ends a run, by the reason in its reply
ENDED_BY: Mapping[Refusal, Refused] = {"": "budget_exhausted", "E237": "closed", "E238": "yielded"}

# A broadcast, and the phase that it opens
Next = tuple[Any, str | None]
Vectors = Mapping[str, Masked] | Mapping[str, Released]

# Subjects whose answers are in memory at once
SUBJECTS_AT_ONCE = 32


# -- a stage of a table --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SecureSum(Generic[M]):
    """A line of a table: a stage that asks round after round until its estimator is done."""

    # `config` below is of the computation's own type.
    name: str  # of the phase
    state: type  # of the estimator's state, which is what is broadcast
    model_field: str  # field of the model that holds it
    # ``estimator(config, model)``: from public values only
    estimator: Callable[[Any, M], Estimator[Any]]
    # ``input(site, model)``: the subjects, as this stage needs them
    input: Callable[[Site, M], Stacks | View]
    # ``rows(model)``: number of rows of each subject of `input`
    rows: Callable[[M], int] = n_basis
    # Stages that may follow, in order; the first unfinished one opens next.  The last stage has
    # none and opens `report`
    successors: tuple[SecureSum[M], ...] = ()
    # ``close(config, model)``: final form of the state of the last stage
    close: Callable[[Any, M], Any] | None = None
    # ``hand_over(config, model, mean)``: final state of a finished stage that has a successor, from
    # the mean of its last release
    hand_over: Callable[[Any, M, Array], Any] | None = None
    # Whether a rank guard may keep fewer than the estimator's `n_components` directions
    may_reduce_rank: bool = False
    # ``carrier(release)``: phases in which the sums travel; None: as the settings say (`carried`)
    carrier: Callable[[Release[M]], tuple[AnyPhase, ...]] | None = None
    # ``cells(site, model)``: the public cell of each label of `input`.  A plan that asks halves of
    # the people draws them within each cell.  None: one cell
    cells: Callable[[Site, M], Mapping[str, str]] | None = None
    # ``by_site(config)``: whether halves consist of whole sites, drawn in pairs of similar size
    by_site: Callable[[Any], bool] | None = None

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return the phases of one round under the chosen aggregation."""
        then = tuple(s.name for s in (self, *self.successors))
        if not self.successors:
            then = (*then, "report")
        release = Release(stage=self, config=config, then=then)
        return (self.carrier or carried)(release)

    def released(self, model: M) -> Any:
        """Return the last broadcast state; RuntimeError before the first release."""
        if (state := getattr(model, self.model_field)) is None:
            raise RuntimeError(f"{self.name} has released nothing yet")
        return state

    def current(self, config: Config, model: M) -> Any:
        released = getattr(model, self.model_field)
        if released is not None:
            return released
        return self.estimator(config, model).start(self.rows(model))

    def finished(self, config: Config, model: M) -> bool:
        return self.estimator(config, model).done(self.current(config, model))


def releases_are_local(config: Config) -> bool:
    """Whether each site's noisy sum is itself a release, sent unmasked."""
    # Runs without noise (``private=false``) always use masks.
    return config.noise == "local" and config.private and config.aggregation == "all-sites"


# -- one round: clip -> charge -> noise -> mask --------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Release(Generic[M]):
    """A stage under the settings of a run: all that a carrier needs."""

    stage: SecureSum[M]
    config: Config
    then: tuple[str, ...]  # phases that may open after the round

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def field(self) -> str:
        """Name of the message field that holds the vector; part of the label of its masks."""
        return SUM_FIELD

    @property
    def broadcast(self) -> type:
        return self.stage.state

    def phase(
        self,
        reply: type,
        answer: Callable[[Site, M], Any],
        combine: Callable[[Aggregator, Mapping[str, Any], M], Next],
        fold: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> AnyPhase:
        return Phase(
            name=self.name,
            reply=reply,
            broadcast=self.broadcast,
            answer=answer,
            combine=combine,
            absorb=self.absorb,
            then=self.then,
            check=self.check,
            fold=fold,
        )

    # A site.

    def noisy_sum(self, site: Site, model: M, question: bytes = b"") -> Integers | None:
        """Return x + g of this site (size,), int64, of all releases of the round.

        None if policy or budget refuses one of them.  `question`: the transcript when x was fixed,
        if that was in an earlier exchange.
        """
        if site.is_closed:  # before anybody is read
            site.refusal = "E237"
            return None
        with of_public_values():
            queries = self.queries(model)
            events = self.events(site, model)
            check_queries(events, queries)
        subjects = self.stage.input(site, model)
        # All releases of a plan have noise, or none; all of a stage ask the same people.
        if events[0].private:
            check_subjects(events[0], subjects, own_subjects(site.id, model))
        if events[0].part:
            subjects = self._half(site, model, events[0], subjects)
        totals = [
            clipped_sum(chunks(subjects), query, event)
            for event, query in zip(events, queries, strict=True)
        ]
        # Charge all before drawing noise: a process that dies in between has charged too much,
        # never too little.
        try:
            for event in events:
                site.charge(event)
        except PrivacyBudgetError:
            return None
        if events[0].private:
            transcript = question or site.transcript
            for i, (event, total) in enumerate(zip(events, totals, strict=True)):
                entropy = noise_stream(site, event, transcript, total)
                totals[i] = total + discrete_gaussian(event.variance, total.size, entropy)
        return np.concatenate(totals)

    def masked_sum(self, site: Site, model: M) -> Masked:
        """Return x + g under masks, or the refusal of this site."""
        noisy = self.noisy_sum(site, model)
        if noisy is None:
            empty = np.zeros(0, dtype=np.uint64)
            return Masked(total=empty, refused=True, refusal=site.refusal)
        return Masked(total=mask_vector(site, model, noisy, SUM_FIELD), refused=False)

    def local_sum(self, site: Site, model: M) -> Released:
        """Return x + g unmasked, or the refusal of this site."""
        noisy = self.noisy_sum(site, model)
        if noisy is None:
            empty = np.zeros(0, dtype=np.int64)
            return Released(total=empty, refused=True, refusal=site.refusal)
        return Released(total=noisy, refused=False)

    # The aggregator.

    def combine(self, party: Aggregator, replies: Vectors, model: M) -> Next:
        """Sum the vectors of all sites and take the step, or stop at the first refusal."""
        if all(reply.refused for reply in replies.values()):  # nobody has charged this
            site = first_refusal(replies)
            return self.stopped(model, site, replies[site].refusal)
        size = self.charge(party, model)  # the sites that answered have charged this too
        if site := first_refusal(replies):
            return self.stopped(model, site, replies[site].refusal)
        total = decode_sum(vectors(replies, size), bound=self.bound(party, model))
        return self.step(party, model, total)

    def events(self, party: Site | Aggregator, model: M) -> tuple[Event, ...]:
        return Plan(releases=joined(model).plan).find(self.name, party.cursor.round)

    def queries(self, model: M) -> tuple[SubjectQuery, ...]:
        state = self.stage.current(self.config, model)
        return self.stage.estimator(self.config, model).queries(state)

    def size(self, model: M) -> int:
        """Return the length of the joined vectors of the round."""
        return sum(query.size for query in self.queries(model))

    def bound(self, party: Aggregator, model: M) -> int:
        """Return the largest absolute entry of the true sum, noise included."""
        roster = joined(model)
        return max(
            overflow_bound(event, roster.n_sites, roster.n_subjects)
            for event in self.events(party, model)
        )

    def charge(self, party: Aggregator, model: M) -> int:
        """Charge the round, as the sites that answered did; return the length of its vector."""
        for event in self.events(party, model):
            party.charge(event)
        return self.size(model)

    def step(
        self,
        party: Aggregator,
        model: M,
        total: Integers,
        *,
        n_sites: int | None = None,
        n_subjects: int | None = None,
    ) -> Next:
        """Turn a sum over all sites, or over the survivors, into the next state."""
        roster, events = joined(model), self.events(party, model)
        n_sites, n_subjects = n_sites or roster.n_sites, n_subjects or roster.n_subjects
        ends = np.cumsum([query.size for query in self.queries(model)])
        means = [
            of_release / (event.gamma * n_subjects)
            for event, of_release in zip(events, np.split(total, ends[:-1]), strict=True)
        ]
        stds = [event.noise_std(n_sites, n_subjects) for event in events]
        return self.advance(model, means, stds)

    def advance(self, model: M, means: Sequence[Array], noise_stds: Sequence[float]) -> Next:
        """Return the state after a round with means over subjects, and the phase that opens."""
        stage, config = self.stage, self.config
        estimator = stage.estimator(config, model)
        state = estimator.steps(stage.current(config, model), means, noise_stds)
        after = replace(model, **{stage.model_field: state})
        waiting = (s for s in (stage, *stage.successors) if not s.finished(config, after))
        name = next((s.name for s in waiting), "report")
        if name == "report":
            state = self._closed(after)
        elif stage.hand_over is not None and stage.finished(config, after):
            state = stage.hand_over(config, after, means[-1])
        return state, name

    def stopped(self, model: M, site: str, refusal: Refusal) -> Next:
        """Return the last good state after a site refused this round; nothing was summed."""
        if self.stage.successors:
            raise PrivacyBudgetError(refusal or "E154", site=site)
        state = replace(self.stage.current(self.config, model), status=ENDED_BY[refusal])
        after = replace(model, **{self.stage.model_field: state})
        return self._closed(after), "report"

    # All parties.

    def check(self, model: M, state: Any) -> None:
        """Raise MessageError unless a broadcast state has the shapes of the first state here."""
        # An array with an extra axis would query subjects many times for one charge; a large one
        # would fill the memory.
        estimator, rows = self.stage.estimator(self.config, model), self.stage.rows(model)
        components = getattr(estimator, "n_components", 0)
        most = min(components, rows) if self.stage.may_reduce_rank else 0
        if not same_form(estimator.start(rows), state, most=most):
            raise MessageError("E202", problem=f"{self.name}: arrays of another shape than planned")

    def absorb(self, model: M, state: Any) -> M:
        """Store a broadcast state and its line of the trace."""
        after = replace(model, **{self.stage.model_field: state})
        if getattr(state, "status", "") in ENDED_BY.values():
            # A refused round released nothing, so it has no line in the trace.
            return after
        roster, seen = broadcast_roster(model), state.record
        trace = with_row(
            model.trace or start_trace(roster.plan),
            roster,
            self.name,
            (seen.statistic_norm, seen.noise_norm, seen.step_norm, seen.stability),
            model.drop_outs.survivors if model.drop_outs else (),
        )
        return replace(after, trace=trace)

    def _half(self, site: Site, model: M, event: Event, subjects: Stacks | View) -> Stacks | View:
        stage = self.stage
        if stage.by_site is not None and stage.by_site(self.config):
            # The fingerprint draws the sites; with another one the halves would overlap.
            _settle(site, event, model.fingerprint.encode())
            is_asked = site_is_asked(site.id, model, event)
            return subjects if is_asked else Stacks(arrays=(), labels=())
        cells = None if stage.cells is None else stage.cells(site, model)
        return half_of(site, model, event, subjects, cells)

    def _closed(self, model: M) -> Any:
        # Order and signs are fixed once, here, so that no host's arithmetic can flip a map.
        close = self.stage.close
        return self.stage.released(model) if close is None else close(self.config, model)


def noise_stream(site: Site, event: Event, transcript: bytes, total: Integers) -> Entropy:
    """Return the random bytes for a release's noise: a function of the question and the exact sum.

    A site that is asked again adds the same noise to the same sum, even if its journal or folder
    is lost.  It adds other noise to another sum, of other data or of different rounding, because
    the difference of two sums with equal noise is exact.  Proof: docs/privacy.md.
    """
    line = wire.dumps(wire.encode(event, Event))  # phase and round are part of it
    exact = hashlib.sha256(total.astype("<i8").tobytes()).digest()
    return site.noise.stream("noise", transcript, line, exact)


def same_form(first: Any, state: Any, *, most: int = 0) -> bool:
    """Whether arrays have the same shapes; axes of length `most` may be shorter but not empty."""
    for spec in dataclasses.fields(first):
        one, other = getattr(first, spec.name), getattr(state, spec.name)
        if dataclasses.is_dataclass(one) and not same_form(one, other, most=most):
            return False
        if isinstance(one, np.ndarray):
            pairs = itertools.zip_longest(one.shape, other.shape, fillvalue=-1)
            if not all(n == m or (n == most and 0 < m < n) for n, m in pairs):
                return False
    return True


def clipped_sum(stacks: Iterable[Data], query: SubjectQuery, event: Event) -> npt.NDArray[np.int64]:
    """Return the exact sum (size,) of bounded integer answers, and of the site's part if any.

    PrivacyBudgetError for an answer of another shape than planned.
    """
    total = np.zeros(query.size, dtype=np.int64)
    inner = 1.0
    if query.unit == "pair":
        # A subject without data would be left out of the stack, and everybody after it would have
        # another partner: many rows would change with one person.
        stacks = list(stacks)
        if not _of_one_form(stacks):
            raise _uncovered(event, "asks pairs of people of whom some lack data")
        stacks = [np.concatenate(stacks)] if stacks else []
    if query.part is not None:
        stacks = list(stacks)
        # A subject without data would change the number of people behind the part; the bound of
        # "psd" has no room for one, nor is it shown for pairs.
        of_persons = event.shape == "ball" and query.unit == "person"
        if not (of_persons and _of_one_form(stacks)):
            raise _uncovered(event, "has a part of the site that its bound does not cover")
        # Rounding of answers and part separates two sums by at most 2 sqrt(d), float error by less
        # than 2.  Shrinking the unit by that keeps Delta_int = 2 C_int.
        unit = max(0.0, event.clip_int - math.sqrt(query.size) - 1.0) / query.clip
        # Both use one unit, else answers would not cancel the part.
        inner = unit / event.gamma
        if stacks:
            part = query.part(np.concatenate(stacks))
            if part.shape != (query.size,) or not np.all(np.isfinite(part)):
                raise _uncovered(event, "has a part of the site of another form than planned")
            total += np.rint(part * unit).astype(np.int64)
    for stack in stacks:
        if stack.shape[2] == 0:
            continue  # these subjects failed the site's checks: the zero vector
        answers = query.answer(stack)
        # A pair has two people: more rows than that, and one person would be in several.
        n_rows = len(stack) if query.unit == "person" else min(len(answers), len(stack) // 2)
        if answers.shape != (n_rows, query.size):
            raise _uncovered(event, "does not ask each subject for one vector of the planned size")
        # Integers before noise: a float sum would leak through its rounding (Mironov, CCS 2012).
        total += quantized_sum(
            answers if query.part is None else answers * inner,
            log2_gamma=event.log2_gamma,
            clip_int=event.clip_int,
            shape=event.shape,
        )
    return total


def _of_one_form(stacks: Sequence[Data]) -> bool:
    """Whether all subjects of a site have data, and equally many rows and columns of them."""
    forms = {stack.shape[1:] for stack in stacks}
    return len(forms) <= 1 and all(n_columns for _, n_columns in forms)


def stacks_behind(subjects: Stacks | View) -> Stacks:
    """Return the stacks of a view, or the given stacks."""
    return subjects.stacks if isinstance(subjects, View) else subjects


def chunks(subjects: Stacks | View) -> Iterator[Data]:
    for array in stacks_behind(subjects).arrays:
        for first in range(0, len(array), SUBJECTS_AT_ONCE):
            part = array[first : first + SUBJECTS_AT_ONCE]
            yield map_stack(part, subjects.one) if isinstance(subjects, View) else part


def check_queries(events: Sequence[Event], queries: Sequence[SubjectQuery]) -> None:
    """Raise PrivacyBudgetError unless the releases of a round cover its questions, one each."""
    if len(queries) != len(events):
        raise _uncovered(events[0], f"asks {len(queries)} questions, planned {len(events)}")
    for event, query in zip(events, queries, strict=True):
        if query.size > event.size or query.shape != event.shape:
            raise _uncovered(event, "asks for another vector than planned")
        verify_event(event, query.clip)


def check_subjects(event: Event, subjects: Stacks | View, n_subjects: int) -> None:
    """Raise PrivacyBudgetError unless every subject enters the sum once, as its bound assumes."""
    # Working arrays depend on broadcasts, which must not make two subjects out of one.
    if sum(len(array) for array in stacks_behind(subjects).arrays) != n_subjects:
        raise _uncovered(event, f"does not ask each of {n_subjects} subjects once")


# Vault entry of a run: digest of the assignment of people to halves
HALVES_NAME = "halves"


def half_of(
    site: Site, model: Model, event: Event, subjects: Stacks | View, cells: Mapping[str, str] | None
) -> Stacks | View:
    """Return the subjects that a release asks; all others count as zero vectors.

    Overlapping halves would charge a person twice.  DataError (E161) if the site's list or its
    cells changed since the first half was asked.
    """
    stacks = stacks_behind(subjects)
    names = [label for labels in stacks.labels for label in labels]
    of_people = {name: "" if cells is None else cells.get(name) for name in names}
    cell_of = {name: cell for name, cell in of_people.items() if cell is not None}
    if len(cell_of) < len(names):
        raise _uncovered(event, "asks half of people who are listed twice or in no cell")
    parts = halves(model.fingerprint, site.id, cell_of)
    digest = hashlib.sha256(wire.dumps([[name, parts[name]] for name in sorted(parts)])).digest()
    _settle(site, event, digest)
    in_part = [np.array([parts[name] == event.part for name in labels]) for labels in stacks.labels]
    half = Stacks(
        arrays=tuple(array[mask] for array, mask in zip(stacks.arrays, in_part, strict=True)),
        labels=tuple(
            tuple(name for name in labels if parts[name] == event.part) for labels in stacks.labels
        ),
    )
    return replace(subjects, stacks=half) if isinstance(subjects, View) else half


def _settle(site: Site, event: Event, digest: bytes) -> None:
    """Store the digest of the halves when the first one is asked; E161 if it differs later."""
    charges = site.ledger.events if site.ledger else ()
    this = event.phase, event.round  # charged already where this exchange is repeated
    if not any(charged.part for charged in charges if (charged.phase, charged.round) != this):
        site.keep(HALVES_NAME, digest)
    elif site.secret(HALVES_NAME) != digest:
        detail = "the halves would overlap: people, or their groups, are not those of before"
        raise DataError("E161", site=site.id, detail=detail)


def site_is_asked(site: str, model: Model, event: Event) -> bool:
    """Tell whether a release to half of the sites asks this one."""
    entries = joined(model).sites
    names, people = zip(*((entry.site, entry.n_subjects) for entry in entries), strict=True)
    first = half_of_sites(model.fingerprint, names, people)
    return first[names.index(site)] == (event.part == "A")


def _uncovered(event: Event, problem: str) -> PrivacyBudgetError:
    return PrivacyBudgetError("E233", phase=event.phase, round=event.round, problem=problem)


# -- carriers ------------------------------------------------------------------------------------


def carried(release: Release[M]) -> tuple[AnyPhase, ...]:
    """Return the phases in which the sums of a round travel under the settings of a run."""
    if releases_are_local(release.config):
        # The conventional scheme: every site adds all the noise, so its own sum is private and
        # needs no mask.  The sum over S sites has S times the noise variance.
        return (release.phase(Released, release.local_sum, release.combine),)
    if release.config.aggregation == "secagg":
        # Only rounds with drop-outs load its messages and states.
        from cape.protocol.droppable_sum import DroppableSum

        return DroppableSum(release).phases()
    # Masks modulo 2^64 that cancel over all sites.
    return (release.phase(Masked, release.masked_sum, release.combine, fold=Masked.folded),)


def first_refusal(replies: Mapping[str, Any]) -> str:
    """Return the first site whose policy or budget refused; empty if none did."""
    return next((site for site, reply in replies.items() if reply.refused), "")


def vectors(replies: Vectors, size: int) -> list[RingVector]:
    """Return the vectors (size,) of all sites modulo 2^64, in the order of the sites."""
    for site, reply in replies.items():
        if reply.total.shape != (size,):
            problem = f"site {site} sent {reply.total.shape} numbers, needed {size}"
            raise MessageError("E202", problem=problem)
    return [reply.total.view(np.uint64) for reply in replies.values()]
