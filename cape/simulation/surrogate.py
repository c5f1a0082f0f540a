"""Run the settings of a simulation again on smooth noise, for the report to compare with."""

from __future__ import annotations

from pathlib import Path

from cape.computations import load
from cape.consortium_folder import site_folders
from cape.errors import ConfigError
from cape.protocol.outcome import IcaOutcome
from cape.report import files, render
from cape.report.consortium import map_results_of
from cape.report.results import SURROGATE_FILE, SurrogateFigures
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.synthetic import SMOOTH_NOISE_SEED, SurrogateSource


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
        site: SurrogateSource(inner=FileSource(path, {}, config, site), config=config, number=k)
        for k, (site, path) in enumerate(sites.items())
    }
    policy = SitePolicy(min_subjects=1, allow_not_private=True, simulation_seed=SMOOTH_NOISE_SEED)
    link = MemoryTransport(computation, config, noise, policy, None, folders=sites)
    run_to_end(link, None)
    if not isinstance(link.outcome, IcaOutcome):
        raise ConfigError("E282", got=computation.name)
    figures = SurrogateFigures.of(map_results_of(link.outcome))
    files.write_json(consortium / SURROGATE_FILE, figures)
    render(consortium)
