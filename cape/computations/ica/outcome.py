"""The results of every joint ICA: maps, their order, files of sites and consortium."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array, Data
from cape.algorithms.spatial import sparseness, spatial_ica
from cape.computations.ica.model import FinalState
from cape.protocol.model import Model, joined
from cape.protocol.outcome import (
    IcaOutcome,
    SiteOutcome,
    SpatialSet,
    TemplateReading,
    component_names,
)
from cape.protocol.phases import AnyPhase
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import clip_scales, facts, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.subject_views import prepared
from cape.protocol.zero_sum import empty_ledger, own_fingerprint
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import has_neighbours
from cape.space.public_basis import public_basis

NO_GAP = "No clear gap in the spectrum: it does not tell how many components there are."


def _time_courses(site: Site, model: Model, rows: Array) -> Iterator[tuple[str, Data]]:
    """Yield (label, S_m (k, T_m)) of every subject; `rows` (k, d): W_total in the basis."""
    roster = joined(model)
    stacks = prepared(site, roster.space)
    for array, labels in zip(stacks.arrays, stacks.labels, strict=True):
        for label, Y in zip(labels, array, strict=True):
            if not Y.size:
                continue  # failed the site's checks
            # Not scaled or filtered: time courses have the units of the subject's data.
            yield label, np.asarray(rows @ Y[: roster.n_basis].astype(np.float64), dtype=np.float32)


def _spatial_set(config: Config, model: Model, end: FinalState) -> SpatialSet:
    """Return the spatially independent components of a released subspace."""
    roster = joined(model)
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    maps = end.V if B is None else B @ end.V
    rotation = spatial_ica(maps)
    A = maps @ rotation.mixing
    return SpatialSet(
        A=apply_order(arrange(A), A, 1),
        converged=rotation.converged,
        sparseness=sparseness(B, end.V, rotation.mixing) if has_neighbours(roster.space) else None,
    )


def ica_report(
    name: str,
    stages: Sequence[SecureSum[Any]],
    final_state: Callable[[Any, Any], FinalState],
    *,
    spatial_set: Callable[[Any, Any], SpatialSet | None] = lambda config, model: None,
    template_reading: Callable[[Any, Any], TemplateReading | None] = lambda config, model: None,
) -> AnyPhase:
    """Return the `report` phase, from functions of the settings and the public model."""
    # `spatial_set` is the computation's own set; None: that of its subspace.

    def write_site(site: Site, model: Any) -> SiteOutcome:
        end = final_state(site.config, model)
        rows = apply_order(end.order, end.unmixing @ end.V.T, 0)
        return SiteOutcome(
            site=site.id,
            outcome_status=end.status,
            verdicts=() if end.verdict is None else end.verdict.ordered(end.order).components,
            fingerprint=own_fingerprint(site, model),
            names=component_names(len(end.unmixing)),
            time_courses=_time_courses(site, model, rows),
            ledger=site.ledger or empty_ledger(site.config),
            A=apply_order(end.order, end.maps(site.config, model), 1),
            space=joined(model).space,
            computation=name,
            settings=site.config.settings(),
            clip_scales=clip_scales(site, model, stages),
        )

    def write_consortium(party: Aggregator, model: Any) -> IcaOutcome:
        config, end, roster = party.config, final_state(party.config, model), joined(model)
        spectrum, spatial = end.spectrum, spatial_set(config, model)
        B = public_basis(resolve(config), roster.space, roster.n_basis)
        basis_rows = end.V.T if B is None else (B @ end.V).T
        if spatial is None and spectrum is not None:
            # They cost no privacy and were often better on real data: shown with every spectrum.
            spatial = _spatial_set(config, model, end)
        shared = facts(name, party, model)
        # On real brains the spectrum did not show the number of components.
        if spectrum is not None and spectrum.status == "no_gap" and spectrum.free is None:
            shared["warnings"] = (*roster.warnings, NO_GAP)
        return IcaOutcome(
            **shared,
            kind=end.kind,
            status=end.status,
            reason=end.reason,
            stability=end.stability,
            verdict=end.verdict.ordered(end.order) if end.verdict else None,
            V=end.V,
            U=end.U,
            W=apply_order(end.order, end.W, 0),
            W_total=apply_order(end.order, end.unmixing @ basis_rows, 0),
            A=apply_order(end.order, end.maps(config, model), 1),
            eigenvalues=np.zeros(0) if spectrum is None else spectrum.eigenvalues,
            edge=spectrum.edge if spectrum else 0.0,
            gap_ratio=spectrum.gap_ratio if spectrum else 0.0,
            rank_status=spectrum.status if spectrum else "unguarded",
            rounds_planned=sum(event.phase == roster.plan[-1].phase for event in roster.plan),
            spatial=spatial,
            template=template_reading(config, model),
        )

    return report(write_site, write_consortium)
