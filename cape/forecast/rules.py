"""The rule of a run, by its model of separation."""

from __future__ import annotations

from collections.abc import Mapping

from cape.forecast.one_release import SpatialRule, TemplateRule
from cape.forecast.rule import Separation
from cape.forecast.temporal import TemporalRule, settings_of_rule


def rule_of(
    separation: Separation, n_components: int, settings: Mapping[str, object] | None = None
) -> TemporalRule | SpatialRule | TemplateRule:
    """Return the rule for R components; `settings` count in a temporal run only."""
    if separation == "temporal":
        return TemporalRule(n_components=n_components, **settings_of_rule(settings or {}))
    if separation == "spatial":
        return SpatialRule(n_components=n_components)
    return TemplateRule(n_components=n_components)
