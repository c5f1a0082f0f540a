"""Joint temporal ICA of several sites, private for every subject: the product.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums: a common subspace (pca), a common whitening, and the rounds of a solver.
The default is made for privacy: PCA from subjects' projectors in a public basis, log-Euclidean
whitening, rotations by quasi-Newton steps.  ``pca=covariance``, ``whitening=eigen`` and
``solver=infomax`` give the pipeline of Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).
``separation=spatial`` and ``template`` are other models, with one release each (`_separations`).

Read the table at the bottom first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cape.algorithms.estimators import Array, Estimator
from cape.algorithms.pca import Subspace
from cape.algorithms.quasi_newton import TunedConstants
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.computations import _capedjica_separations, _ica_outcome
from cape.computations._capedjica_separations import SPATIAL, TEMPLATE
from cape.computations._capedjica_settings import (
    CapeDjicaConfig,
    basis_size,
    constants,
    make_pca,
    make_solver,
    make_whitening,
    own,
    plan_run,
    rule,
    stages,
    strength,
)
from cape.config import Config
from cape.protocol import subject_views
from cape.protocol.ica_model import IcaModel
from cape.protocol.join import join
from cape.protocol.messages import Roster
from cape.protocol.model import joined, n_basis, progress
from cape.protocol.outcome import IcaOutcome, SiteOutcome
from cape.protocol.phases import Computation
from cape.protocol.plan import verify_basis, verify_plan
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.report_phase import clip_scales, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum

__all__ = ["COMPUTATION", "CapeDjicaConfig", "plan_run", "rule"]


def _verify(site: Site, roster: Roster) -> None:
    config, S, M = own(site.config), roster.n_sites, roster.n_subjects
    d = basis_size(config, roster.space, strength(config, S, M))
    verify_basis(site, roster, d)
    verify_plan(site, roster, stages(config, n_sites=S, n_subjects=M, n_basis=d))


# -- the end of a run ----------------------------------------------------------------------------


def maps(config: Config, model: IcaModel) -> Array:
    """Return A = B V (W U)^-1, shape (D, k), in the order of the solver."""
    return _ica_outcome.maps(config, _with_whitener(config, model))


def _close(config: Config, model: IcaModel) -> Unmixing:
    return _ica_outcome.close(config, _with_whitener(config, model))


def _with_whitener(config: Config, model: IcaModel) -> IcaModel:
    """Return the model with the whitener that needed no release."""
    if model.whitener is not None or not _temporal(config):
        return model
    return replace(model, whitener=WHITENING.current(config, model))


def _write_site(site: Site, model: IcaModel) -> SiteOutcome:
    model = _with_whitener(site.config, model)
    found = _ica_outcome.write_site(site, model)
    return replace(found, clip_scales=clip_scales(site, model, STAGES))


def _outcome(party: Aggregator, model: IcaModel) -> IcaOutcome:
    private = party.config.private and not joined(model).seeded
    model = _with_whitener(party.config, model)
    return _ica_outcome.outcome(COMPUTATION.name, party, model, label="dp" if private else "none")


# -- the protocol --------------------------------------------------------------------------------


def _fixed(config: Config, model: IcaModel) -> TunedConstants:
    roster = joined(model)
    return constants(own(config), roster.n_sites, roster.n_subjects)


def _pca(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_pca(own(config))


def _whitening(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_whitening(own(config), _fixed(config, model), model.subspace)


def _solver(config: Config, model: IcaModel) -> Estimator[Any]:
    return make_solver(own(config), _fixed(config, model))


def _reduced(site: Site, model: IcaModel) -> Stacks:
    return subject_views.reduced(site, model, prewhiten=own(site.config).prewhiten)


def _whitened(site: Site, model: IcaModel) -> Stacks:
    U = WHITENING.current(site.config, model).U
    return subject_views.whitened(site, model, U, prewhiten=own(site.config).prewhiten)


def _temporal(config: Config) -> bool:
    return _capedjica_separations.is_kind("temporal", config)


def _first(config: Config) -> str:
    """Return the stage of the first release."""
    kind = _capedjica_separations.separation_of(config)
    return "pca" if kind == "temporal" else kind


ITERATE = SecureSum(
    name="iterate",
    state=Unmixing,
    model_field="unmixing",
    estimator=_solver,
    rows=subject_views.n_directions,
    input=_whitened,
    close=_close,
    enabled_if=_temporal,
)
WHITENING = SecureSum(
    name="whitening",
    state=Whitener,
    model_field="whitener",
    estimator=_whitening,
    rows=subject_views.n_directions,
    input=_reduced,
    successors=(ITERATE,),
    enabled_if=_temporal,
)
PCA = SecureSum(
    name="pca",
    state=Subspace,
    model_field="subspace",
    may_reduce_rank=True,
    estimator=_pca,
    rows=n_basis,
    input=subject_views.raw,
    successors=(WHITENING, ITERATE),
    enabled_if=_temporal,
)

STAGES = (PCA, WHITENING, ITERATE, SPATIAL, TEMPLATE)

COMPUTATION = Computation(
    name="capedjica",
    cite="Imtiaz et al., Alg. 1-4; docs/deviations.md",
    config=CapeDjicaConfig,
    model=IcaModel,
    start=IcaModel,
    progress=progress,
    table=(
        join("capedjica", plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then=_first),                 # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,                                           # Masked -> Subspace          temporal
        WHITENING,                                     # Masked -> Whitener          temporal
        ITERATE,                                       # Masked -> Unmixing          temporal
        SPATIAL,                                       # Masked -> SpatialComponents spatial
        TEMPLATE,                                      # Masked -> TemplateMaps      template
        report(_write_site, _outcome),                 # Done -> Closing
    ),
)  # fmt: skip
