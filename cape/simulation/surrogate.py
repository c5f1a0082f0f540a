"""Subjects made of smooth noise in place of real ones: what settings give when there is nothing.

Split-half likeness and likeness to atlases are mostly smoothness, so a result means something only
where it is better than this.  Nothing of the data is used but the number of time points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array, Data
from cape.computations import load
from cape.config import Config, parse_shape
from cape.errors import ConfigError
from cape.planning.owner_settings import site_folders
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome
from cape.protocol.ports import Source
from cape.public_basis import public_basis, voxel_mm
from cape.report import files, render, separations
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource

AR = 0.4
"""Autocorrelation of the noise in time."""

SEED = 20_260_103


@dataclass(frozen=True, slots=True)
class SurrogateSource:
    """A source of smooth noise with the sizes of another one."""

    inner: Source
    config: Config
    number: int

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the other source."""
        return self.inner.space

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return self.inner.n_subjects

    @property
    def tr_range(self) -> tuple[float, float]:
        """Repetition times of the other source."""
        return self.inner.tr_range

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, smooth noise (d, T_m)) for every subject of the other source."""
        root = noise_root(self.config, self.space, n_basis)
        rng = np.random.default_rng([SEED, self.number])
        for label, real in self.inner.reduced(n_basis):
            white = rng.standard_normal(real.shape)
            for t in range(1, white.shape[1]):
                white[:, t] = AR * white[:, t - 1] + np.sqrt(1.0 - AR**2) * white[:, t]
            smooth = white if root is None else root @ white
            yield label, smooth.astype(np.float32)


def noise_root(config: Config, space: FeatureSpace, n_basis: int) -> Array | None:
    """Return the root of the covariance of smooth noise in the basis; None: features are white."""
    B = public_basis(config, space, n_basis)
    if B is None:
        return None
    if space.kind == "mask":
        smoothed = kernel.smooth(space.labels() > 0, voxel_mm(space), B)
    else:
        rows, columns = parse_shape(config.image_shape)
        smoothed = kernel.smooth_image((rows, columns), B)
    values, vectors = np.linalg.eigh(B.T @ smoothed)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def add_surrogate(directory: Path, consortium: Path) -> None:
    """Run the same settings on smooth noise, put the figures beside the results, render again.

    Parameters
    ----------
    directory : Path
        The simulated consortium; its files are read for the number of subjects and time points.
    consortium : Path
        Results of the run; gets ``surrogate.json``.

    Raises
    ------
    ConfigError
        CAPE-E282: a computation that has no maps.
    """
    results = files.read_json(consortium / "results.json")
    computation = load(str(results["computation"]))
    config = computation.config.from_input(
        {**files.read_json(consortium / "settings.json")["settings"], "accept_low_quality": True}
    )
    sites = site_folders(directory)
    noise = {
        site: SurrogateSource(FileSource(path, {}, config, site), config, k)
        for k, (site, path) in enumerate(sites.items())
    }
    policy = SitePolicy(min_subjects=1, allow_not_private=True, simulation_seed=SEED)
    link = MemoryTransport(computation, config, noise, policy, None)
    link.folders = dict(sites)
    run_to_end(link, None)
    if not isinstance(link.outcome, IcaOutcome):
        raise ConfigError("E282", got=computation.name)
    summary = separations.summary(files.results_of(link.outcome))
    files.write_json(consortium / separations.BESIDE, summary)
    render(consortium)
