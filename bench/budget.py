"""Does the rule of `cape budget` agree with what runs give?  Measures q_ngi and compares.

    python bench/budget.py --seeds 641 --out bench/measured/budget.json
    python bench/budget.py --compare bench/measured/budget.json

Every row is one whole run of `bench/utility.py` (20 components, 4 sites, one assumed colluder, real
secure sums and noise) at one number of subjects and one epsilon; the rule is that of
``cape.budget``.  Wrong is: "yes" with q >= 0.1, or "no" with q < 0.08.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import cape
import utility

SUBJECTS = (64, 256, 1024)
EPSILONS = (1.0, 4.0)
SITES, COMPONENTS, DELTA = 4, 20, 1e-5
IMAGES = {"feature_space": "matrix", "image_shape": "30,30", "basis": "dct", "n_basis": 100}
GOOD, BAD = 0.08, 0.1


def measure(preset: str, subjects: int, epsilon: float, seeds: list[int]) -> dict[str, Any]:
    arguments = argparse.Namespace(
        preset=preset,
        subjects=subjects,
        sites=SITES,
        components=COMPONENTS,
        epsilon=epsilon,
        delta=DELTA,
        set=[],
    )
    found = [utility.run(arguments, seed)["q_ngi"] for seed in seeds]
    return {
        "preset": preset, "subjects": subjects, "epsilon": epsilon, "seeds": seeds,
        "q_ngi": sum(found) / len(found),
    }  # fmt: skip


def compare(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with what the rule says of it, and whether that is wrong."""
    plan = cape.budget(
        subjects=row["subjects"], sites=SITES, epsilon=row["epsilon"], delta=DELTA,
        components=COMPONENTS, settings=IMAGES,
    )  # fmt: skip
    says = plan.advice.answer
    wrong = (says == "yes" and row["q_ngi"] >= BAD) or (says == "no" and row["q_ngi"] < GOOD)
    return {**row, "g": plan.verdict.g, "says": says, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="641")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, help="a table that was measured before")
    arguments = parser.parse_args()
    if arguments.compare:
        rows = json.loads(arguments.compare.read_text(encoding="utf-8"))
    else:
        seeds = [int(text) for text in arguments.seeds.split(",")]
        rows = [
            measure(preset, subjects, epsilon, seeds)
            for preset in ("paper", "realistic")
            for subjects in SUBJECTS
            for epsilon in EPSILONS
        ]
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    judged = [compare(row) for row in rows]
    for row in judged:
        size = f"{row['preset']:10} M {row['subjects']:5} epsilon {row['epsilon']:g}"
        print(
            f"{size}: G {row['g']:4.0f}, q {row['q_ngi']:.3f}, rule says {row['says']}"
            f"{'  WRONG' if row['wrong'] else ''}"
        )
    raise SystemExit(any(row["wrong"] for row in judged))


if __name__ == "__main__":
    main()
