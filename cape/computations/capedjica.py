"""Joint temporal ICA of several sites, private for every subject: the product.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums: a common subspace (pca), a common whitening, and the rounds of a solver.
The default is made for privacy: PCA from subjects' projectors in a public basis, log-Euclidean
whitening, rotations by quasi-Newton steps.  ``pca=covariance``, ``whitening=eigen`` and
``solver=infomax`` give the pipeline of Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).

Read the table at the bottom first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cape.algorithms.arrangement import apply_order, arrange
from cape.algorithms.estimators import Array, Estimator
from cape.algorithms.pca import Subspace
from cape.algorithms.quasi_newton import Regime
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.algorithms.whitening import Whitener
from cape.computations import _views
from cape.computations._djica import (
    CapeDjicaConfig,
    basis_size,
    constants,
    make_pca,
    make_solver,
    make_whitening,
    own,
    plan_run,
    stages,
    strength,
)
from cape.computations._ica_model import IcaModel
from cape.computations._join import join
from cape.computations._model import Model, joined, progress
from cape.computations._plan import verify_plan
from cape.computations._report import component_names, report, time_courses
from cape.computations._results import IcaOutcome, SiteOutcome
from cape.computations._secure_sum import SecureSum
from cape.computations._zero_sum import ZeroSum, empty_ledger, own_fingerprint
from cape.config import VERSION, Config
from cape.errors import PrivacyBudgetError
from cape.messages import Roster
from cape.phases import Computation
from cape.ports import Aggregator, Site, Stacks

__all__ = ["COMPUTATION", "CapeDjicaConfig", "plan_run"]


def _verify(site: Site, roster: Roster) -> None:
    config = own(site.config)
    g = strength(config, roster.n_sites, roster.n_subjects)
    if roster.n_basis != basis_size(config, roster.space, g):
        problem = "the size of the public basis is not that of the settings"
        raise PrivacyBudgetError("E231", site=site.id, problem=problem)
    found = stages(
        config, n_sites=roster.n_sites, n_subjects=roster.n_subjects, n_basis=roster.n_basis
    )
    verify_plan(site, roster, found)


# -- the end of a run ----------------------------------------------------------------------------


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


def _close(config: Config, model: IcaModel) -> Unmixing:
    """Return the last state of the solver with the signed order of its components."""
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    order = arrange(maps(config, _with_whitener(config, model)))
    return replace(model.unmixing, order=order)


def _with_whitener(config: Config, model: IcaModel) -> IcaModel:
    """Return the model with the whitener that needed no release."""
    if model.whitener is not None:
        return model
    return replace(model, whitener=WHITENING.current(config, model))


def _write_site(site: Site, model: IcaModel) -> SiteOutcome:
    model = _with_whitener(site.config, model)
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


NO_ROUND = "No round was released: these are whitened directions, not separated components."
NO_GAP = "No spectral gap: n_components may be too large or the budget too small."
REASONS = {
    "converged": "The rows of the unmixing matrix no longer move.",
    "max_rounds": "All planned rounds were used and the rows of the unmixing matrix still move.",
    "budget_exhausted": "A site refused the next release; the result is the last good state.",
    "diverged": "A step was not finite or blew up even when halved; the last good state is kept.",
}


def _outcome(party: Aggregator, model: IcaModel) -> IcaOutcome:
    model = _with_whitener(party.config, model)
    roster, subspace, state = joined(model), _views.subspace(model), model.unmixing
    if state is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    order = state.order
    unmixing = white_unmixing(model)
    B = _views.public_basis(party.config, roster.space, roster.n_basis)
    basis_rows = subspace.V.T if B is None else subspace.V.T @ B.T
    private = party.config.private and not roster.seeded
    warnings = list(roster.warnings)
    if subspace.status == "no_gap":
        warnings.append(NO_GAP)
    return IcaOutcome(
        computation=COMPUTATION.name,
        version=VERSION,
        run=party.digest(roster)[:16].hex(),
        config_digest=party.config.digest(),
        settings=party.config.settings(),
        label="dp" if private else "none",
        status=state.status,
        reason=REASONS[state.status] if state.round else NO_ROUND,
        stability=state.stability,
        roster=roster,
        fingerprint=model.fingerprint,
        ledger=party.ledger or empty_ledger(party.config),
        V=subspace.V,
        U=model.whitener.U,
        W=apply_order(order, state.W, 0),
        W_total=apply_order(order, unmixing @ basis_rows, 0),
        A=apply_order(order, maps(party.config, model), 1),
        eigenvalues=subspace.eigenvalues,
        edge=subspace.edge,
        gap_ratio=subspace.gap_ratio,
        rank_status=subspace.status,
        trace=model.trace,
        rounds_planned=sum(event.phase == "iterate" for event in roster.plan),
        warnings=tuple(warnings),
    )


# -- the protocol --------------------------------------------------------------------------------


def _fixed(config: Config, model: IcaModel) -> Regime:
    roster = joined(model)
    return constants(own(config), roster.n_sites, roster.n_subjects)


def _pca(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_pca(own(config))


def _whitening(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_whitening(own(config), _fixed(config, model), model.subspace)


def _solver(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_solver(own(config), _fixed(config, model))


def _d(model: Model) -> int:
    return joined(model).n_basis


def _k(model: IcaModel) -> int:
    return int(_views.subspace(model).V.shape[1])


def _reduced(site: Site, model: IcaModel) -> Stacks:
    return _views.reduced(site, model, prewhiten=own(site.config).prewhiten)


def _whitened(site: Site, model: IcaModel) -> Stacks:
    U = WHITENING.current(site.config, model).U
    return _views.whitened(site, model, U, prewhiten=own(site.config).prewhiten)


ITERATE = SecureSum(
    name="iterate", state=Unmixing, into="unmixing",
    estimator=_solver, rows=_k, sees=_whitened, close=_close,
)  # fmt: skip
WHITENING = SecureSum(
    name="whitening", state=Whitener, into="whitener",
    estimator=_whitening, rows=_k, sees=_reduced, later=(ITERATE,),
)  # fmt: skip
PCA = SecureSum(
    name="pca", state=Subspace, into="subspace",
    estimator=_pca, rows=_d, sees=_views.raw, later=(WHITENING, ITERATE),
)  # fmt: skip

COMPUTATION = Computation(
    name="capedjica",
    cite="Imtiaz et al., Alg. 1-4; docs/deviations.md",
    config=CapeDjicaConfig,
    model=IcaModel,
    start=IcaModel,
    progress=progress,
    table=(
        join("capedjica", plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="pca"),                  # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,                                           # Masked -> Subspace
        WHITENING,                                     # Masked -> Whitener
        ITERATE,                                       # Masked -> Unmixing
        report(_write_site, _outcome),                 # Done -> Closing
    ),
)  # fmt: skip
