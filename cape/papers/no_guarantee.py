"""Settings and plan of joint ICAs without a privacy guarantee, labelled "none"; for comparison.

The aggregator still sees masked sums only, but the sums carry no private noise.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array, Data, PlannedRelease
from cape.errors import ConfigError, ConsortiumError
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import RunPlan
from cape.protocol.model import Model, Roster, settings_of
from cape.protocol.plan import PlannedStage, filtered, make_plan, verify_plan
from cape.protocol.ports import Site, Stacks
from cape.settings.config import Config
from cape.settings.option import option, out_of_range
from cape.settings.resolved import check_basis, resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import widest_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenConfig(Config):
    """Common settings of these computations."""

    n_components: int = option(20, low=2, high=50)
    n_local: int = option(20, low=2, high=200, expert=True)
    private: bool = option(False, group="Privacy")

    def check_open(self, name: str) -> None:
        """Check the settings of computation `name`; ConfigError also if they ask for privacy."""
        Config.check(self)
        if self.private:
            raise ConfigError("E255", computation=name)
        check_basis(self)
        if self.n_local < self.n_components:
            allowed = f"at least n_components = {self.n_components}"
            raise out_of_range("n_local", self.n_local, allowed, "raise it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenPlanner:
    """Plans a run in the widest public basis that fits."""

    # (config, n_sites, n_subjects, d) -> the sums of every phase, in order
    schedules: Callable[[Any, int, int, int], Mapping[str, tuple[PlannedRelease, ...]]]
    warning: str

    def plan_run(
        self, config: OpenConfig, n_sites: int, n_subjects: int, space: FeatureSpace
    ) -> RunPlan:
        """Return the plan; ConfigError or ConsortiumError if there is none."""
        if n_subjects < config.n_components:
            raise ConsortiumError("E130", got=n_subjects, allowed=config.n_components)
        d = _full_width(config, space)
        stages = self._stages(config, n_sites, n_subjects, d)
        releases = make_plan(config, stages, n_sites=n_sites, n_subjects=n_subjects)
        return RunPlan(releases=releases, n_basis=d, warnings=(self.warning, *filtered(config)))

    def verify(self, site: Site, roster: Roster) -> None:
        # The site makes the plan again from its own settings and does not trust the roster.
        config = settings_of(OpenConfig, site.config)
        d = _full_width(config, roster.space)
        stages = self._stages(config, roster.n_sites, roster.n_subjects, d)
        verify_plan(site, roster, stages, n_basis=d)

    def _stages(
        self, config: OpenConfig, n_sites: int, n_subjects: int, d: int
    ) -> tuple[PlannedStage, ...]:
        schedules = self.schedules(config, n_sites, n_subjects, d)
        # Every plan needs weights of the budget; without noise they have no effect.
        return tuple(
            PlannedStage(phase=phase, releases=releases, mu2_weight=1.0)
            for phase, releases in schedules.items()
        )


def _full_width(config: OpenConfig, space: FeatureSpace) -> int:
    d, R = widest_basis(resolve(config), space), config.n_components
    if d > config.max_features:
        limit = config.max_features
        raise ConfigError("E145", setting="features", got=d, allowed=limit, do="set n_basis.")
    if d < R:
        raise ConfigError("E149", got=R, allowed=f"2 to {d}", do=f"there are {d} directions.")
    return d


def mapped(site: Site, model: Model, name: str, rows: Array) -> Stacks:
    """Return ``rows @ Y_m`` (k, T_m) of every subject, float32, kept as working arrays `name`."""

    def project(Y: Data) -> Data:
        return np.asarray(rows @ Y.astype(np.float64), dtype=np.float32)

    def build() -> Stacks:
        return subject_views.map_subjects(subject_views.normalised(site, model), project)

    return site.cached(name, (rows,), build)
