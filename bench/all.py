"""One table of speed: measure, ours, floor or peer, ratio, target, met or not.

    python bench/all.py [--only kernels,round,ledger,reading,run,sites,subjects] [--quick] [--json]

Runs the other benches, each in processes of its own, and puts their ratios beside the targets.
Ratios are of CPU time in one run, so that other load can only blur them; BLAS has one thread.
Whatever was not measured is a line of its own, with the reason.  `--quick`: smaller sizes, which
say whether the table works, not whether a target is met; then a bench that fails ends this one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line; `ours` and `beside` in `unit`."""

    measure: str
    ours: float | None = None
    beside: float | None = None
    what: str = ""  # the floor or the peer
    unit: str = "ms CPU"
    ratio: float | None = None
    target: float | None = None
    least: float | None = None  # where a smaller ratio is none that was asked for
    why_not: str = ""  # empty if it was measured

    @property
    def met(self) -> str:
        if self.ratio is None or self.target is None:
            return "-"
        return "yes" if (self.least or 0.0) <= self.ratio <= self.target else "no"


def missing(measure: str, why: str, target: float | None = None) -> Row:
    return Row(measure=measure, why_not=why, target=target)


def of_bench(name: str, *words: str) -> Any:
    """Return the JSON that a bench prints; it may exit with 1 where it misses a target."""
    command = [sys.executable, str(HERE / f"{name}.py"), *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr.strip().splitlines()[-1][:200])
    return json.loads(done.stdout)


def kernels(arguments: argparse.Namespace) -> Iterator[Row]:
    """Whole rounds of the solvers over the two products that no round can do without."""
    found = of_bench("kernels", *(("--quick",) if arguments.quick else ()))
    targets = {
        "quasi-newton, volatility": 1.95,
        "quasi-newton, tanh": 1.5,
        "infomax, subject clip": 1.2,
        "infomax, time-point clip": 2.4,
    }
    for name, target in targets.items():
        row = found["rounds"][name]
        yield Row(
            measure=f"round of {name}", ours=row["ms"], beside=found["floor_ms"],
            what="two products", ratio=row["ratio_to_floor"], target=target,
        )  # fmt: skip


def round_start(arguments: argparse.Namespace) -> Iterator[Row]:
    """What a process of COINSTAC's first version costs in every round."""
    found = of_bench("round_start", *(("--quick",) if arguments.quick else ()))
    yield Row(
        measure="start of a round", ours=found["round_ms"], beside=found["numpy_ms"],
        what="import numpy", ratio=found["ratio"], target=1.8,
    )  # fmt: skip


def ledger(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every exchange of a site reads its ledger of all runs."""
    found = of_bench("ledger", *(("--quick",) if arguments.quick else ()))
    yield Row(
        measure="ledger of ten years", ours=found["ms"], beside=found["floor_ms"],
        what="json and SHA-256", ratio=found["ratio"], target=20.0,
    )  # fmt: skip
    yield Row(
        measure="the same", ours=found["ms"], beside=1000.0, what="allowed",
        ratio=found["ms"] / 1000.0, target=1.0,
    )  # fmt: skip


def reading(arguments: argparse.Namespace) -> Iterator[Row]:
    """Reading and resampling of one run of images."""
    found = of_bench("reading", *(("--quick",) if arguments.quick else ()))
    tasks, ratios = found["tasks"], found["ratios"]
    for peer, target in (("gunzip", 1.6), ("nilearn", 0.12), ("general", None)):
        yield Row(
            measure="run of 2 mm to 3 mm", ours=1e3 * tasks["read"]["s"],
            beside=1e3 * tasks[peer]["s"], what=peer, ratio=ratios[f"read / {peer}"], target=target,
        )  # fmt: skip
    yield Row(
        measure="its peak memory", ours=tasks["read"]["MB"], beside=200.0, what="allowed",
        unit="MB", ratio=tasks["read"]["MB"] / 200.0, target=1.0,
    )  # fmt: skip
    yield Row(
        measure="volume of 1 mm", what="the form for any grid", ratio=ratios["1 mm read / general"],
        target=0.1,
    )  # fmt: skip


def whole_run(arguments: argparse.Namespace) -> Iterator[Row]:
    """A private run in memory, noise, masks and accounting included, and picard on its data."""
    subjects = 128 if arguments.quick else 1024
    words = ("--subjects", str(subjects), "--epsilon", "1", "--seeds", "9201")
    ours = of_bench("utility", *words)["per_seed"][0]["cpu_seconds"]
    command = [sys.executable, __file__, "--picard", str(subjects)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if done.returncode:
        yield missing(f"private run of {subjects} subjects", done.stderr.strip()[-100:], 1.1)
        return
    peer = float(done.stdout)
    yield Row(
        measure=f"private run of {subjects} subjects", ours=1e3 * ours, beside=1e3 * peer,
        what="picard, to its tolerance", ratio=ours / peer, target=1.1,
    )  # fmt: skip


def picard_seconds(subjects: int) -> float:
    import numpy as np
    from picard import picard

    import kernels as bench

    stack = bench.whitened(subjects)
    flat = np.ascontiguousarray(stack.transpose(1, 0, 2).reshape(bench.R, -1), dtype=np.float64)
    began = time.process_time()
    picard(flat, whiten=False, centering=False, random_state=1)
    return time.process_time() - began


def cpu_of_run(n_sites: int, n_subjects: int) -> tuple[float, float]:
    """Return CPU seconds and peak MB of a process that makes subjects and plays a run."""
    words = ["--subjects", n_subjects, "--sites", n_sites, "--epsilon", 8, "--seeds", 1, "--json"]
    command = [sys.executable, str(HERE / "utility.py"), *map(str, words)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, after.ru_maxrss / 1024.0


def sites(arguments: argparse.Namespace) -> Iterator[Row]:
    """Many small sites in memory; imports and the making of subjects included."""
    few, many = (6, 12) if arguments.quick else (20, 50)
    at = {S: cpu_of_run(S, 4 * S)[0] for S in (few, many)}
    slope = math.log(at[many] / at[few]) / math.log(many / few)
    yield Row(
        measure=f"slope of CPU from {few} to {many} sites of 4", ours=1e3 * at[many],
        beside=1e3 * at[few], what=f"{few} sites", ratio=slope, target=0.9,
    )  # fmt: skip


def subjects(arguments: argparse.Namespace) -> Iterator[Row]:
    """Slope of time in the number of subjects."""
    few, many = (100, 200) if arguments.quick else (1000, 10_000)
    (low, _), (high, peak) = (cpu_of_run(4, M) for M in (few, many))
    yield Row(
        measure=f"slope of CPU from {few} to {many} subjects", ours=1e3 * high, beside=1e3 * low,
        what=f"{few} subjects", ratio=math.log(high / low) / math.log(many / few), target=1.1,
        least=0.9,
    )  # fmt: skip
    reduced = many * 100 * 250 * 4 / 2**20  # the preset's subjects, which the bench holds, too
    yield Row(
        measure=f"peak memory at {many} subjects, the bench's own data included", ours=peak,
        beside=reduced, what="reduced data", unit="MB", ratio=peak / reduced, target=2.5,
    )  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "kernels": kernels,
    "round": round_start,
    "ledger": ledger,
    "reading": reading,
    "run": whole_run,
    "sites": sites,
    "subjects": subjects,
}


def measured(arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.only.split(","):
        try:
            yield from PARTS[name](arguments)
        except (RuntimeError, subprocess.CalledProcessError) as err:
            if arguments.quick:
                raise
            yield missing(name, f"the bench failed: {err}")


def line(row: Row) -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    if row.why_not:
        return f"| {row.measure} | not measured: {row.why_not} | | | {number(row.target)} | - |"
    allowed = number(row.target) if row.least is None else f"{row.least} to {row.target}"
    beside = f"{number(row.beside)} ({row.what})" if row.what else "-"
    ours = f"{number(row.ours)} {row.unit}" if row.ours is not None else "-"
    cells = (row.measure, ours, beside, number(row.ratio), allowed, row.met)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picard", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.picard:
        print(picard_seconds(arguments.picard))
        return
    rows = measured(arguments)
    if arguments.json:
        print(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1))
        return
    print("| measure | ours | floor or peer | ratio | target | met |\n|---|---|---|---|---|---|")
    for row in rows:
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
