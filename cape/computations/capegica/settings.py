"""Settings of capegica."""

from __future__ import annotations

from cape.computations.ica.settings import SpatialConfig
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.option import option


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeGicaConfig(SpatialConfig):
    """Settings of capegica."""

    n_components: int = option(0, low=0, high=50)

    def check(self) -> None:
        SpatialConfig.check(self)
        if self.n_components == 1:
            allowed, do = "0, or 2 to 50", "one component has nothing to be separated from."
            raise ConfigError("E011", setting="n_components", got=1, allowed=allowed, do=do)
