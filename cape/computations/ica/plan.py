"""The plan of a joint ICA: size of the basis, all releases, and the expected quality.

It follows from settings, the numbers of sites and subjects, and the feature space, so every site
can repeat the aggregator's plan and compare.
"""

from collections.abc import Callable
from typing import Any

from cape.computations.ica.settings import IcaConfig, effective_g, run_size, sized
from cape.errors import ConfigError, ConsortiumError
from cape.forecast.rule import ComponentKind, ForecastRule
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.protocol.join import RunPlan
from cape.protocol.model import Roster, settings_of
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, filtered, make_plan, verify_plan
from cape.protocol.ports import Site
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace

# Maximum of features without a public basis, for any budget
MAX_IDENTITY = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaPlanner:
    """The functions by which one computation differs in the common plan of joint ICAs."""

    kind: ComponentKind
    config: type[IcaConfig]
    # ``releases(config, n_sites=, n_subjects=, n_basis=)``: all of a run, with weights in mu^2
    releases: Callable[..., tuple[PlannedStage, ...]]
    # ``choose_n_basis(config, space, G)``: the best d
    choose_n_basis: Callable[[Any, FeatureSpace, float], int]
    # ``rule(config, d)``: whether maps can be expected
    rule: Callable[[Any, int], ForecastRule]
    # ``check_space(config, space)``: ConfigError if the sites' space does not suit the settings
    check_space: Callable[[Any, FeatureSpace], None] | None = None

    def plan_run(
        self, config: IcaConfig, n_sites: int, n_subjects: int, space: FeatureSpace
    ) -> RunPlan:
        """Return the plan of a run; ConfigError or PrivacyBudgetError if none exists."""
        config = sized(config, n_sites, n_subjects, space)
        # Of templates each person has maps of all.
        if self.kind != "template" and n_subjects < config.n_components:
            raise ConsortiumError("E130", got=n_subjects, allowed=config.n_components)
        if self.check_space is not None:
            self.check_space(config, space)
        d = self.basis_size(config, space, effective_g(config, n_sites, n_subjects))
        stages = self.releases(config, n_sites=n_sites, n_subjects=n_subjects, n_basis=d)
        plan = make_plan(config, stages, n_sites=n_sites, n_subjects=n_subjects)
        warnings = (*self._quality(config, n_sites, n_subjects, d), *filtered(config))
        return RunPlan(releases=plan, n_basis=d, warnings=warnings)

    def verify(self, site: Site, roster: Roster) -> None:
        # The roster is not trusted: the site makes the same plan again from its own inputs.
        S, M = roster.n_sites, roster.n_subjects
        config = sized(settings_of(self.config, site.config), S, M, roster.space)
        d = self.basis_size(config, roster.space, effective_g(config, S, M))
        stages = self.releases(config, n_sites=S, n_subjects=M, n_basis=d)
        verify_plan(site, roster, stages, n_basis=d)

    def basis_size(self, config: IcaConfig, space: FeatureSpace, g: float) -> int:
        """Return d: the owner's, or the best one for G; ConfigError if R does not fit d."""
        D, R, how = space.n_features, config.n_components, resolve(config)
        if how.basis == "none":
            d = _without_basis(config, D, g)
        elif space.n_templates and how.basis == "templates":
            d = space.n_templates
        elif config.n_basis:
            d = min(config.n_basis, D)
        else:
            d = self.choose_n_basis(config, space, g)
        if d > config.max_features:
            do = "use fewer templates." if d == space.n_templates else "lower n_basis."
            raise ConfigError("E145", setting="n_basis", got=d, allowed=config.max_features, do=do)
        if d < R:
            do = f"the public basis has {d} directions."
            raise ConfigError("E149", got=R, allowed=f"2 to {d}", do=do)
        return d

    def _quality(
        self, config: IcaConfig, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[str, ...]:
        """Return warnings for the owner; refuse a run whose maps would mostly be noise."""
        if not config.private:
            return (PROTECTS_NOBODY,)
        mu = gdp_mu(epsilon=config.epsilon, delta=config.delta)
        size = run_size(config, n_sites, n_subjects)
        verdict = self.rule(config, n_basis).forecast(size, mu, n_basis=n_basis)
        # Refused before any release: spent budget cannot be recovered.
        if not (verdict.usable or config.accept_low_quality):
            do = "or set accept_low_quality."
            raise ConfigError("E150", problem=verdict.text.rstrip("."), do=do)
        return verdict.warnings if verdict.answer == "yes" else (verdict.text, *verdict.warnings)


def _without_basis(config: IcaConfig, n_features: int, g: float) -> int:
    from cape.forecast.temporal import PCA_SHARE

    # Noise takes R d / (f_P G^2) of the maps' energy (`TemporalRule.map_energy`): up to a tenth.
    affordable = int(min(0.1 * PCA_SHARE * g * g / config.n_components, 1e9))
    limit = min(max(MAX_IDENTITY, affordable), config.max_features)
    if limit < n_features:
        without = "features without a public basis"
        do = "use an atlas or basis=dct, raise epsilon, or add subjects."
        raise ConfigError("E145", setting=without, got=n_features, allowed=limit, do=do)
    return n_features
