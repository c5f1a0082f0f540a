"""`simulate` as tests call it: each choice of a run by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cape.simulation import simulate as simulation
from cape.simulation.run_loop import RunOptions
from cape.simulation.ways import FindWay, find_way


def simulate(directory: Path, *, find_way: FindWay = find_way, **choices: Any) -> Path:
    return simulation.simulate(directory, RunOptions(**choices), find_way)
