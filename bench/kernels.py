"""Cost of one round of each solver against its floor and against other ICA packages.

    python bench/kernels.py [--json] [--subjects 256] [--repeats 15] [--quick]

The floor of a round is its two unavoidable products, W X and Z Z' (R x N by N x R), on the same
arrays, in the same run, interleaved with what is compared; the same two products subject by
subject, in pieces that fit the cache, are shown beside it.  Ratios are of minima over the repeats,
which other load on the machine can only raise.  Set OPENBLAS_NUM_THREADS=1 before starting.

Packages are compared on the same data: picard per iteration (one run of many iterations less one
of few), mne's infomax per pass over the data.  An absent package is reported as absent.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.quasi_newton import QuasiNewton, Score
from cape.algorithms.whitening import LogEuclidean, reduce_subject, whiten
from cape.lab.synthetic.generators import PRESETS, generate
from cape.papers.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, SUBJECT_BOUND, Infomax
from cape.protocol.subject_views import map_stack, unit_trace

R = 20
PICARD = (5, 25)
MNE_PASSES = 4

Floats = npt.NDArray[np.floating]
Task = Callable[[], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """CPU milliseconds of one task."""

    minimum: float
    median: float


def whitened(n_subjects: int) -> npt.NDArray[np.float32]:
    """Return whitened subjects of the paper preset, shape (n_subjects, R, 250)."""
    study = generate(PRESETS["paper"], n_subjects=n_subjects, seed=1)
    stack = map_stack(study.subjects(), unit_trace)
    moment = np.einsum("mdt,met->de", stack[:64], stack[:64])
    V = np.linalg.eigh(moment.astype(np.float64))[1][:, -R:]
    reduced = np.stack([reduce_subject(V, Y, "none") for Y in stack])
    estimator = LogEuclidean(n_looks=1, clip=4.0, private=False)
    state = estimator.start(R)
    mean = estimator.query(state).answer(reduced).mean(axis=0)
    return whiten(estimator.step(state, mean, 0.0).U, reduced)


def round_of(estimator: QuasiNewton | Infomax, stack: npt.NDArray[np.float32]) -> Task:
    """Return one round without noise: ask all subjects, average, step."""
    state = estimator.start(R)

    def task() -> object:
        mean = estimator.query(state).answer(stack).sum(axis=0) / len(stack)
        return estimator.step(state, mean, 0.0)

    return task


def infomax(clip: Literal["subject", "time_point"]) -> Infomax:
    return Infomax(
        n_rounds=400,
        learning_rate=0.5,
        clip=clip,
        subject_bound=SUBJECT_BOUND,
        gradient_bound=GRADIENT_BOUND,
        bias_bound=BIAS_BOUND,
        private=True,
    )


def quasi_newton(score: Score) -> QuasiNewton:
    return QuasiNewton(
        n_rounds=40,
        clips=(0.35,),
        step_limit=0.8,
        alpha_first=2.0,
        alpha_last=0.3,
        private=True,
        score=score,
    )


def tasks(stack: npt.NDArray[np.float32]) -> dict[str, Task]:
    """Return everything that is timed, by name; the floors first."""
    W = np.eye(R, dtype=np.float32)
    flat = np.ascontiguousarray(stack.transpose(1, 0, 2).reshape(R, -1))
    apart = 16  # subjects per piece of the floor by subject: fits the cache

    def one_product() -> object:
        Z = W @ flat
        return Z @ Z.T

    def per_subject() -> object:
        total = np.zeros((R, R))
        for first in range(0, len(stack), apart):
            Z = W @ stack[first : first + apart]
            total += (Z @ Z.swapaxes(1, 2)).sum(axis=0)
        return total

    return {
        "floor": one_product,
        "floor by subject": per_subject,
        "infomax, subject clip": round_of(infomax("subject"), stack),
        "infomax, time-point clip": round_of(infomax("time_point"), stack),
        "quasi-newton, volatility": round_of(quasi_newton("volatility"), stack),
        "quasi-newton, tanh": round_of(quasi_newton("tanh"), stack),
    }


def interleaved(jobs: dict[str, Task], repeats: int) -> dict[str, Timing]:
    """Time all jobs in turn, `repeats` times, after one warm-up of each."""
    seen: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(repeats + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            if i:
                seen[name].append(1e3 * (time.process_time() - start))
    return {name: Timing(minimum=min(ms), median=float(np.median(ms))) for name, ms in seen.items()}


def picard_iteration(flat: Floats) -> float:
    """Return CPU ms per picard iteration, extended Infomax off, on whitened data."""
    from picard import picard

    def run(iterations: int) -> float:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picard(
                flat,
                ortho=False,
                extended=False,
                whiten=False,
                centering=False,
                tol=0.0,
                max_iter=iterations,
                w_init=np.eye(R),
            )
        return 1e3 * (time.process_time() - start)

    few, many = PICARD
    run(few)
    return min((run(many) - run(few)) / (many - few) for _ in range(3))


def mne_pass(flat: Floats) -> float:
    """Return CPU ms per pass of mne's infomax over the data (logistic, its own block size)."""
    import mne

    mne.set_log_level("ERROR")
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mne.preprocessing.infomax(
            flat.T, max_iter=MNE_PASSES, w_change=1e-30, extended=False, random_state=1
        )
    return 1e3 * (time.process_time() - start) / MNE_PASSES


def others(stack: npt.NDArray[np.float32]) -> dict[str, float | None]:
    """Return ms per pass of the other packages in their own precision; None when not installed."""
    flat = np.ascontiguousarray(stack.transpose(1, 0, 2).reshape(R, -1), dtype=np.float64)
    found: dict[str, float | None] = {}
    for name, measure in (("picard iteration", picard_iteration), ("mne infomax pass", mne_pass)):
        try:
            found[name] = measure(flat)
        except ImportError:
            found[name] = None
    return found


def measure(n_subjects: int, repeats: int) -> dict[str, object]:
    """Return all figures, ready for JSON."""
    stack = whitened(n_subjects)
    timings = interleaved(tasks(stack), repeats)
    floor = timings["floor"].minimum
    rivals = others(stack)
    rounds = {
        name: {
            "ms": round(t.minimum, 3),
            "median_ms": round(t.median, 3),
            "ratio_to_floor": round(t.minimum / floor, 3),
            **{
                f"ratio_to_{rival.replace(' ', '_')}": None if ms is None else t.minimum / ms
                for rival, ms in rivals.items()
            },
        }
        for name, t in timings.items()
    }
    return {
        "n_subjects": n_subjects,
        "n_samples": n_subjects * stack.shape[2],
        "n_components": R,
        "dtype": "float32",
        "repeats": repeats,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "floor_ms": floor,
        "rounds": rounds,
        "others_ms": rivals,
    }


def table(figures: dict[str, object]) -> str:
    """Return the figures as text."""
    lines = [f"{'one round':28s}{'ms':>9s}{'x floor':>9s}"]
    rounds = figures["rounds"]
    assert isinstance(rounds, dict)
    for name, row in rounds.items():
        lines.append(f"{name:28s}{row['ms']:9.2f}{row['ratio_to_floor']:9.2f}")
    rivals = figures["others_ms"]
    assert isinstance(rivals, dict)
    for name, ms in rivals.items():
        text = "not installed (pip install python-picard mne)" if ms is None else f"{ms:9.2f}"
        lines.append(f"{name:28s}{text}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--subjects", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="32 subjects, 3 repeats")
    chosen = parser.parse_args()
    size = (32, 3) if chosen.quick else (chosen.subjects, chosen.repeats)
    figures = measure(*size)
    print(json.dumps(figures, indent=2) if chosen.json else table(figures))


if __name__ == "__main__":
    main()
