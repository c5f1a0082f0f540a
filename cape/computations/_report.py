"""`report`: the sites write what is theirs, then the aggregator writes what is everybody's.

A phase of its own, because sites are not called again after the aggregator has ended the run.
Signs and order of the components were fixed by the aggregator in the broadcast that opened this
phase, so no host's arithmetic can flip a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from cape.algorithms.arrangement import apply_order
from cape.algorithms.estimators import Array, Data
from cape.computations import _views
from cape.computations._model import Model, attendance, joined
from cape.computations._results import Outcome, SiteOutcome
from cape.messages import Closing, Done
from cape.phases import Aggregator, One, Phase, Site

Writer = Callable[[Aggregator, Model], Outcome]
SiteWriter = Callable[[Site, Model], SiteOutcome]


def report(write_site: SiteWriter, write_consortium: Writer) -> One:
    """Return the last line of a table."""

    def answer(site: Site, model: Model) -> Done:
        site.publish(write_site(site, model))
        return Done(written=True)

    def combine(
        party: Aggregator, replies: Mapping[str, Done], model: Model
    ) -> tuple[Closing, str | None]:
        del replies
        outcome = write_consortium(party, model)
        party.publish(outcome)
        return Closing(status=outcome.status), None

    def absorb(model: Model, closing: Closing) -> Model:
        del closing
        return model

    return One(
        phase=Phase(
            name="report",
            reply=Done,
            broadcast=Closing,
            answer=answer,
            combine=combine,
            absorb=absorb,
            then=(),
            attendance=attendance,
        )
    )


def component_names(n_components: int) -> tuple[str, ...]:
    """Return C01, C02 ... in the final order."""
    return tuple(f"C{i:02d}" for i in range(1, n_components + 1))


def time_courses(
    site: Site, model: Model, unmixing: Array, order: tuple[int, ...]
) -> Iterator[tuple[str, Data]]:
    """Yield (label, S_m (k, T_m)) = W_total X_m of every subject, in final order and sign."""
    V = _views.subspace(model).V
    rows = apply_order(order, unmixing @ V.T, 0)
    roster = joined(model)
    d = roster.n_basis
    stacks = _views.prepared(site, roster.space)
    for array, labels in zip(stacks.arrays, stacks.labels, strict=True):
        for label, Y in zip(labels, array, strict=True):
            yield label, np.asarray(rows @ Y[:d].astype(np.float64), dtype=np.float32)
