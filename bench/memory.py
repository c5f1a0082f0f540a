"""Peak memory of one site: its largest subject and the reduced data, for any number of subjects.

Runs `join` of one site in a new process per size, with 1, 2 and 4 times the subjects, and prints
the peak above a process that only imported everything.  Then the reduced data are taken off: what
is left is one subject at work, and must not grow.

    python bench/memory.py --grid 6 --timepoints 120 --subjects 8
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COPIES = 2.0
"""Times that `join` holds the reduced data: the subjects, and the array they are stacked into."""
GROWTH = 1.15
"""Allowed growth of what is left when the subjects are doubled twice."""


def peak_mb() -> float:
    """Return the peak resident memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(folder: Path, settings: dict[str, Any]) -> None:
    """Answer `join` as COINSTAC would have it, and print peaks."""
    import nibabel  # noqa: F401 - part of the base, not of a subject
    import numpy as np

    from cape.computations import load
    from cape.drivers import coinstac

    config = load(coinstac.PRODUCT).config.from_input(settings)
    np.linalg.eigh(np.eye(400))
    base = peak_mb()
    places = {name: str(folder / "work" / name) for name in ("output", "cache", "transfer")}
    state = {
        "clientId": "local0",
        "iteration": 1,
        "baseDirectory": str(folder / "data" / "local0"),
        **{f"{name}Directory": place for name, place in places.items()},
    }
    answer = coinstac.run("local", {"input": settings, "cache": {}, "state": state})
    card = answer["output"]["body"]
    memo = sum(p.stat().st_size for p in Path(places["cache"]).iterdir()) / 2**20
    print(json.dumps({
        "base": base, "peak": peak_mb(), "reduced": memo, "subjects": card["n_subjects"],
        "features": card["space"]["n_features"], "kind": config.feature_space,
    }))  # fmt: skip


def measured(
    folder: Path, settings: dict[str, Any], copies: int, n_subjects: int
) -> dict[str, Any]:
    """Return the figures of a site with that many subjects, the first of those made."""
    place = folder / f"x{copies}"
    target = place / "data" / "local0"
    target.mkdir(parents=True)
    made = folder / "made" / "local0"
    for file in sorted(made.iterdir()):
        if file.name.startswith("sub-") and int(file.name[4:].split("_")[0]) > n_subjects * copies:
            continue
        os.link(file, target / file.name)
    command = [sys.executable, __file__, "--child", str(place), "--settings", json.dumps(settings)]
    environment = {**os.environ, "CAPE_SITE_POLICY": str(folder / "policy.toml")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    shutil.rmtree(place)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Make the data, measure, print ratios; exit 1 if memory grows with the number of subjects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=int, default=6)
    parser.add_argument("--timepoints", type=int, default=300)
    parser.add_argument("--subjects", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--settings")
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, json.loads(asked.settings))
        return
    with tempfile.TemporaryDirectory() as name:
        rows = rows_of(Path(name), asked)
    voxels = rows[0]["features"] * asked.timepoints * 4 / 2**20
    for row in rows:
        row["left"] = row["peak"] - row["base"] - COPIES * row["reduced"]
        row["subject_mb"] = voxels
    growth = rows[-1]["left"] / rows[0]["left"]
    if asked.json:
        print(json.dumps({"rows": rows, "growth": growth}))
    else:
        print("subjects  peak MB  above base  reduced MB  left MB  left over one subject  ratio")
        for row in rows:
            print(
                f"{row['subjects']:8d} {row['peak']:8.0f} {row['peak'] - row['base']:11.1f} "
                f"{row['reduced']:11.1f} {row['left']:8.1f} {row['left'] / voxels:22.2f} "
                f"{row['left'] / rows[0]['left']:6.2f}"
            )
        print(f"one subject as float32 in the mask: {voxels:.1f} MB")
    if growth > GROWTH:
        sys.exit(f"memory grows with the number of subjects: {growth:.2f} times")


def rows_of(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures with 1, 2 and 4 times the subjects."""
    from cape.drivers.synth import write_consortium

    write_consortium(
        folder / "made", preset="brain", n_sites=1, n_subjects=4 * asked.subjects, site_sizes=(),
        n_timepoints=asked.timepoints, grid_mm=asked.grid, n_networks=0, tr=2.0, seed=0,
    )  # fmt: skip
    settings: dict[str, Any] = {
        "epsilon": 8.0, "delta": 1e-5, "mask": f"MNI152-{asked.grid}mm", "n_components": 6,
        "n_basis": 400, "min_sites": 2, "tr": 2.0, "standardize": "demean",
        "accept_low_quality": True,
    }  # fmt: skip
    (folder / "policy.toml").write_text("min_subjects = 1\n")
    return [measured(folder, settings, copies, asked.subjects) for copies in (1, 2, 4)]


if __name__ == "__main__":
    main()
