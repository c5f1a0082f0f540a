"""The rule of a run, by the kind of its components."""

from __future__ import annotations

from collections.abc import Mapping

from cape.forecast.one_release import SpatialRule, TemplateRule
from cape.forecast.rule import ForecastRule, Kind
from cape.forecast.temporal import TemporalRule, settings_of_rule


def rule_of(
    kind: Kind, n_components: int, settings: Mapping[str, object] | None = None
) -> ForecastRule:
    """Return the rule for R components; `settings` count in a temporal run only."""
    if kind == "temporal":
        return TemporalRule(n_components=n_components, **settings_of_rule(settings or {}))
    if kind == "spatial":
        return SpatialRule(n_components=n_components)
    return TemplateRule(n_components=n_components)
