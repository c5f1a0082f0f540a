"""CPU seconds and peak memory of a whole comparison of many people, outcomes and sites.

    python bench/comparison_size.py --people 10000 --outcomes 500 --sites 50 [--quick]

All parties are one process, from the tables of sites to the pages; the noise is Gaussian integers
under masks, as in every run.  Making the tables is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import cape
from memory import peak_mb

QUESTION = {
    "variables": "dx control/SZ, age 18:90, sex F/M", "formula": "dx + age + sex", "public": "dx",
}  # fmt: skip


def write_tables(folder: Path, n_people: int, n_outcomes: int, n_sites: int) -> None:
    rng = np.random.default_rng(1)
    header = ["participant_id", "dx", "age", "sex", *(f"v{k}" for k in range(n_outcomes))]
    for s in range(n_sites):
        (folder / f"site{s:02}").mkdir(parents=True)
        with (folder / f"site{s:02}" / "participants.tsv").open("w", encoding="utf-8") as file:
            file.write("\t".join(header) + "\n")
            for m in range(n_people // n_sites):
                dx, sex = rng.choice(["control", "SZ"]), rng.choice(["F", "M"])
                values = (f"{value:.3f}" for value in rng.standard_normal(n_outcomes))
                cells = [f"sub-{s:02}{m:05}", dx, f"{rng.normal(45, 12):.1f}", sex, *values]
                file.write("\t".join(cells) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--outcomes", type=int, default=500)
    parser.add_argument("--sites", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="600 people, 20 outcomes, 3 sites")
    asked = parser.parse_args()
    if asked.quick:
        asked.people, asked.outcomes, asked.sites = 600, 20, 3
    outcomes = ", ".join(f"v{k} -2:2" for k in range(asked.outcomes))
    settings = {**QUESTION, "computation": "capecontrast", "outcomes": outcomes}
    with tempfile.TemporaryDirectory() as name:
        write_tables(Path(name) / "sites", asked.people, asked.outcomes, asked.sites)
        start = time.process_time()
        cape.simulate(
            Path(name) / "sites", out=Path(name) / "out", epsilon=4.0, delta=1e-6, settings=settings
        )
        spent = time.process_time() - start
    print(f"{asked.people} people, {asked.outcomes} outcomes, {asked.sites} sites: "
          f"{spent:.0f} s of CPU, {peak_mb():.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
