"""The rule of a run, by its model of separation."""

from __future__ import annotations

from cape.forecast.one_release import SpatialRule, TemplateRule
from cape.forecast.rule import Separation
from cape.forecast.temporal import TemporalRule


def rule_of(
    separation: Separation, n_components: int, *, prewhitened: bool = True
) -> TemporalRule | SpatialRule | TemplateRule:
    """Return the rule for R components; `prewhitened` counts in a temporal run only."""
    if separation == "temporal":
        return TemporalRule(n_components=n_components, prewhitened=prewhitened)
    if separation == "spatial":
        return SpatialRule(n_components=n_components)
    return TemplateRule(n_components=n_components)
