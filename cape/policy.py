"""What a site allows, whatever the owner of the consortium asks for; it can only tighten."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from cape.config import VERSION, Config, did_you_mean
from cape.errors import ConfigError, DataError, PrivacyBudgetError


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePolicy:
    """The site's own file ``site-policy.toml``; without one, these defaults.

    Attributes
    ----------
    min_subjects : int
        Fewest subjects of this site.
    max_epsilon, max_delta : float
        Largest planned total; 0 = no limit of its own.
    min_assumed_colluders : int
        Smallest S_C that the plan must count on.
    max_features : int
        Largest public basis; 0 = the owner's.
    allow_computations : tuple of str
        Names; empty = all.
    allow_not_private : bool
        Whether runs with ``private=false`` may use this site's data.
    simulation_seed : int
        Seed of the noise, in simulations only; -1 = none, noise from the operating system.
    private_results : bool
        Whether files about single subjects are written into the site's output folder.
    veto : bool
        Refuse everything.
    """

    min_subjects: int = 3
    max_epsilon: float = 0.0
    max_delta: float = 0.0
    min_assumed_colluders: int = 0
    max_features: int = 0
    allow_computations: tuple[str, ...] = ()
    allow_not_private: bool = False
    simulation_seed: int = -1
    private_results: bool = False
    veto: bool = False

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> SitePolicy:
        """Return the policy of a parsed file; ConfigError for unknown keys and wrong types."""
        known = {spec.name: spec for spec in dataclasses.fields(cls)}
        values: dict[str, object] = {}
        for name, value in given.items():
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError("E010", setting=f"site policy: {name}", hint=hint)
            values[name] = _typed(name, known[name].default, value)
        return cls(**values)  # type: ignore[arg-type]

    def tightened(self, site: str, later: SitePolicy) -> SitePolicy:
        """Return this policy, as accepted in `join`, tightened by how its file reads now.

        Files that a site receives land beside those it mapped, so a policy that is read again may
        forbid more, never allow more; another seed ends the run (PrivacyBudgetError).
        """
        if later.simulation_seed != self.simulation_seed:
            raise PrivacyBudgetError("E154", site=site)
        names = set(self.allow_computations or later.allow_computations)
        names &= set(later.allow_computations or self.allow_computations)
        unrelated = bool(self.allow_computations and later.allow_computations and not names)
        return SitePolicy(
            min_subjects=max(self.min_subjects, later.min_subjects),
            max_epsilon=_smaller(self.max_epsilon, later.max_epsilon),
            max_delta=_smaller(self.max_delta, later.max_delta),
            min_assumed_colluders=max(self.min_assumed_colluders, later.min_assumed_colluders),
            max_features=int(_smaller(self.max_features, later.max_features)),
            allow_computations=tuple(sorted(names)),
            allow_not_private=self.allow_not_private and later.allow_not_private,
            simulation_seed=self.simulation_seed,
            private_results=self.private_results and later.private_results,
            veto=self.veto or later.veto or unrelated,
        )

    def check_settings(self, site: str, computation: str, config: Config) -> None:
        """Raise PrivacyBudgetError unless the settings of a run are allowed here."""
        refused = (
            self.veto
            or (self.allow_computations and computation not in self.allow_computations)
            or (not config.private and not self.allow_not_private)
            or (self.max_epsilon > 0 and config.epsilon > self.max_epsilon)
            or (self.max_delta > 0 and config.delta > self.max_delta)
            or (0 <= config.assumed_colluders < self.min_assumed_colluders)
        )
        if refused:
            raise PrivacyBudgetError("E154", site=site)

    def check_run(self, site: str, *, colluders: int, n_basis: int, n_subjects: int) -> None:
        """Raise PrivacyBudgetError or DataError unless the roster of a run is allowed here."""
        if colluders < self.min_assumed_colluders or 0 < self.max_features < n_basis:
            raise PrivacyBudgetError("E154", site=site)
        self.check_size(site, n_subjects)

    def check_size(self, site: str, n_subjects: int) -> None:
        """Raise DataError if this site has fewer subjects than it wants to show in a sum."""
        if n_subjects < self.min_subjects:
            detail = f"{n_subjects} accepted subjects, min_subjects={self.min_subjects}"
            raise DataError("E153", site=site, detail=detail)


def _smaller(a: float, b: float) -> float:
    """Return the smaller limit, where 0 is none."""
    return min(a or b, b or a)


def _typed(name: str, default: object, value: object) -> object:
    """Return a value of the type of the default, or raise ConfigError."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        kind = "a list of texts"
    elif isinstance(default, bool):
        if isinstance(value, bool):
            return value
        kind = "true or false"
    else:
        least = -1 if name == "simulation_seed" else 0
        kind = f"a {'number' if isinstance(default, float) else 'whole number'}, {least} or more"
        # TOML knows inf and nan: a limit of nan would never refuse.
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            whole = isinstance(default, float) or value == int(value)
            if whole and value >= least:
                return type(default)(value)  # type: ignore[call-arg]
    raise ConfigError(
        "E011", setting=f"site policy: {name}", got=value, allowed=kind, do=f"see cape {VERSION}."
    )
