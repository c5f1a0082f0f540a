"""`report`: the sites write their private results, then the aggregator writes the common ones.

It is a phase of its own, because sites are not called after the aggregator has ended the run.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from cape.algorithms.estimators import Estimator, Refused
from cape.protocol.messages import Closing, Done
from cape.protocol.model import Model, broadcast_roster, joined, records
from cape.protocol.outcome import Outcome, SiteOutcome, Table
from cape.protocol.phases import AnyPhase, Phase, of_public_values
from cape.protocol.ports import Aggregator, Site
from cape.protocol.secure_sum import SecureSum, chunks, stacks_behind
from cape.protocol.zero_sum import empty_ledger, own_fingerprint
from cape.settings.config import VERSION

M = TypeVar("M", bound=Model)

_WHY: Mapping[Refused, str] = {
    "budget_exhausted": "A site refused the next release",
    "closed": "People of a site closed the run (CAPE-E237)",
    "yielded": "The run was silent, and a site gave its place to another one (CAPE-E238)",
}


def refused(then: str) -> dict[str, str]:
    """Return the reasons of a run that a refused release ended, by status; `then`: what is left."""
    return {status: f"{why}; {then}" for status, why in _WHY.items()}


# Reasons of a computation with one release, by status
ONE_RELEASE = {"released": "The planned release was made.", **refused("there is no result.")}


def report(
    write_site: Callable[[Site, M], SiteOutcome],
    write_consortium: Callable[[Aggregator, M], Outcome],
) -> AnyPhase:
    """Return the phase; the arguments make the results of a site and of the consortium."""

    def answer(site: Site, model: M) -> Done:
        if site.is_closed:
            site.publish(nothing_for_sites(site, model, status="closed"))
            return Done(written=True)
        with of_public_values():
            outcome = write_site(site, model)
        site.publish(outcome)
        return Done(written=True)

    def combine(
        party: Aggregator, replies: Mapping[str, Done], model: M
    ) -> tuple[Closing, str | None]:
        del replies  # they only say that the sites wrote their own files
        outcome = write_consortium(party, model)
        party.publish(outcome)
        return Closing(status=outcome.status), None

    def absorb(model: M, closing: Closing) -> M:
        return model

    return Phase(
        name="report",
        reply=Done,
        broadcast=Closing,
        answer=answer,
        combine=combine,
        absorb=absorb,
        then=(),
    )


def facts(name: str, party: Aggregator, model: Model) -> dict[str, Any]:
    """Return the fields that the results of all computations share."""
    roster = joined(model)
    return {
        "computation": name,
        "version": VERSION,
        "run": party.digest(broadcast_roster(model))[:16].hex(),
        "config_digest": party.config.digest(),
        "settings": party.config.settings(),
        # A party that knows the seed of a site can subtract that site's share of the noise.
        "label": "dp" if party.config.private and not roster.seeded else "none",
        "roster": roster,
        "fingerprint": model.fingerprint,
        "ledger": party.ledger or empty_ledger(party.config),
        "trace": records(model.trace, roster),
        "warnings": roster.warnings,
    }


def outcome_in_tables(
    name: str,
    party: Aggregator,
    model: Model,
    *,
    status: str,
    tables: tuple[Table, ...],
    reasons: Mapping[str, str] = ONE_RELEASE,
) -> Outcome:
    """Return a result that consists of tables, one file each; `reasons` by status."""
    shared = facts(name, party, model)
    return Outcome(**shared, status=status, reason=reasons[status], tables=tables)


def nothing_for_sites(site: Site, model: Model, *, status: str = "done") -> SiteOutcome:
    """Return the result of a site for a run without results about single subjects."""
    return SiteOutcome(
        site=site.id,
        outcome_status=status,
        fingerprint=own_fingerprint(site, model),
        names=(),
        time_courses=iter(()),
        ledger=site.ledger or empty_ledger(site.config),
    )


# -- private facts about a site's own subjects: never a message ----------------------------------

# Phase, and the factor by which clipping scales each subject's answer
Scales = tuple[tuple[str, tuple[float, ...]], ...]


def clip_scales(site: Site, model: Model, stages: Sequence[SecureSum[Any]]) -> Scales:
    """Return the factor by which clipping scales each subject's answer to the last release."""
    # 1: not clipped; 0: not finite, counts as zero.  Subjects without a time point are left out.
    if not site.config.private:
        return ()
    scales_of_stages = []
    for stage in stages:
        events = [event for event in joined(model).plan if event.phase == stage.name]
        if not events:
            continue
        estimator = stage.estimator(site.config, model)
        if getattr(estimator, "within_bound", False):
            # Projectors have a known norm, so no subject is decomposed again.
            arrays = stacks_behind(stage.input(site, model)).arrays
            n_people = sum(len(a) for a in arrays if a.shape[2])
            scales_of_stages.append((stage.name, (1.0,) * n_people))
            continue
        # The clip in integers, which differs from the planned one by rounding.
        clip = events[-1].clip_int / events[-1].gamma
        query = _unclipped(estimator).queries(stage.current(site.config, model))[-1]
        scales: list[float] = []
        for part in chunks(stage.input(site, model)):
            if part.shape[2] == 0:
                continue
            # No warning: the result shows subjects that are not finite.
            with np.errstate(all="ignore"):
                norms = np.linalg.norm(query.answer(part), axis=1)
            scales += [_scale(float(norm), clip) for norm in norms]
        scales_of_stages.append((stage.name, tuple(scales)))
    return tuple(scales_of_stages)


def _unclipped(estimator: Estimator[Any]) -> Estimator[Any]:
    """Return the same estimator without its bound."""
    if not hasattr(estimator, "private"):
        return estimator
    changed: Estimator[Any] = dataclasses.replace(estimator, private=False)  # type: ignore[type-var]
    return changed


def _scale(norm: float, clip: float) -> float:
    if not np.isfinite(norm):
        return 0.0
    # The tolerance covers rounding of the bound.
    return 1.0 if norm <= clip * (1.0 + 1e-4) else clip / norm
