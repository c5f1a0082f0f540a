"""Joint temporal ICA of several sites, private for every subject: the papers' model.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums (`stages`): a common subspace (pca), a common whitening, and the rounds of a
solver.  The algorithms are made for privacy: PCA from subjects' projectors in a public basis,
log-Euclidean whitening, rotations by quasi-Newton steps.  Those of Imtiaz et al., Alg. 3 and 4, are
in `paperdjica` (docs/deviations.md).

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
    spatial_set,
)
from cape.computations.ica.model import IcaModel
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.protocol.join import join
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
        ica_report(NAME, (PCA, WHITENING, ITERATE), final_state, spatial_set=spatial_set),
    ),
)
