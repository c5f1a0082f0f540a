"""Verdicts and forecasts against runs with planted maps: false yes, false no.

    python bench/verdicts.py --seed 8101 --g 120,300 --json rows.jsonl
    python bench/verdicts.py --seed 8101 --paired-with ../older-tree --json rows.jsonl
    python bench/verdicts.py --components 3,5,10,30 --g .6u,1.2u --json rows.jsonl
    python bench/verdicts.py --table rows.jsonl

Whole private runs in memory (`bench/variants.py`: four sites, exact integers and noise, 128
subjects and 100 directions unless said).  A map is good with |r| >= .7 to a planted map.  False
yes: a confirmed map with |r| < .5 to all of them, or any confirmed map where nothing can be
separated; one that lies in the planted motion or drift (|r| >= .7 with its span), which all people
have in common, is counted apart.  False no: a good map that is not confirmed.  ``--paired-with``:
another tree runs on the same subjects with the same seed of the noise.  u is the G from which nine
of ten sets of focal maps come back.  The last table is `cape budget` against the runs: what it says
before, and how many runs confirmed a map.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

import variants
from cape.algorithms.basis import dct_image
from cape.errors import ConfigError
from cape.forecast.temporal import TemporalRule, likely_g
from cape.lab.synthetic.differences import random_fields
from cape.lab.synthetic.generators import blob_maps, garch_sources
from cape.lab.synthetic.presets import AUTOCORRELATION, PRESETS, STATIONARY
from variants import EDGE, Subjects

N_TIMES = 200
NOISE = 0.5  # trace of the noise over that of the signal
PUBLIC = 0.4  # share of the variance that motion or drift has where there is nothing else
GOOD, BAD = 0.7, 0.5
# Confirmed by words: of older trees the run alone was judged at small budgets
YES = ("confirmed", "run confirmed")

# -- subjects --------------------------------------------------------------------------------------


def focal(rng: np.random.Generator, R: int) -> np.ndarray:
    return blob_maps(rng, EDGE, R, PRESETS["realistic"])


def dense(rng: np.random.Generator, R: int) -> np.ndarray:
    return random_fields(rng, EDGE, R)


def courses(rng: np.random.Generator, M: int, R: int, *, gaussian: bool) -> np.ndarray:
    alpha = STATIONARY if gaussian else (0.15, 0.30)
    return garch_sources(rng, M, R, N_TIMES, ar=AUTOCORRELATION, alpha=alpha)


def observed(rng: np.random.Generator, A: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return noise on maps (D, R), or on each subject's own (M, D, R), with courses (M, R, T)."""
    signal = np.asarray((dct_image((EDGE, EDGE), variants.D).T @ A) @ S, dtype=np.float32)
    power = float(np.mean(np.sum(A**2, axis=-2))) * S.shape[1] / (EDGE * EDGE)
    noise = rng.standard_normal(signal.shape, dtype=np.float32)
    return signal + np.float32(np.sqrt(NOISE * power)) * noise


def slow(rng: np.random.Generator, M: int, count: int) -> np.ndarray:
    walk = np.cumsum(rng.standard_normal((M, count, N_TIMES)), axis=2)
    walk -= walk.mean(axis=2, keepdims=True)
    return np.asarray(walk / walk.std(axis=2, keepdims=True))


def motion(rng: np.random.Generator, M: int) -> tuple[np.ndarray, np.ndarray]:
    """Return six common fields and their courses: a head that moves, slowly and in jerks."""
    moved = slow(rng, M, 6)
    jerks = rng.random((M, 1, N_TIMES)) < 0.02
    return dense(rng, 6), moved + jerks * 5.0 * rng.standard_normal((M, 6, N_TIMES))


def drift(rng: np.random.Generator, M: int) -> tuple[np.ndarray, np.ndarray]:
    """Return five common fields whose courses are random walks."""
    return dense(rng, 5), slow(rng, M, 5)


def with_artefact(
    rng: np.random.Generator, data: np.ndarray, fields: np.ndarray, S: np.ndarray, share: float
) -> np.ndarray:
    added = np.asarray((dct_image((EDGE, EDGE), variants.D).T @ fields) @ S, dtype=np.float32)
    own, theirs = (float(np.mean(np.sum(part**2, axis=1))) for part in (data, added))
    return data + added * np.float32(np.sqrt(share / (1.0 - share) * own / theirs))


def common(make: Callable[..., np.ndarray], *, gaussian: bool = False, times: float = 1.0) -> Any:
    """Return a kind of study: networks of one shape, `times` R of them."""

    def subjects(rng: np.random.Generator, M: int, R: int, seed: int) -> Subjects:
        n = max(1, round(times * R))
        A = make(rng, n)
        S = courses(rng, M, n, gaussian=gaussian)
        return Subjects(observed(rng, A, S), np.full(M, N_TIMES), A)

    return subjects


def own_maps(rng: np.random.Generator, M: int, R: int, seed: int) -> Subjects:
    A = np.stack([focal(rng, R) for _ in range(M)])
    S = courses(rng, M, R, gaussian=False)
    return Subjects(observed(rng, A, S), np.full(M, N_TIMES), None)


def half_own(rng: np.random.Generator, M: int, R: int, seed: int) -> Subjects:
    shared = R // 2
    A = np.stack([focal(rng, R) for _ in range(M)])
    A[:, :, :shared] = A[0, :, :shared]
    S = courses(rng, M, R, gaussian=False)
    return Subjects(observed(rng, A, S), np.full(M, N_TIMES), A[0, :, :shared])


def moved(artefact: Callable[..., Any], *, networks: bool) -> Any:
    def subjects(rng: np.random.Generator, M: int, R: int, seed: int) -> Subjects:
        if networks:
            made = common(focal)(rng, M, R, seed)
            data, truth, share = made.data, made.truth, 0.2
        else:
            data, truth = variants.noise(M, seed, smooth=True, n_times=N_TIMES), None
            share = PUBLIC
        fields, S = artefact(rng, M)
        data = with_artefact(rng, data, fields, S, share)
        data = np.asarray(data, dtype=np.float32)
        return Subjects(data, np.full(M, N_TIMES), truth, fields if networks else None)

    return subjects


def smooth(rng: np.random.Generator, M: int, R: int, seed: int) -> Subjects:
    data = variants.noise(M, seed, smooth=True, n_times=N_TIMES)
    return Subjects(data, np.full(M, N_TIMES), None)


KINDS: dict[str, Any] = {
    "blob": common(focal),
    "garchdense": common(dense),
    "fewer": common(focal, times=0.6),
    "more": common(focal, times=1.5),
    "motion": moved(motion, networks=True),
    "drift": moved(drift, networks=True),
    "halfown": half_own,
    "ownmaps": own_maps,
    "gaussblob": common(focal, gaussian=True),
    "gaussdense": common(dense, gaussian=True),
    "motionnull": moved(motion, networks=False),
    "driftnull": moved(drift, networks=False),
    "smooth": smooth,
}
# Presets of the synthetic package beside them
PLAIN = ("paper", "realistic", "fields", "jitter")
# Nothing that time could separate, or nothing that people share
NULLS = ("ownmaps", "gaussblob", "gaussdense", "motionnull", "driftnull", "smooth")
FOCAL = ("paper", "realistic", "blob")


def subjects_of(name: str, M: int, R: int, seed: int) -> Subjects:
    if name in PLAIN:
        return variants.subjects_of(name, M, R, seed)
    place = list(KINDS).index(name)
    made: Subjects = KINDS[name](np.random.default_rng([9000, seed, place]), M, R, seed)
    return made


# -- what the rows say -----------------------------------------------------------------------------


def counted(row: dict[str, Any]) -> dict[str, int]:
    """Return good maps, confirmed ones, false yes and false no of a run."""
    null = row["preset"] in NULLS
    nearest = np.array(row["nearest"] or [0.0] * row["n_components"])
    words = row["components"] or ()
    yes = np.array([word in YES for word in words] or [False] * len(nearest))
    good = (nearest >= GOOD) & (not null)
    wrong = yes & (null | (nearest < BAD))
    artefact = wrong & (np.array(row["artefact"] or [0.0] * len(nearest)) >= GOOD)
    return {
        "good": int(good.sum()),
        "confirmed": int(yes.sum()),
        "artefact": int(artefact.sum()),
        "false_yes": int((wrong & ~artefact).sum()),
        "false_no": int((good & ~yes).sum()),
    }


def total(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    sums = dict.fromkeys(("runs", "good", "confirmed", "artefact", "false_yes", "false_no"), 0)
    for row in rows:
        sums["runs"] += 1
        for name, value in counted(row).items():
            sums[name] += value
    return sums


def totals(rows: list[dict[str, Any]]) -> str:
    """Return counts by kind, and of all kinds with and without something to find."""
    kinds = list(dict.fromkeys(row["preset"] for row in rows))
    trees = sorted({row["tree"] for row in rows}, reverse=True)
    groups = {kind: [row for row in rows if row["preset"] == kind] for kind in kinds}
    groups["all with networks"] = [row for row in rows if row["preset"] not in NULLS]
    groups["all nulls"] = [row for row in rows if row["preset"] in NULLS]
    lines = [
        "| kind | tree | runs | good maps | confirmed | in an artefact | false yes | false no |",
        "|---" * 8 + "|",
    ]
    for name, group in groups.items():
        for tree in trees:
            cells = total(row for row in group if row["tree"] == tree).values()
            lines.append(f"| {name} | {tree} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def forecasts(rows: list[dict[str, Any]]) -> str:
    """Return what `cape budget` says of focal maps, and how many such runs confirmed a map."""
    lines = ["| answer | runs | with a confirmed map |", "|---" * 3 + "|"]
    own = [row for row in rows if row["tree"] == "this" and row["preset"] in FOCAL]
    for answer in ("no", "perhaps", "yes"):
        said = [r for r in own if TemporalRule(n_components=r["R"]).answer(r["g"]) == answer]
        found = sum(counted(row)["confirmed"] > 0 for row in said)
        lines.append(f"| {answer} | {len(said)} | {found} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join((*PLAIN, *KINDS)))
    parser.add_argument("--seed", default="0", help="one or more, with commas")
    parser.add_argument("--components", default="20", help="R that is asked for")
    parser.add_argument("--g", default="120", help="G, or parts of u(R) such as 1.2u")
    parser.add_argument("--subjects", type=int, default=128)
    parser.add_argument("--paired-with", type=Path, help="the root of another tree of cape")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path, help="a file that gets one row a line, as they come")
    parser.add_argument("--table", type=Path, nargs="+", help="rows that were measured before")
    arguments = parser.parse_args()
    if arguments.table:
        lines = [line for path in arguments.table for line in path.read_text("utf-8").splitlines()]
        rows = [json.loads(line) for line in lines]
        print(totals(rows), forecasts(rows), sep="\n\n")
        return
    trees = {"this": variants.HERE}
    if arguments.paired_with:
        trees = {"other": arguments.paired_with.resolve(), **trees}
    rows = []
    for R in map(int, arguments.components.split(",")):
        asked = argparse.Namespace(**{**vars(arguments), "components": R})
        for seed in map(int, arguments.seed.split(",")):
            for kind in arguments.kinds.split(","):
                try:
                    made = subjects_of(kind, arguments.subjects, R, seed)
                except ConfigError as err:  # so many maps find no room
                    print(kind, R, err, file=sys.stderr, flush=True)
                    continue
                for text in arguments.g.split(","):
                    g = float(text[:-1]) * likely_g(R) if text[-1] == "u" else float(text)
                    for row in variants.measure(kind, g, seed, 0, asked, trees, made):
                        rows.append({"R": R, **row})
                        shown = ("preset", "R", "g", "seed", "tree", "gate")
                        print(*(rows[-1][name] for name in shown), counted(rows[-1]), flush=True)
                        if arguments.json:
                            with arguments.json.open("a", encoding="utf-8") as file:
                                file.write(json.dumps(rows[-1]) + "\n")
    print(totals(rows), forecasts(rows), sep="\n\n")


if __name__ == "__main__":
    main()
