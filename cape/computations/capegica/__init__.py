"""Spatial group ICA of several sites, private for every subject: one release.

Maps that are independent of each other over the brain; nothing is assumed of time courses.  Every
subject sends the projector on its own leading directions in a public kernel basis; their noisy mean
is the one release, and takes the whole budget.  All else is public arithmetic: a left-right test
and a mirror, a rotation of the maps, claims (docs/separations.md).

Read the table at the bottom first, then `settings` and `stages`; what all joint ICAs share is in
`cape.computations.ica`, the recipe in its `recipe`.
"""

from __future__ import annotations

from cape.computations.capegica.settings import CapeGicaConfig
from cape.computations.capegica.stages import (
    SPATIAL,
    GicaModel,
    choose_n_basis,
    final_state,
    releases,
    rule,
    spatial_set,
)
from cape.computations.ica.ending import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.protocol.join import join
from cape.protocol.model import progress
from cape.protocol.phases import Computation
from cape.protocol.zero_sum import ZeroSum

__all__ = ["COMPUTATION", "PLANNER"]

NAME = "capegica"
PLANNER = IcaPlanner(
    kind="spatial",
    config=CapeGicaConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
)

COMPUTATION = Computation(
    name=NAME,
    cite="docs/separations.md; Calhoun et al., group ICA (2001)",
    config=CapeGicaConfig,
    model=GicaModel,
    start=GicaModel,
    progress=progress,
    table=(
        join(NAME, PLANNER.plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="spatial"),  # PublicKey -> KeyBook; probe -> Fingerprint
        SPATIAL,  # Masked -> SpatialComponents
        ica_report(NAME, (SPATIAL,), final_state, spatial_set=spatial_set),  # Done -> Closing
    ),
)
