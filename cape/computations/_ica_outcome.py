"""What every joint ICA hands over at its end: maps, their order, files of sites and consortium.

Any model with the three fields of `IcaModel` will do; a whitener must be there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.computations import _capedjica_separations
from cape.computations._capedjica_separations import Ending
from cape.config import VERSION, Config
from cape.protocol import subject_views
from cape.protocol.ica_model import IcaModel
from cape.protocol.model import joined
from cape.protocol.outcome import IcaOutcome, SiteOutcome
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import component_names, time_courses
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


def white_unmixing(model: IcaModel) -> Array:
    """Return W U (k, k) with the rows of W scaled to sources of unit variance."""
    if model.unmixing is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    unmixing: Array = unit_rows(model.unmixing.W) @ model.whitener.U
    return unmixing


def ending(model: IcaModel) -> Ending:
    """Return what the last stage left, whatever the separation."""
    if (other := _capedjica_separations.ending(model)) is not None:
        return other
    state, whitener = model.unmixing, model.whitener
    if state is None or whitener is None:
        raise RuntimeError("no unmixing before the first round")
    return Ending(
        V=subject_views.subspace(model).V,
        U=whitener.U,
        W=state.W,
        unmixing=white_unmixing(model),
        order=state.order,
        status=state.status,
        reason=REASONS[state.status] if state.round else NO_ROUND,
        stability=state.stability,
        spectrum=subject_views.subspace(model),
    )


def maps(config: Config, model: IcaModel) -> Array:
    """Return A = B V (W U)^-1, shape (D, k), in the order of the solver."""
    end = ending(model)
    B = public_basis(config, joined(model).space, joined(model).n_basis)
    directions = end.V if B is None else B @ end.V
    return np.asarray(np.linalg.solve(end.unmixing.T, directions.T).T)


def close(config: Config, model: IcaModel) -> Unmixing:
    """Return the last state of the solver with the signed order of its components."""
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    return replace(model.unmixing, order=arrange(maps(config, model)))


def write_site(site: Site, model: IcaModel) -> SiteOutcome:
    """Return what one site may see: its subjects' time courses, its ledger."""
    end = ending(model)
    return SiteOutcome(
        site=site.id,
        outcome_status=end.status,
        fingerprint=own_fingerprint(site, model),
        names=component_names(len(end.unmixing)),
        time_courses=time_courses(site, model, end.unmixing @ end.V.T, end.order),
        ledger=site.ledger or empty_ledger(site.config),
        A=apply_order(end.order, maps(site.config, model), 1),
        space=joined(model).space,
        settings=site.config.settings(),
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
    end, roster = ending(model), joined(model)
    B = public_basis(party.config, roster.space, roster.n_basis)
    basis_rows = end.V.T if B is None else end.V.T @ B.T
    spectrum = end.spectrum
    gap_missing = spectrum is not None and spectrum.status == "no_gap"
    return IcaOutcome(
        computation=name,
        version=VERSION,
        run=party.digest(roster)[:16].hex(),
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
        A=apply_order(end.order, maps(party.config, model), 1),
        eigenvalues=np.zeros(0) if spectrum is None else spectrum.eigenvalues,
        edge=spectrum.edge if spectrum else 0.0,
        gap_ratio=spectrum.gap_ratio if spectrum else 0.0,
        rank_status=spectrum.status if spectrum else "unguarded",
        trace=model.trace,
        rounds_planned=sum(event.phase == roster.plan[-1].phase for event in roster.plan),
        warnings=(*roster.warnings, *([NO_GAP] if gap_missing else [])),
        spatial=_capedjica_separations.spatial_set(B, end.V) if spectrum else None,
        template=_capedjica_separations.template_reading(party.config, model),
    )
