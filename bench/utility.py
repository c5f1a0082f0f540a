"""Quality of the maps at a given size and budget, on the public generator.

The whole protocol runs in memory: real secure sums with zero-sum masks, exact integers and exact
discrete Gaussian noise, at the collusion-aware default.  Data come from the generator in its public
basis; nothing is cached between seeds.

    python bench/utility.py --preset paper --subjects 1024 --epsilon 1 --seeds 0,1,2 --json

``--epsilon inf`` runs without noise.  ``--rows FILE`` appends a row a seed, ``--table FILE`` prints
the table of such rows: q of every seed (* where the run was not confirmed), and the mean map r.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from cape.algorithms.estimators import Data
from cape.algorithms.scores import isi, match_maps
from cape.computations import load
from cape.lab.synthetic.generators import PRESETS, Study, generate
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy

NOISE_SEED = 7_000_000
"""Added to the data seed: the noise is another stream than the data."""


@dataclass(frozen=True)
class BlockSource:
    """Subjects first..last of an image study, in the coordinates of the public cosine basis."""

    study: Study
    data: Data
    first: int
    last: int

    @property
    def space(self) -> FeatureSpace:
        return FeatureSpace.of_matrix(len(self.study.A))

    @property
    def n_subjects(self) -> int:
        return self.last - self.first

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        for m in range(self.first, self.last):
            yield f"{m:04d}", self.data[m, :n_basis]


def settings(arguments: argparse.Namespace, study: Study) -> dict[str, object]:
    """Return the settings of a run; everything not named here is the shipped default."""
    D, d = study.B.shape
    side = math.isqrt(D)
    # The cosine basis of the program has the columns of the study's, in the same order.
    chosen: dict[str, object] = {
        "feature_space": "matrix",
        "image_shape": f"{side},{side}",
        "basis": "dct",
        "n_basis": d,
        "n_components": study.A.shape[1],
        "max_features": 1000,
        "min_sites": min(3, arguments.sites),
        "n_sites": arguments.sites,
        "accept_low_quality": True,
    }
    if math.isinf(arguments.epsilon):
        chosen["private"] = False
    else:
        chosen |= {"epsilon": arguments.epsilon, "delta": arguments.delta}
    for text in arguments.set:
        name, _, value = text.partition("=")
        chosen[name] = value
    return chosen


def run(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Make the data of one seed, run the protocol, compare with the planted maps."""
    began = time.monotonic()
    study = generate(
        PRESETS[arguments.preset],
        n_subjects=arguments.subjects,
        n_components=arguments.components,
        seed=seed,
    )
    data = study.subjects()
    # What was planted stays out of the peak: nothing but the maps is compared.
    study = replace(study, S=study.S[:0].copy())
    made, cpu = time.monotonic(), time.process_time()
    edges = np.linspace(0, arguments.subjects, arguments.sites + 1).astype(int)
    sources = {
        f"local{s}": BlockSource(study=study, data=data, first=int(a), last=int(b))
        for s, (a, b) in enumerate(pairwise(edges))
    }
    computation = load("capedjica")
    config = computation.config.from_input(settings(arguments, study))
    policy = SitePolicy.of_simulation(simulation_seed=NOISE_SEED + seed)
    link = MemoryTransport(computation, config, sources, policy, None)
    run_to_end(link, None)
    cpu = time.process_time() - cpu
    outcome = link.outcome
    assert isinstance(outcome, IcaOutcome)
    square = outcome.W_total.shape[0] == study.A.shape[1]
    said = outcome.verdict
    return {
        "seed": seed,
        "q_ngi": float(isi(outcome.W_total @ study.A)) if square else None,
        "map_correlation": float(match_maps(outcome.A, study.A).mean),
        "status": outcome.status,
        "gate": said.gate if said else None,
        "curvature": said.curvature if said else None,
        "z": said.z if said else None,
        "overlap": link._state.model.subspace.overlap,
        "n_components": int(outcome.A.shape[1]),
        "seconds_data": made - began,
        "seconds": time.monotonic() - began,
        "cpu_seconds": cpu,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line for every size and budget, with both presets."""

    def short(number: float, digits: int) -> str:
        return f"{number:.{digits}f}".lstrip("0")

    lines = ["| M, epsilon, R | `paper` | `realistic` |", "|---|---|---|"]
    sizes = dict.fromkeys((row["subjects"], row["epsilon"], row["components"]) for row in rows)
    for M, epsilon, R in sizes:
        cells = []
        for preset in ("paper", "realistic"):
            own = [
                row for row in rows
                if (row["preset"], row["subjects"], row["epsilon"], row["components"])
                == (preset, M, epsilon, R)
            ]  # fmt: skip
            q = " ".join(
                short(row["q_ngi"], 3) + "*" * (row["status"] != "converged") for row in own
            )
            r = short(float(np.mean([row["map_correlation"] for row in own])), 2) if own else ""
            cells.append(f"{q}, {r}" if own else "not run")
        lines.append(
            f"| {M}, {short(epsilon, 3).rstrip('0').rstrip('.')}, {R} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=("paper", "realistic"), default="paper")
    parser.add_argument("--subjects", type=int, default=1024)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=Path, help="a file that gets one row a seed")
    parser.add_argument("--table", type=Path, help="rows that were measured before")
    parser.add_argument("--quick", action="store_true", help="64 subjects, 5 maps, one seed")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.subjects, arguments.components, arguments.seeds = 64, 5, "0"
    if arguments.table:
        text = arguments.table.read_text(encoding="utf-8")
        print(table([json.loads(row) for row in text.splitlines()]))
        return
    per_seed = [run(arguments, int(text)) for text in arguments.seeds.split(",")]
    if arguments.rows:
        size = {name: getattr(arguments, name) for name in ("preset", "subjects", "epsilon")}
        size["components"] = arguments.components
        with arguments.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(size | row) + "\n" for row in per_seed)
    found = [row["q_ngi"] for row in per_seed]
    document = {
        "q_ngi": float(np.mean(found)) if None not in found else None,
        "map_correlation": float(np.mean([row["map_correlation"] for row in per_seed])),
        "per_seed": per_seed,
        "seconds": sum(row["seconds"] for row in per_seed),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if arguments.json:
        print(json.dumps(document))
        return
    for row in per_seed:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    print(f"q_ngi {document['q_ngi']}, map correlation {document['map_correlation']:.4f}")


if __name__ == "__main__":
    main()
