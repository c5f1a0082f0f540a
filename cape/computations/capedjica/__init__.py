"""Joint temporal ICA of several sites, private for every subject: the product.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums (`temporal`): a common subspace (pca), a common whitening, and the rounds of a
solver.  The default is made for privacy: PCA from subjects' projectors in a public basis,
log-Euclidean whitening, rotations by quasi-Newton steps.  ``pca=covariance``, ``whitening=eigen``
and ``solver=infomax`` give the pipeline of Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).
``separation=spatial`` and ``template`` are other models, with one release each.

Read the table at the bottom first.  Then `settings`, one module for each model, `plan` (what all
sites check before anything is released) and `outcome` (what the table's last line writes).
"""

from __future__ import annotations

from dataclasses import replace

from cape.computations.capedjica.model import IcaModel
from cape.computations.capedjica.plan import expected_noise, model_of, plan_run, rule, verify
from cape.computations.capedjica.settings import CapeDjicaConfig, first_stage, sized
from cape.computations.capedjica.spatial import SPATIAL
from cape.computations.capedjica.template import TEMPLATE
from cape.computations.capedjica.temporal import ITERATE, PCA, WHITENING
from cape.protocol.join import join
from cape.protocol.model import joined, progress, settings_of
from cape.protocol.outcome import IcaOutcome, SiteOutcome
from cape.protocol.phases import Computation
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import clip_scales, report
from cape.protocol.zero_sum import ZeroSum

__all__ = [
    "COMPUTATION",
    "ITERATE",
    "CapeDjicaConfig",
    "expected_noise",
    "plan_run",
    "rule",
    "sized",
]

STAGES = (PCA, WHITENING, ITERATE, SPATIAL, TEMPLATE)


# The last round alone pays for importing what it writes.


def _write_site(site: Site, model: IcaModel) -> SiteOutcome:
    from cape.computations.capedjica.outcome import site_outcome

    config = settings_of(CapeDjicaConfig, site.config)
    end = model_of(config).final_state(config, model)
    return replace(site_outcome(site, model, end), clip_scales=clip_scales(site, model, STAGES))


def _write_consortium(party: Aggregator, model: IcaModel) -> IcaOutcome:
    from cape.computations.capedjica.outcome import consortium_outcome

    config = settings_of(CapeDjicaConfig, party.config)
    end = model_of(config).final_state(config, model)
    # Seeded noise can be drawn again by whoever knows the seed: it protects nobody.
    private = config.private and not joined(model).seeded
    label = "dp" if private else "none"
    return consortium_outcome(COMPUTATION.name, party, model, end, label=label)


COMPUTATION = Computation(
    name="capedjica",
    cite="Imtiaz et al., Alg. 1-4; docs/deviations.md",
    config=CapeDjicaConfig,
    model=IcaModel,
    start=IcaModel,
    progress=progress,
    # A phase opens only if its line says so and these settings have it (`enabled_if`).
    table=(
        join("capedjica", plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(verify, then=first_stage),  # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,  # Masked -> Subspace          temporal
        WHITENING,  # Masked -> Whitener          temporal
        ITERATE,  # Masked -> Unmixing          temporal
        SPATIAL,  # Masked -> SpatialComponents spatial
        TEMPLATE,  # Masked -> TemplateMaps      template
        report(_write_site, _write_consortium),  # Done -> Closing
    ),
)
