"""Joint temporal ICA of several sites, private for every subject: the papers' model.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums (`stages`): a common subspace (pca), a common whitening, and the rounds of a
solver.  The default is made for privacy: PCA from subjects' projectors in a public basis,
log-Euclidean whitening, rotations by quasi-Newton steps.  ``pca=covariance``, ``whitening=eigen``
and ``solver=infomax`` give the pipeline of Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).

Read the table at the bottom first.  Then `settings`, `stages`, and what all joint ICAs share in
`cape.computations.ica`: `plan` (what all sites check before anything is released), `outcome` (what
the table's last line writes).
"""

from __future__ import annotations

from cape.computations.capedjica.settings import CapeDjicaConfig
from cape.computations.capedjica.stages import (
    ITERATE,
    PCA,
    WHITENING,
    choose_n_basis,
    final_state,
    releases,
    rule,
)
from cape.computations.ica.model import IcaModel
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.protocol.join import join
from cape.protocol.outcome import SpatialSet
from cape.protocol.phases import Computation
from cape.protocol.zero_sum import ZeroSum

__all__ = ["COMPUTATION", "PLANNER"]

NAME = "capedjica"
PLANNER = IcaPlanner(
    kind="temporal",
    config=CapeDjicaConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
)


def _spatial_set(config: CapeDjicaConfig, model: IcaModel) -> SpatialSet | None:
    from cape.computations.capedjica.free_set import spatial_set

    return spatial_set(config, model)


COMPUTATION = Computation(
    name=NAME,
    config=CapeDjicaConfig,
    model=IcaModel,
    table=(
        join(NAME, PLANNER.plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="pca"),  # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,  # Masked -> Subspace
        WHITENING,  # Masked -> Whitener
        ITERATE,  # Masked -> Unmixing
        # Done -> Closing
        ica_report(NAME, (PCA, WHITENING, ITERATE), final_state, spatial_set=_spatial_set),
    ),
)
