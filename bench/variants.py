"""The default over `paper`, `realistic` and `bench/presets.py`: q, map r, worst map, verdict.

    python bench/variants.py --g 110,170,240 --seeds 0 --json rows.json
    python bench/variants.py --presets jitter,fields --g 170 --paired-with ../other-tree --draws 6
    python bench/variants.py --table rows.json
    python bench/variants.py --quick

Whole private runs in memory: secure sums, exact integers and noise, four sites, epsilon chosen so
that G = M mu sqrt(h/S) is the one asked for.  Subjects are made once, in the coordinates of the
public basis of their images; with ``--paired-with`` another tree of `cape` runs on the same arrays
with the same seed of the noise.  ``smooth-noise`` and ``white-noise`` are subjects without signal.
A worst map is the one whose truth came back worst, by |r|; claimed is the mean of expected_r.  A
cell of the table: means of q and r, and how many runs say "converged"; behind it, where it was
measured, the other tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

EDGE, D = 30, 100
NOISE_SEED = 7_200_000
DRAW = 100_000  # from the seed of one draw of the noise to that of the next
NULL = ("smooth-noise", "white-noise")
# Sites and delta of every run
SITES, DELTA = 4, 1e-5
HERE = Path(__file__).resolve().parent.parent


# -- the run, in a process of its own: it may import another tree ----------------------------------


@dataclass(frozen=True)
class Reduced:
    """Subjects of one site as a site would have reduced them, (d, T_m) each."""

    space: Any
    subjects: list[np.ndarray]

    @property
    def n_subjects(self) -> int:
        return len(self.subjects)

    @property
    def tr_range(self) -> tuple[float, float]:
        return 0.0, 0.0

    def reduced(self, n_basis: int) -> Iterator[tuple[str, np.ndarray]]:
        for m, subject in enumerate(self.subjects):
            yield f"{m:04d}", subject[:n_basis]


def run(job: Path) -> None:
    """Run the protocol on the arrays of a job and write what it released beside it."""
    from cape.computations import load
    from cape.report import confidence
    from cape.simulation.memory import MemoryTransport
    from cape.simulation.run_loop import run_to_end
    from cape.site.policy import SitePolicy
    from cape.space.feature_space import FeatureSpace

    with np.load(job) as stored:
        data, lengths, chosen = stored["data"], stored["lengths"], json.loads(str(stored["chosen"]))
    seed = chosen.pop("seed")
    computation = load("capedjica")
    config = computation.config.from_input(chosen)
    space = FeatureSpace.of_matrix(EDGE * EDGE, (EDGE, EDGE))
    edges = np.linspace(0, len(data), SITES + 1).astype(int)
    sources = {
        f"local{s}": Reduced(space, [data[m, :, : lengths[m]] for m in range(a, b)])
        for s, (a, b) in enumerate(pairwise(edges))
    }
    policy = SitePolicy.of_simulation(simulation_seed=NOISE_SEED + seed)
    link = MemoryTransport(computation, config, sources, policy, None)
    run_to_end(link, None)
    outcome: Any = link.outcome
    verdict = outcome.verdict
    silent = confidence.why_not(outcome)
    claimed = [] if silent else confidence.bands(outcome)[1].tolist()
    facts = {
        "status": outcome.status,
        "claimed": claimed,
        "mean_claim": float(np.mean(claimed)) if claimed else None,
        "gate": None if verdict is None else verdict.gate,
        "c": None if verdict is None else verdict.curvature,
        "z": None if verdict is None else verdict.z,
        "components": None if verdict is None else verdict.components,
        "overlap": link._state.model.subspace.overlap,
    }
    np.savez(
        job.with_suffix(".done.npz"),
        W=outcome.W_total, A=outcome.A, facts=json.dumps(facts),
    )  # fmt: skip


# -- the studies and the scores --------------------------------------------------------------------


@dataclass(frozen=True)
class Subjects:
    """Subjects of a preset in the basis, and their truth; None where there is no signal."""

    data: np.ndarray  # (M, d, T) float32
    lengths: np.ndarray  # (M,)
    truth: np.ndarray | None  # (D, R)


def subjects_of(name: str, n_subjects: int, n_components: int, seed: int) -> Subjects:
    from presets import VariedStudy, study_of

    if name in NULL:
        data = noise(n_subjects, seed, smooth=name == "smooth-noise")
        return Subjects(data, np.full(n_subjects, data.shape[2]), None)
    study = study_of(name, n_subjects=n_subjects, seed=seed, n_components=n_components)
    data = study.subjects()
    lengths = np.full(n_subjects, data.shape[2])
    if isinstance(study, VariedStudy):
        lengths = study.lengths
    return Subjects(data, lengths, study.A)


def noise(n_subjects: int, seed: int, *, smooth: bool, n_times: int = 250) -> np.ndarray:
    """Return subjects (M, d, T) of Gaussian noise, AR(1) .4 in time, smooth in space or white."""
    from cape.algorithms.basis import dct_image
    from presets import random_fields

    rng = np.random.default_rng([seed, 8])
    data = rng.standard_normal((n_subjects, D, n_times), dtype=np.float32)
    for t in range(1, n_times):
        data[..., t] = 0.4 * data[..., t - 1] + np.sqrt(1 - 0.4**2) * data[..., t]
    if smooth:
        # As many fields as there are pixels span the law of all: a root of their covariance.
        fields = random_fields(np.random.default_rng(9), EDGE, 20 * EDGE * EDGE)
        moment = np.cov(dct_image((EDGE, EDGE), D).T @ fields)
        root = np.linalg.cholesky(moment + 1e-9 * np.trace(moment) * np.eye(D))
        data = np.asarray(root.astype(np.float32) @ data)
    return data


def epsilon_for(g: float, n_subjects: int) -> float:
    from cape.forecast.rule import RunSize

    size = RunSize(n_sites=SITES, n_subjects=n_subjects, noise_shares=SITES - 1, delta=DELTA)
    return size.epsilon_for(g)


def measure(
    name: str, g: float, seed: int, draw: int, arguments: argparse.Namespace, trees: dict[str, Path]
) -> list[dict[str, Any]]:
    """Return a row for every tree, from the same subjects."""
    made = subjects_of(name, arguments.subjects, arguments.components, seed)
    chosen: dict[str, object] = {
        "feature_space": "matrix", "image_shape": f"{EDGE},{EDGE}", "basis": "dct", "n_basis": D,
        "n_components": arguments.components, "epsilon": epsilon_for(g, arguments.subjects),
        "delta": DELTA, "accept_low_quality": True, "n_sites": SITES, "min_sites": 3,
        "seed": seed + DRAW * draw, "min_timepoints": 60,
        **dict(text.split("=", 1) for text in arguments.set),
    }  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.npz"
        np.savez(job, data=made.data, lengths=made.lengths, chosen=json.dumps(chosen))
        for tree, path in trees.items():
            began = time.monotonic()
            environment = {**os.environ, "PYTHONPATH": str(path)}
            command = [sys.executable, __file__, "--run", str(job)]
            subprocess.run(command, env=environment, check=True)
            with np.load(job.with_suffix(".done.npz")) as stored:
                facts = json.loads(str(stored["facts"]))
                score = scores(stored["W"], stored["A"], made.truth)
            rows.append(
                {"preset": name, "g": g, "seed": seed, "draw": draw, "tree": tree, **score, **facts,
                 "seconds": time.monotonic() - began}
            )  # fmt: skip
    return rows


def scores(W: np.ndarray, A: np.ndarray, truth: np.ndarray | None) -> dict[str, Any]:
    from cape.algorithms.scores import isi, match_maps

    if truth is None:
        none = {"q": None, "r": None, "worst": None, "true": []}
        return {**none, "n_components": A.shape[1]}
    matched = match_maps(A, truth)
    # In the order of the estimates, as claims are; a map that is nobody's has r 0.
    true = np.zeros(A.shape[1])
    true[matched.estimate] = np.abs(matched.correlation)
    found = np.zeros(truth.shape[1])
    found[matched.truth] = np.abs(matched.correlation)
    gain = W @ truth if W.shape[1] == len(truth) else None
    square = gain is not None and gain.shape[0] == gain.shape[1]
    return {
        "q": float(isi(gain)) if square else None,
        "r": float(found.mean()),
        "worst": float(found.min()),
        "true": true.tolist(),
        "n_components": A.shape[1],
    }


def line(row: dict[str, Any]) -> str:
    def number(name: str, value: float | None) -> str:
        return f"{name}    - " if value is None else f"{name} {value:.3f}"

    parts = (
        f"{row['preset']:16} G {row['g']:3.0f} seed {row['seed']} {row['tree']:5}",
        number("q", row["q"]), number("r", row["r"]), number("worst", row["worst"]),
        number("claimed", row["mean_claim"]), number("c", row["c"]), number("Z", row["z"]),
        row["status"],
    )  # fmt: skip
    return "  ".join(parts)


def table(rows: list[dict[str, Any]]) -> str:
    """Return means over the seeds of every preset and G, one cell for every tree."""

    def mean(of: list[dict[str, Any]], name: str) -> str:
        values = [row[name] for row in of if row[name] is not None]
        return f"{np.mean(values):.3f}".lstrip("0") if values else "-"

    budgets = sorted({row["g"] for row in rows})
    trees = sorted({row["tree"] for row in rows}, key=lambda tree: tree != "this")
    lines = [
        f"| preset | {' | '.join(f'G {g:.0f}' for g in budgets)} |",
        "|---" * (len(budgets) + 1) + "|",
    ]
    for name in dict.fromkeys(row["preset"] for row in rows):
        cells = []
        for g in budgets:
            parts = []
            for tree in trees:
                here = [r for r in rows if (r["preset"], r["g"], r["tree"]) == (name, g, tree)]
                if not here:
                    continue
                good = sum(row["status"] == "converged" for row in here)
                before = "" if tree == "this" else "before "
                parts.append(f"{before}{mean(here, 'q')}, {mean(here, 'r')}, {good}/{len(here)}")
            cells.append("; ".join(parts))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    from cape.lab.synthetic.generators import PRESETS
    from presets import VARIANTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--presets", default=",".join((*PRESETS, *VARIANTS, *NULL)))
    parser.add_argument("--g", default="110,170,240")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--draws", type=int, default=1, help="of the noise, on the same subjects")
    parser.add_argument("--subjects", type=int, default=128)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--paired-with", type=Path, help="the root of another tree of cape")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path, help="a file that gets one row a line, as they come")
    parser.add_argument("--table", type=Path, help="rows that were measured before")
    parser.add_argument("--quick", action="store_true", help="two presets, 64 subjects, 5 maps")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.presets, arguments.g = "realistic,white-noise", "170"
        arguments.subjects, arguments.components = 64, 5
    if arguments.table:
        text = arguments.table.read_text(encoding="utf-8")
        print(table([json.loads(row) for row in text.splitlines()]))
        return
    trees = {"this": HERE}
    if arguments.paired_with:
        trees = {"other": arguments.paired_with.resolve(), **trees}
    for seed in map(int, arguments.seeds.split(",")):
        for g in map(float, arguments.g.split(",")):
            for name in arguments.presets.split(","):
                for draw in range(arguments.draws):
                    for row in measure(name, g, seed, draw, arguments, trees):
                        print(line(row), flush=True)
                        if arguments.json:
                            with arguments.json.open("a", encoding="utf-8") as file:
                                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]))
    else:
        main()
