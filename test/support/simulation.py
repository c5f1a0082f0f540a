"""`simulate` as tests call it: each choice of a run by its name."""

from pathlib import Path
from typing import Any

from cape.simulation import simulate as simulation
from cape.simulation.run_loop import RunOptions
from cape.simulation.ways import FindWay, find_way


def simulate(directory: Path, *, find_way: FindWay = find_way, **choices: Any) -> Path:
    # An engine draws the page of every site: what is compared with it has them, too.
    return simulation.simulate(directory, RunOptions(**{"all_pages": True, **choices}), find_way)
