"""The last phase of a joint ICA; only its round pays for importing what it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cape.computations.ica.model import FinalState
from cape.protocol.model import joined
from cape.protocol.outcome import IcaOutcome, SiteOutcome, SpatialSet, TemplateReading
from cape.protocol.phases import AnyPhase
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import clip_scales, report
from cape.protocol.secure_sum import SecureSum


def nothing(config: Any, model: Any) -> None:
    """Have nothing beside the maps."""


def ica_report(
    name: str,
    stages: Sequence[SecureSum[Any]],
    final_state: Callable[[Any, Any], FinalState],
    *,
    spatial_set: Callable[[Any, Any], SpatialSet | None] = nothing,
    template_reading: Callable[[Any, Any], TemplateReading | None] = nothing,
) -> AnyPhase:
    """Return the last line of a table, from functions of the settings and the public model."""

    def write_site(site: Site, model: Any) -> SiteOutcome:
        from cape.computations.ica.outcome import site_outcome

        end = final_state(site.config, model)
        scales = clip_scales(site, model, stages)
        return replace(site_outcome(name, site, model, end), clip_scales=scales)

    def write_consortium(party: Aggregator, model: Any) -> IcaOutcome:
        from cape.computations.ica.outcome import consortium_outcome

        config = party.config
        return consortium_outcome(
            name,
            party,
            model,
            final_state(config, model),
            # Seeded noise can be drawn again by whoever knows the seed: it protects nobody.
            label="dp" if config.private and not joined(model).seeded else "none",
            spatial=spatial_set(config, model),
            template=template_reading(config, model),
        )

    return report(write_site, write_consortium)
