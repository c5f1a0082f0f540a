"""Dual regression of several sites on public template maps, private for every subject: one release.

Nothing is discovered: the data say how the networks differ from their templates.  Every site has
the same template maps (templates.nii.gz or templates.csv); the noisy mean of what every subject
adds to them is the one release, and takes the whole budget (docs/separations.md).

Read the table at the bottom first, then `settings` and `stages`; what all joint ICAs share is in
`cape.computations.ica`.
"""

from __future__ import annotations

from cape.computations.capedualreg.settings import CapeDualRegConfig
from cape.computations.capedualreg.stages import (
    TEMPLATE,
    DualRegModel,
    check_space,
    choose_n_basis,
    final_state,
    releases,
    rule,
    template_reading,
)
from cape.computations.ica.ending import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.protocol.join import join
from cape.protocol.model import progress
from cape.protocol.phases import Computation
from cape.protocol.zero_sum import ZeroSum

__all__ = ["COMPUTATION", "PLANNER"]

NAME = "capedualreg"
PLANNER = IcaPlanner(
    kind="template",
    config=CapeDualRegConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
    check_space=check_space,
)

COMPUTATION = Computation(
    name=NAME,
    cite="docs/separations.md; Nickerson et al., dual regression (2017)",
    config=CapeDualRegConfig,
    model=DualRegModel,
    start=DualRegModel,
    progress=progress,
    table=(
        join(NAME, PLANNER.plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="template"),  # PublicKey -> KeyBook; probe -> Fingerprint
        TEMPLATE,  # Masked -> TemplateMaps
        ica_report(NAME, (TEMPLATE,), final_state, template_reading=template_reading),
    ),
)
