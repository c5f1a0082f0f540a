"""What every joint ICA hands over at its end: maps, their order, files of sites and consortium.

For all models of capedjica, and for the papers' relatives of its temporal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array, Data
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.computations.capedjica.model import FinalState, IcaModel, subspace
from cape.computations.capedjica.spatial import spatial_set
from cape.computations.capedjica.template import template_reading
from cape.config import VERSION, Config
from cape.protocol.model import broadcast_roster, joined
from cape.protocol.outcome import IcaOutcome, SiteOutcome, component_names
from cape.protocol.ports import Aggregator, Site
from cape.protocol.subject_views import prepared
from cape.protocol.zero_sum import empty_ledger, own_fingerprint
from cape.public_basis import public_basis

NO_ROUND = "No round was released: these are whitened directions, not separated components."
NO_GAP = "No spectral gap: n_components may be too large or the budget too small."
REASONS = {
    "converged": "The rows of the unmixing matrix no longer move.",
    "max_rounds": "All planned rounds were used and the rows of the unmixing matrix still move.",
    "not_judged": "All planned rounds were used; nothing in them tells whether sources were found.",
    "budget_exhausted": "A site refused the next release; the result is the last good state.",
    "diverged": "A step was not finite or blew up even when halved; the last good state is kept.",
}


def unmixed(model: IcaModel, U: Array) -> FinalState:
    """Return the final state of a temporal run with whitener U (k, k)."""
    state, released = model.unmixing, subspace(model)
    if state is None:
        raise RuntimeError("no unmixing before the first round")
    return FinalState(
        V=released.V,
        U=U,
        W=state.W,
        # Sources of unit variance: the scale of a row of W is the solver's own.
        unmixing=np.asarray(unit_rows(state.W) @ U),
        order=state.order,
        status=state.status,
        reason=REASONS[state.status] if state.round else NO_ROUND,
        stability=state.stability,
        spectrum=released,
    )


def maps(config: Config, model: IcaModel, end: FinalState) -> Array:
    """Return A = B V unmixing^-1, shape (D, k), in the order of the solver."""
    B = public_basis(config, joined(model).space, joined(model).n_basis)
    directions = end.V if B is None else B @ end.V
    return np.asarray(np.linalg.solve(end.unmixing.T, directions.T).T)


def arranged(config: Config, model: IcaModel, U: Array) -> Unmixing:
    """Return the last state of the solver with the signed order of its components."""
    end = unmixed(model, U)
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    # Fixed once, by the aggregator: another host's rounding must not flip a map.
    return replace(model.unmixing, order=arrange(maps(config, model, end)))


def site_outcome(site: Site, model: IcaModel, end: FinalState) -> SiteOutcome:
    """Return what one site may see: its subjects' time courses, its ledger."""
    return SiteOutcome(
        site=site.id,
        outcome_status=end.status,
        fingerprint=own_fingerprint(site, model),
        names=component_names(len(end.unmixing)),
        time_courses=_time_courses(site, model, end),
        ledger=site.ledger or empty_ledger(site.config),
        A=apply_order(end.order, maps(site.config, model, end), 1),
        space=joined(model).space,
        settings=site.config.settings(),
    )


def _time_courses(site: Site, model: IcaModel, end: FinalState) -> Iterator[tuple[str, Data]]:
    """Yield (label, S_m (k, T_m)) = W_total X_m of every subject, in final order and sign."""
    rows = apply_order(end.order, end.unmixing @ end.V.T, 0)
    roster = joined(model)
    stacks = prepared(site, roster.space)
    for array, labels in zip(stacks.arrays, stacks.labels, strict=True):
        for label, Y in zip(labels, array, strict=True):
            # Neither scaled nor filtered: time courses in the units of the subject's own data.
            yield label, np.asarray(rows @ Y[: roster.n_basis].astype(np.float64), dtype=np.float32)


def consortium_outcome(
    name: str, party: Aggregator, model: IcaModel, end: FinalState, *, label: str
) -> IcaOutcome:
    """Return the result of the consortium.

    Parameters
    ----------
    name : str
        Of the computation.
    party, model
        As `report` hands them over.
    end : FinalState
    label : {"dp", "none"}
        What the run guarantees.
    """
    roster, spectrum = joined(model), end.spectrum
    B = public_basis(party.config, roster.space, roster.n_basis)
    basis_rows = end.V.T if B is None else end.V.T @ B.T
    gap_missing = spectrum is not None and spectrum.status == "no_gap"
    return IcaOutcome(
        computation=name,
        version=VERSION,
        run=party.digest(broadcast_roster(model))[:16].hex(),
        config_digest=party.config.digest(),
        settings=party.config.settings(),
        label=label,
        status=end.status,
        reason=end.reason,
        stability=end.stability,
        roster=roster,
        fingerprint=model.fingerprint,
        ledger=party.ledger or empty_ledger(party.config),
        V=end.V,
        U=end.U,
        W=apply_order(end.order, end.W, 0),
        W_total=apply_order(end.order, end.unmixing @ basis_rows, 0),
        A=apply_order(end.order, maps(party.config, model, end), 1),
        eigenvalues=np.zeros(0) if spectrum is None else spectrum.eigenvalues,
        edge=spectrum.edge if spectrum else 0.0,
        gap_ratio=spectrum.gap_ratio if spectrum else 0.0,
        rank_status=spectrum.status if spectrum else "unguarded",
        trace=model.trace,
        rounds_planned=sum(event.phase == roster.plan[-1].phase for event in roster.plan),
        warnings=(*roster.warnings, *([NO_GAP] if gap_missing else [])),
        # Free of cost, and on real data often the better maps: every run with a spectrum shows it.
        spatial=spatial_set(B, end.V) if spectrum else None,
        template=template_reading(party.config, model) if model.template else None,
    )
