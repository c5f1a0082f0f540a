"""The same run on smooth noise in place of every subject.

Smoothness explains most of the similarity between halves and to atlases: a finding must exceed this
run.  The noise uses only the numbers of time points of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Data
from cape.computations import configured
from cape.data.folders import site_folders
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.lab.synthetic.resting import in_time
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome
from cape.protocol.ports import Source
from cape.report import files, render
from cape.report.consortium import map_results_of
from cape.report.results import SURROGATE_FILE, SurrogateFigures
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.space.public_basis import noise_root, public_basis

# Fixed, so that runs with the same settings are compared with the same noise
SMOOTH_NOISE_SEED = 20_260_103


@dataclass(frozen=True, kw_only=True, slots=True)
class SurrogateSource:
    """Smooth noise with the sizes of another source."""

    inner: Source
    config: Config
    number: int

    @property
    def space(self) -> FeatureSpace:
        return self.inner.space

    @property
    def n_subjects(self) -> int:
        return self.inner.n_subjects

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, smooth noise (d, T_m)) for every subject of the other source."""
        B = public_basis(resolve(self.config), self.space, n_basis)
        root = None if B is None else noise_root(self.space, B)  # None: features are white
        rng = np.random.default_rng([SMOOTH_NOISE_SEED, self.number])
        for label, real in self.inner.reduced(n_basis):
            noise = in_time(rng.standard_normal(real.shape))
            smooth = noise if root is None else root @ noise
            yield label, smooth.astype(np.float32)


def add_surrogate(directory: Path, consortium: Path) -> None:
    """Run on smooth noise of the same sizes and write the page again.

    ConfigError CAPE-E282: the computation has no maps.
    """
    results = files.read_json(consortium / "results.json")
    settings = files.read_json(consortium / "settings.json")["settings"]
    computation, config = configured({**settings, "computation": results["computation"]})
    sites = site_folders(directory)
    noise = {
        site: SurrogateSource(inner=FileSource(path, {}, config, site), config=config, number=k)
        for k, (site, path) in enumerate(sites.items())
    }
    policy = SitePolicy.of_simulation(simulation_seed=SMOOTH_NOISE_SEED)
    transport = MemoryTransport(computation, config, noise, policy, None, folders=sites)
    run_to_end(transport, None)
    if not isinstance(transport.outcome, IcaOutcome):
        raise ConfigError("E282", got=computation.name)
    figures = SurrogateFigures.of(map_results_of(transport.outcome))
    files.write_json(consortium / SURROGATE_FILE, figures)
    render(consortium)
