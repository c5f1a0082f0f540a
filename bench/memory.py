"""Peak memory of one site: its largest subject and the reduced data, for any number of subjects.

Runs `join` of one site in a new process per size, with 1, 2 and 4 times the subjects, and prints
the peak above a process that only imported everything.  It may grow by the reduced data that are
added, and by nothing else; the voxels of all subjects would be many times that.

    python bench/memory.py --grid 6 --timepoints 120 --subjects 8
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COPIES = 2.0
"""Times that `join` holds the reduced data: the subjects, and the array they are stacked into."""
SLACK = 1.1
"""The allocator's share of a peak."""


def peak_mb() -> float:
    """Return the peak resident memory of this process, MB; getrusage would count its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell the peak memory of a process")


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
    subject = rows[0]["features"] * asked.timepoints * 4 / 2**20
    first = rows[0]["peak"] - rows[0]["base"]
    for row in rows:
        row["above"] = row["peak"] - row["base"]
        row["allowed"] = SLACK * (first + COPIES * (row["reduced"] - rows[0]["reduced"]))
        row["ratio"] = row["above"] / first
    if asked.json:
        print(json.dumps({"rows": rows, "subject_mb": subject}))
    else:
        print("subjects  peak MB  above base  allowed  ratio  reduced MB  voxels of all MB")
        for row in rows:
            print(
                f"{row['subjects']:8d} {row['peak']:8.0f} {row['above']:11.1f} "
                f"{row['allowed']:8.1f} {row['ratio']:6.2f} {row['reduced']:11.1f} "
                f"{row['subjects'] * subject:17.1f}"
            )
        print(f"one subject: {subject:.1f} MB as float32 in the mask")
    if grown := [row["subjects"] for row in rows if row["above"] > row["allowed"]]:
        sys.exit(f"memory grows with the number of subjects: {grown}")


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
