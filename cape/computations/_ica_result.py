"""What every joint ICA hands over at its end: maps, their order, files of sites and consortium.

Any model with the three fields of `IcaModel` will do; a whitener must be there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cape.algorithms.arrangement import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.computations import _views
from cape.computations._ica_model import IcaModel
from cape.computations._model import joined
from cape.computations._report import component_names, time_courses
from cape.computations._results import IcaOutcome, SiteOutcome
from cape.computations._zero_sum import empty_ledger, own_fingerprint
from cape.config import VERSION, Config
from cape.ports import Aggregator, Site

NO_ROUND = "No round was released: these are whitened directions, not separated components."
NO_GAP = "No spectral gap: n_components may be too large or the budget too small."
REASONS = {
    "converged": "The rows of the unmixing matrix no longer move.",
    "max_rounds": "All planned rounds were used and the rows of the unmixing matrix still move.",
    "budget_exhausted": "A site refused the next release; the result is the last good state.",
    "diverged": "A step was not finite or blew up even when halved; the last good state is kept.",
}


def white_unmixing(model: IcaModel) -> Array:
    """Return W U (k, k) with the rows of W scaled to sources of unit variance."""
    if model.unmixing is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    unmixing: Array = unit_rows(model.unmixing.W) @ model.whitener.U
    return unmixing


def maps(config: Config, model: IcaModel) -> Array:
    """Return A = B V (W U)^-1, shape (D, k), in the order of the solver."""
    B = _views.public_basis(config, joined(model).space, joined(model).n_basis)
    V = _views.subspace(model).V
    directions = V if B is None else B @ V
    return np.asarray(np.linalg.solve(white_unmixing(model).T, directions.T).T)


def close(config: Config, model: IcaModel) -> Unmixing:
    """Return the last state of the solver with the signed order of its components."""
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    return replace(model.unmixing, order=arrange(maps(config, model)))


def write_site(site: Site, model: IcaModel) -> SiteOutcome:
    """Return what one site may see: its subjects' time courses, its ledger."""
    unmixing = white_unmixing(model)
    order = model.unmixing.order if model.unmixing else ()
    return SiteOutcome(
        site=site.id,
        outcome_status=model.unmixing.status if model.unmixing else "",
        fingerprint=own_fingerprint(site, model),
        names=component_names(len(unmixing)),
        time_courses=time_courses(site, model, unmixing, order),
        ledger=site.ledger or empty_ledger(site.config),
    )


def outcome(name: str, party: Aggregator, model: IcaModel, *, label: str) -> IcaOutcome:
    """Return the result of the consortium.

    Parameters
    ----------
    name : str
        Of the computation.
    party, model
        As `report` hands them over.
    label : {"dp", "none"}
        What the run guarantees.
    """
    roster, subspace, state = joined(model), _views.subspace(model), model.unmixing
    if state is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    order = state.order
    B = _views.public_basis(party.config, roster.space, roster.n_basis)
    basis_rows = subspace.V.T if B is None else subspace.V.T @ B.T
    warnings = list(roster.warnings)
    if subspace.status == "no_gap":
        warnings.append(NO_GAP)
    return IcaOutcome(
        computation=name,
        version=VERSION,
        run=party.digest(roster)[:16].hex(),
        config_digest=party.config.digest(),
        settings=party.config.settings(),
        label=label,
        status=state.status,
        reason=REASONS[state.status] if state.round else NO_ROUND,
        stability=state.stability,
        roster=roster,
        fingerprint=model.fingerprint,
        ledger=party.ledger or empty_ledger(party.config),
        V=subspace.V,
        U=model.whitener.U,
        W=apply_order(order, state.W, 0),
        W_total=apply_order(order, white_unmixing(model) @ basis_rows, 0),
        A=apply_order(order, maps(party.config, model), 1),
        eigenvalues=subspace.eigenvalues,
        edge=subspace.edge,
        gap_ratio=subspace.gap_ratio,
        rank_status=subspace.status,
        trace=model.trace,
        rounds_planned=sum(event.phase == "iterate" for event in roster.plan),
        warnings=tuple(warnings),
    )
