"""Claimed against true: what `expected_r` and "converged" were worth in runs with planted maps.

    python bench/reliability.py bench/measured/variants.jsonl

Reads rows of `bench/variants.py`.  A claim is the expected_r of one map, true its |r| with the
planted map that it is matched with (0 without one).  Good is a run with q below .05.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
# A claim above HIGH with a true r below LOW is a wrong one.
HIGH, LOW = 0.7, 0.4
GOOD, BAD = 0.05, 0.1
# Nothing to separate in time: "converged" would be wrong.
NOTHING = ("gaussian", "gaussian-fields", "smooth-noise", "white-noise")


def read(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["tree"] == "this"]


def pairs(rows: Iterable[dict[str, Any]]) -> np.ndarray:
    """Return claimed and true r of every map that has both, shape (n, 2)."""
    made = [pair for row in rows for pair in zip(row["claimed"], row["true"], strict=False)]
    return np.array(made).reshape(-1, 2)


def reliability(rows: list[dict[str, Any]]) -> str:
    """Return the table of claims: how many, what they say, what is true."""
    confirmed = pairs(row for row in rows if row["status"] == "converged")
    others = pairs(row for row in rows if row["status"] != "converged")
    lines = ["| claimed r | maps of confirmed runs | mean claimed | mean true | maps of others | "
             "mean claimed | mean true |", "|---" * 7 + "|"]  # fmt: skip
    for low, high in pairwise(BINS):
        cells = []
        for found in (confirmed, others):
            part = found[(found[:, 0] >= low) & (found[:, 0] < high)]
            means = [f"{x:.2f}".lstrip("0") for x in part.mean(axis=0)] if len(part) else ["-"] * 2
            cells += [str(len(part)), *means]
        lines.append(f"| {low:.1f} to {min(high, 1.0):.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return how far claims are off: mean |claimed - true|, bias, and wrong ones a thousand."""
    found = pairs(rows)
    wrong = (found[:, 0] > HIGH) & (found[:, 1] < LOW)
    return {
        "maps": len(found),
        "mean_error": float(np.mean(np.abs(found[:, 0] - found[:, 1]))),
        "bias": float(np.mean(found[:, 0] - found[:, 1])),
        "wrong_per_thousand": 1000.0 * float(np.mean(wrong)),
    }


def verdicts(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return how many of how many runs are confirmed, by what they should be."""
    counts: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        said, q = row["status"] == "converged", row["q"]
        if row["preset"] in NOTHING:
            counts[f"nothing to separate, confirmed: {row['preset']}"].append(said)
        elif q is not None and q < GOOD and row["gate"] and row["g"] >= 170:
            counts["q < .05, gate open, G >= 170: confirmed"].append(said)
        elif q is not None and q < GOOD and not row["gate"] and row["g"] >= 240:
            counts["q < .05, gate shut, G >= 240: confirmed"].append(said)
        if said and row["preset"] not in NOTHING:
            counts["confirmed: q >= .1 or a component lost"].append(q is None or q >= BAD)
    return {name: (sum(values), len(values)) for name, values in sorted(counts.items())}


def summary(rows: list[dict[str, Any]]) -> str:
    """Return errors of the claims and counts of the verdicts as a table."""
    found = errors(rows)
    lines = [
        "| what | measured |", "|---|---|",
        f"| maps with a claim | {found['maps']:.0f} |",
        f"| mean of \\|claimed - true\\| | {found['mean_error']:.3f} |",
        f"| mean of claimed - true | {found['bias']:+.3f} |",
        f"| true r < {LOW}, claimed > {HIGH}, of 1,000 | {found['wrong_per_thousand']:.1f} |",
    ]  # fmt: skip
    lines += [f"| {name} | {said} of {of} |" for name, (said, of) in verdicts(rows).items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    rows = read(parser.parse_args().rows)
    print(reliability(rows))
    print(summary(rows))
    by_preset = defaultdict(list)
    for row in rows:
        by_preset[row["preset"]].append(row)
    for name, own in by_preset.items():
        if len(found := pairs(own)):
            claimed, true = found.mean(axis=0)
            print(f"{name}: claimed {claimed:.2f}, true {true:.2f}, {len(found)} maps")


if __name__ == "__main__":
    main()
