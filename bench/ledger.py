"""The ledger of all runs after ten years: CPU to read it and to ask for room, over its floor.

Ten runs a year at a site of 1,000 people, each of 50 releases, and a hundred that ended in `join`;
every tenth list has two people more and two fewer than the one before.  The floor parses the same
lines with `json` and takes their SHA-256.

    python bench/ledger.py [--years 10] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from fractions import Fraction

from cape.privacy.cost import Cost
from cape.privacy.spending import Charge, RunSpending
from cape.site.ledger_lines import charge_line, hold_line, next_line, read_lines, run_line

SECONDS, RATIO = 1.0, 20.0
"""Largest CPU time of ten years, and over the floor; exit 1 above either."""
PEOPLE, RELEASES, RUNS, JOINS = 1000, 50, 10, 100  # of a site; of a run; a year; a year


def person(m: int) -> str:
    return " ".join(sorted(hashlib.sha256(f"{m}.{k}".encode()).hexdigest()[:32] for k in range(3)))


def written(years: int) -> list[bytes]:
    """Return the lines that so many years leave."""
    lines: list[bytes] = []
    runs: list[RunSpending] = []  # the first of each list
    for k in range(years * (RUNS + JOINS)):
        first = 2 * (k // 10)
        run = RunSpending(
            run=f"{k:032x}", dataset="patients", computation="capedjica", date="2030-01-01",
            people=frozenset(map(person, range(first, first + PEOPLE))), epsilon=1.0, delta=1e-5,
            promised=True, key="k" * 32, owner="ann", question="q" * 32,
        )  # fmt: skip
        lines.append(run_line(run, lines, runs))
        if not runs or runs[-1].people != run.people:
            runs.append(run)
        if k % (RUNS + JOINS) < RUNS:
            mu2 = Fraction(2**40 + k, 2**55 + 1)
            lines.append(hold_line(run.run, Cost(mu2=mu2 * RELEASES * 2), (), lines))
            for round_ in range(1, RELEASES + 1):
                one = Charge.of(phase="iterate", round=round_, field="gradient", mu2=str(mu2))
                lines.append(charge_line(run.run, one, lines))
            ended = {"why": "finished", "by": "", "text": "", "date": "2030-01-01"}
            lines.append(next_line("end", lines, run=run.run, **ended))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one year")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines = written(1 if arguments.quick else arguments.years)
    began = time.process_time()
    for line in lines:
        json.loads(line)
        hashlib.sha256(line).hexdigest()
    floor = time.process_time() - began
    began = time.process_time()
    spending = read_lines(lines)
    spending.of(spending.runs[-1])
    ours = time.process_time() - began
    found = {
        "runs": len(spending.runs), "lines": len(lines), "MB": sum(map(len, lines)) / 2**20,
        "ms": 1e3 * ours, "floor_ms": 1e3 * floor, "ratio": ours / floor,
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(found))
    else:
        print(", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    return int(ours > SECONDS or ours / floor > RATIO)


if __name__ == "__main__":
    raise SystemExit(main())
