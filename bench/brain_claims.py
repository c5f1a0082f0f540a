"""Whether the claims of spatial maps are right: `bench/brains.py --claims`.

Cohorts of 20 people, good ones and ones of which a part is replaced; the release at the level of
second moments (projectors, their mean, noise of the same deviation), all after it by the code of a
run.  "true": |r| above .5 with one of the 20 maps, without privacy, of 20 other people.

Synthetic people resemble real ones in what can be compared (`Resting`; the last table): it was
chosen by these moments alone, before any claim of such people was looked at.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cape import frozen
from cape.algorithms import left_right as lr
from cape.algorithms.bagging import bagged
from cape.algorithms.claims import Calibration, cohort, countable, predictors
from cape.algorithms.linalg import smat
from cape.algorithms.scores import match_maps
from cape.algorithms.spatial import SpatialIca, spatial_ica
from cape.computations import load
from cape.computations.ica import recipe
from cape.computations.ica.mirror import mirror_of, null_of
from cape.data.space import grid_of, mask_space
from cape.forecast.one_release import spatial_basis_size, spatial_components
from cape.lab.synthetic.brain import voxel_positions
from cape.lab.synthetic.resting import TwoSided, in_time, two_sided_study
from cape.protocol.wire import decode_document
from cape.settings.resolved import resolve
from cape.space.public_basis import public_basis

MASK, SCANS, NETWORKS = "MNI152-10mm", 148, 20
# People who resemble 40 resting adults: chosen by the table of moments, claims unseen
MANY, ONE_SIDED, UNEQUAL = 80, 0.1, 0.7  # networks, share on one side, lognormal sd of strength
MOVED_MM, DIFFER = 5.0, 1.2  # sd of a blob's place in a person, and of log strength
BLOB_MM, FIELD_MM, FIELD = (8.0, 12.0), 9.0, 0.4  # blobs; smooth noise and its share
COHORT, PEOPLE = 20, 40  # of one run, and to draw them from
LEVELS = (50.0, 100.0, 200.0, 400.0)
SHARES = (0.25, 0.5, 0.75)
WHITE, BLOCK_MM = 0.8, 30.0
KINDS = ("smooth 8 mm", "smooth 12 mm", "blocks moved")
NOISE = (*KINDS, "smooth 18 mm")
NOISE_RUNS = 1000
# Cohorts of mirror images: people of `two_sided_study`, truth planted; in no bin
ONE_SIDE, EACH_SIDE = "good, four networks on one side", "good, two networks on each side alone"
MOMENTS = ("statistic", "q", "stability", "once", "bagged")
BINS = np.linspace(0.0, 1.0, 11)

Person = Callable[[int], np.ndarray]  # cleaned voxels (D, T) of the m-th one


def config_of(**given: Any) -> Any:
    return load("capegica").config.from_input({"delta": 1e-5, "mask": MASK, **given})


SPACE = mask_space(config_of(epsilon=1.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """What a run at one G has in public."""

    g: float
    R: int
    basis: np.ndarray
    mirror: lr.Mirror
    null: lr.Null
    estimator: SpatialIca

    @property
    def noise_std(self) -> float:
        return math.sqrt(2.0 * self.R) / self.g

    def answers(self, people: list[np.ndarray]) -> np.ndarray:
        """Return what each person answers, (M, d (d + 1) / 2)."""
        d = self.basis.shape[1]
        Y = np.stack([self.basis.T @ X for X in people])
        return np.asarray(list(self.estimator.query(self.estimator.start(d)).answer(Y)))

    def released(self, answers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mean = answers.mean(axis=0)
        return smat(mean + self.noise_std * rng.standard_normal(mean.shape))

    def test(self, F: np.ndarray) -> lr.LeftRight:
        return lr.left_right(
            F, self.mirror.weighed, self.null,
            noise_std=self.noise_std, n_subjects=COHORT, n_components=self.R,
        )  # fmt: skip


def level(g: float) -> Level:
    R = spatial_components(g)
    d = spatial_basis_size(g, R)
    config = config_of(epsilon=1.0, n_components=R)
    mirror = mirror_of(config, SPACE, d)
    return Level(
        g=g,
        R=R,
        basis=public_basis(resolve(config), SPACE, d),
        mirror=mirror,
        null=null_of(config, SPACE, d, mirror, R),
        estimator=SpatialIca(n_components=R, private=True),
    )


# -- people ----------------------------------------------------------------------------------------


def clean(X: np.ndarray) -> np.ndarray:
    return lr._cleaned(np.asarray(X, dtype=float), global_signal=True)


@frozen.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Resting(TwoSided):
    """Many networks, few of them strong, and people who differ; chosen by moments of real ones."""

    strength: np.ndarray  # (R,): of each network in the group

    def subject(self, m: int, n_times: int) -> np.ndarray:
        rng, n = np.random.default_rng([self.seed, 2, m]), len(self.strength)
        maps = self._maps(self.centres + MOVED_MM * rng.standard_normal(self.centres.shape))
        loud = self.strength * np.exp(DIFFER * rng.standard_normal(n))
        power = float(np.mean(np.sum(self.maps**2, axis=1)) * np.mean(self.strength**2))
        noise = np.sqrt(FIELD * power) * self.field(rng, n_times)
        noise += np.sqrt(0.5 * power) * rng.standard_normal(noise.shape)
        signal = (maps * loud) @ in_time(rng.standard_normal((n, n_times)))
        return in_time(noise) + signal


def resting(seed: int) -> Resting:
    """Return a study of `MANY` networks of 1 to 4 blobs anywhere, and of their mirror images."""
    rng, grid = np.random.default_rng([seed, 1]), grid_of(SPACE)
    positions = voxel_positions(grid)
    right = positions[positions[:, 0] >= 0.0]
    blobs = []
    for k in range(MANY):
        for _ in range(int(rng.integers(1, 5))):
            place, width = right[rng.integers(len(right))], rng.uniform(*BLOB_MM)
            sides = (1.0, -1.0) if k >= round(ONE_SIDED * MANY) else (rng.choice((1.0, -1.0)),)
            blobs += [(place * (side, 1.0, 1.0), width, k) for side in sides]
    centres, widths, network = map(np.array, zip(*blobs, strict=True))
    return Resting(
        positions=positions, centres=centres, widths=widths, network=network, seed=seed,
        field=lr.voxel_fields(grid.inside, (10.0,) * 3, FIELD_MM), networks=True,
        strength=np.exp(UNEQUAL * np.random.default_rng([seed, 3]).standard_normal(MANY)),
    )  # fmt: skip


def planted(study: TwoSided) -> Person:
    return lambda m: clean(study.subject(m, SCANS))


def of_path(path: Path) -> list[np.ndarray]:
    """Return cleaned voxels of everybody in a folder, as a run without noise reads them."""
    from cape.data.pipeline import load_site

    config = config_of(private=False, n_components=NETWORKS)
    return [np.asarray(Y, dtype=float) for _, Y in load_site(path, {}, config, site="-")[1]]


def useless(kind: str, person: Person, seed: int) -> Person:
    """Return people who replace good ones; `person` gives those whose blocks change places."""
    if kind == "blocks moved":
        return lambda m: moved(person(m), np.random.default_rng([seed, 7, m]))
    sigma = float(kind.split()[1])
    draw = lr.voxel_fields(SPACE.labels() > 0, (10.0,) * 3, sigma)

    def smooth(m: int) -> np.ndarray:
        rng = np.random.default_rng([seed, int(sigma), m])
        X = draw(rng, SCANS)
        return clean(X + WHITE * rng.standard_normal(X.shape))

    return smooth


def moved(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Let blocks of 30 mm change places: smooth within, and networks of nobody else."""
    block = np.argwhere(SPACE.labels() > 0) // int(BLOCK_MM / 10.0)
    _, block = np.unique(block, axis=0, return_inverse=True)
    members = [np.flatnonzero(block.ravel() == b) for b in range(int(block.max()) + 1)]
    out = np.empty_like(X)
    for here, there in zip(members, rng.permutation(len(members)), strict=True):
        out[here] = X[np.resize(members[there], len(here))]
    return out


def each_side_alone(study: TwoSided) -> TwoSided:
    """Give two networks on one side a twin on the other, with a time course of its own."""
    last = int(study.network.max())
    keep = study.network <= last - 2
    twins = study.network > last - 4
    twins &= study.network <= last - 2
    return dataclasses.replace(
        study,
        centres=np.concatenate([study.centres[keep], study.centres[twins] * (-1.0, 1.0, 1.0)]),
        widths=np.concatenate([study.widths[keep], study.widths[twins]]),
        network=np.concatenate([study.network[keep], study.network[twins] + 2]),
    )


# -- one run ---------------------------------------------------------------------------------------


def unit(A: np.ndarray) -> np.ndarray:
    A = A - A.mean(axis=0)
    return A / np.linalg.norm(A, axis=0)


def claimed(
    at: Level, F: np.ndarray, truth: np.ndarray, rule: Calibration
) -> dict[str, Any] | None:
    """Return what a run with this release claims and what is true of it; None without claims."""
    test, R = at.test(F), at.R
    if test.z < lr.CLEAR_Z:
        return None
    q = cohort(F, test, noise_std=at.noise_std, n_subjects=COHORT, rank=R)
    recipe.CALIBRATED = dataclasses.replace(recipe.CALIBRATED, rule=rule)
    found = recipe.rotated(
        F, at.basis, R, noise_std=at.noise_std, mirror=at.mirror, test=test, q=q, rank=R,
        symmetry="auto", kind="mask", n_subjects=COHORT,
    )  # fmt: skip
    C, maps = found.directions, found.claims.maps
    A, B = at.basis @ C, at.basis
    known = predictors(A, C, at.mirror.J, stability=np.array(found.stability), q=q)
    r = np.abs(unit(A).T @ unit(truth)).max(axis=1)
    image_r = np.abs(unit(B @ (at.mirror.J @ C)).T @ unit(truth)).max(axis=1)
    once = bagged(F, B, R, noise_std=0.0, J=at.mirror.J).C
    return {
        "z": test.z, "q": q, "statistic": test.statistic,
        "numbers": known.T.tolist(), "size": float(np.log2(len(F) / 64)),
        "found": [m.found for m in maps], "strict": [m.strict for m in maps],
        "word": [m.word for m in maps], "sharp": [m.sharp for m in maps],
        "pair": [m.pair for m in maps], "r": r.tolist(), "image_r": image_r.tolist(),
        "stability": float(np.mean(found.stability)),
        "networks": len(countable(found.claims)), "settled": found.converged,
        "bagged": float(match_maps(A, truth).mean),
        "once": float(match_maps(B @ once, truth).mean),
    }  # fmt: skip


def runs(
    levels: list[Level], person: Person, seed: int, rule: Calibration,
    kinds: tuple[str, ...] = KINDS, truth: np.ndarray | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield runs of one group of people: good cohorts, and each kind and share of replaced ones."""
    rng = np.random.default_rng([seed, 5])
    pools = {"good": [person(m) for m in range(PEOPLE)]}
    for kind in kinds:
        replaced = useless(kind, person, seed)
        pools[kind] = [replaced(m) for m in range(COHORT)]
    mine, others = np.split(rng.permutation(PEOPLE), [COHORT])
    reference = without_privacy([pools["good"][m] for m in others]) if truth is None else truth
    for at in levels:
        answers = {kind: at.answers(people) for kind, people in pools.items()}
        cells = [("good", "good", 0.0)] * (2 if kinds else 1)
        cells += [(f"{share:.0%} {kind}", kind, share) for kind in kinds for share in SHARES]
        for name, kind, share in cells:
            n_bad = round(share * COHORT)
            chosen = answers["good"][rng.permutation(mine)[: COHORT - n_bad]]
            if n_bad:
                bad = answers[kind][rng.permutation(COHORT)[:n_bad]]
                chosen = np.concatenate([chosen, bad])
            row = claimed(at, at.released(chosen, rng), reference, rule)
            yield {"cohort": name, "share": share, "g": at.g, "seed": seed, **(row or {"z": None})}
        if kinds:
            F = at.released(answers["smooth 12 mm"], rng)
            bag = bagged(F, at.basis, at.R, noise_std=at.noise_std, J=at.mirror.J)
            r = float(match_maps(at.basis @ bag.C, reference).mean)
            yield {"r_of": at.g, "r": r}


def without_privacy(people: list[np.ndarray]) -> np.ndarray:
    """Return 20 maps of these people, from all voxels and without noise."""
    leading = [np.linalg.svd(X, full_matrices=False)[0][:, :NETWORKS] for X in people]
    V = np.linalg.svd(np.concatenate(leading, axis=1), full_matrices=False)[0][:, :NETWORKS]
    return V @ spatial_ica(V).mixing


def in_noise(
    levels: list[Level], person: Person, seed: int, rule: Calibration
) -> Iterator[dict[str, Any]]:
    """Yield runs of useless people alone: what they claim together, in how many runs."""
    rng = np.random.default_rng([seed, 6])
    truth = np.random.default_rng(0).standard_normal((SPACE.n_features, 2))
    for kind in NOISE:
        people = [useless(kind, person, seed)(m) for m in range(PEOPLE)]
        for at in levels:
            answers, networks, largest = at.answers(people), 0, -math.inf
            n = math.ceil(NOISE_RUNS / (len(NOISE) * len(levels)))
            for _ in range(n):
                F = at.released(answers[rng.permutation(len(people))[:COHORT]], rng)
                largest = max(largest, at.test(F).z)
                networks += (claimed(at, F, truth, rule) or {"networks": 0})["networks"]
            yield {"cohort": f"100% {kind}", "g": at.g, "runs": n, "networks": networks,
                   "largest_z": largest}  # fmt: skip


def noise_rows(seeds: list[int]) -> Iterator[dict[str, Any]]:
    levels, rule = [level(g) for g in LEVELS], rule_in(None)
    for seed in seeds:
        for row in in_noise(levels, planted(resting(seed)), seed, rule):
            print(json.dumps(row), file=sys.stderr, flush=True)
            yield {"seed": seed, **row}


# -- the tables ------------------------------------------------------------------------------------


def measure(seed: int, studies: int, people: Path | None, rule: Calibration) -> dict[str, Any]:
    levels, found = [level(g) for g in LEVELS], []
    given = of_path(people) if people else []
    if people and len(given) < PEOPLE:
        raise SystemExit(f"{people}: {len(given)} people; a run and its reference need {PEOPLE}")

    def person_of(k: int) -> Person:
        if not people:
            return planted(resting(k))
        chosen = np.random.default_rng([seed, k - seed]).permutation(len(given))
        return lambda m: given[chosen[m]]

    for k in range(seed, seed + studies):
        found += runs(levels, person_of(k), k, rule)
        if not people:
            simple = two_sided_study(grid_of(SPACE), NETWORKS, seed=k)
            for name, study in ((ONE_SIDE, simple), (EACH_SIDE, each_side_alone(simple))):
                for row in runs(levels, planted(study), k, rule, (), study.maps):
                    found.append({**row, "cohort": name})
        print(f"study {k}", file=sys.stderr, flush=True)
    beside = {g: [row["r"] for row in found if row.get("r_of") == g] for g in LEVELS}
    found = [row for row in found if "cohort" in row]
    noise = list(in_noise(levels, person_of(seed), seed, rule))
    return {
        "what": "claims", "people": "synthetic" if people is None else str(people.name),
        "seed": seed, "studies": studies, "rows": tables(found, noise), "bins": reliability(found),
        "cohorts": cohorts(found), "mirror": mirrors(found), "moments": moments(found, beside),
        "runs": found,
    }  # fmt: skip


def tables(found: list[dict[str, Any]], noise: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each cohort and G: what was claimed of its maps, and what was true."""
    rows = []
    for name, g in dict.fromkeys((row["cohort"], row["g"]) for row in found):
        cell = [row for row in found if (row["cohort"], row["g"]) == (name, g)]
        p, _, r, word, sharp = flat(cell)
        row = {"cohort": name, "G": g, "runs": len(cell), "maps": len(p),
               "claimed": mean(p), "true": mean(r > 0.5), "networks_in_noise": None}  # fmt: skip
        for said in ("yes", "likely", "uncertain"):
            row[said] = [int((word == said).sum()), mean(r[word == said] > 0.5)]
        rows.append({**row, "sharp": [int(sharp.sum()), mean(r[sharp] > 0.7)]})
    for one in noise:
        rows.append({"cohort": one["cohort"], "G": one["g"], "runs": one["runs"], "maps": 0,
                     "claimed": None, "true": None, "networks_in_noise": one["networks"],
                     "largest_z": one["largest_z"]})  # fmt: skip
    return rows


def flat(found: list[dict[str, Any]]) -> tuple[np.ndarray, ...]:
    """Return P5, P7, r, word and sharp of all maps that claim something."""
    maps = [
        (one["found"][k], one["strict"][k], one["r"][k], one["word"][k], one["sharp"][k])
        for one in found if one["z"] is not None
        for k in range(len(one["r"])) if one["found"][k] is not None
    ]  # fmt: skip
    columns = list(zip(*maps, strict=True)) or [(), (), (), (), ()]
    types = (float, float, float, str, bool)
    return tuple(np.array(list(c), dtype=t) for c, t in zip(columns, types, strict=True))


def mean(values: np.ndarray) -> float | None:
    return round(float(np.mean(values)), 4) if len(values) else None


def reliability(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return by bins of .1 what was claimed and what was true, over all cohorts."""
    p5, p7, r, _, _ = flat([row for row in found if row["cohort"] not in (ONE_SIDE, EACH_SIDE)])
    rows = []
    for name, p, least in (("r > .5", p5, 0.5), ("r > .7", p7, 0.7)):
        for low, high in itertools.pairwise(BINS):
            at = (p >= low) & (p < high)
            rows.append({"of": name, "from": round(low, 1), "maps": int(at.sum()),
                         "claimed": mean(p[at]), "true": mean(r[at] > least)})  # fmt: skip
    return rows


def cohorts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return by cohort what q was, and in what share of runs each sentence on the page was said."""
    rows = []
    for name in dict.fromkeys(row["cohort"] for row in found):
        q = np.array([row["q"] for row in found if row["cohort"] == name and row["z"] is not None])
        if len(q):
            low, half, high = np.percentile(q, (0, 50, 100)).round(2).tolist()
            row = {"cohort": name, "with_claims": len(q), "q": f"{low} / {half} / {high}"}
            said = np.array([recipe.CALIBRATED.cohort_at(one).q for one in q])
            parts = {f"from {c.q}": mean(said == c.q) for c in recipe.CALIBRATED.cohort}
            rows.append({**row, **parts})
    return rows


def mirrors(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of pairs of mirror images how many were told, and how many of them wrongly.

    Wrong: what is called an image is nearer to a network than its mirror image is to any.
    """
    rows = []
    good = [row for row in found if row["cohort"].startswith("good") and row["z"] is not None]
    for name, g in dict.fromkeys((row["cohort"], row["g"]) for row in good):
        told = untold = wrong = 0
        cell = [row for row in good if (row["cohort"], row["g"]) == (name, g)]
        for row in cell:
            images = [k for k, word in enumerate(row["word"]) if word == "image"]
            told += len(images)
            untold += sum(map(bool, row["pair"])) // 2 - len(images)
            wrong += sum(row["r"][k] > row["image_r"][k] and row["r"][k] > 0.5 for k in images)
        rows.append({"cohort": name, "G": g, "runs": len(cell), "told": told, "wrongly": wrong,
                     "cannot_be_told": untold})  # fmt: skip
    return rows


def moments(found: list[dict[str, Any]], noise: dict[float, list[float]]) -> list[dict[str, Any]]:
    """Return by G what good cohorts have that real ones have, too: nothing of it is a claim.

    r: mean matched |r| with the maps of others, of the release alone, bagged, and of smooth noise.
    """
    rows = []
    for g in LEVELS:
        cell = [row for row in found if (row["cohort"], row["g"]) == ("good", g) and row["z"]]
        gain = np.array([row["bagged"] - row["once"] for row in cell])
        rows.append({
            "G": g, "runs": len(cell),
            **{name: mean([row[name] for row in cell]) for name in MOMENTS},
            "noise": mean(noise[g]), "better": int((gain > 0).sum()),
            "settled": mean([row["settled"] for row in cell]),
        })  # fmt: skip
    return rows


# -- constants -------------------------------------------------------------------------------------


def fitted(found: list[dict[str, Any]], rule: Calibration) -> Calibration:
    """Return the rule with the constants of two logistic regressions on these runs."""
    X, size, r = [], [], []
    for one in (
        row for row in found if row["z"] is not None and row["cohort"] not in (ONE_SIDE, EACH_SIDE)
    ):
        kept = [k for k, word in enumerate(one["word"]) if word != "image"]
        X += [one["numbers"][k] for k in kept]
        size += [min(max(one["size"], -1.0), 2.0)] * len(kept)
        r += [one["r"][k] for k in kept]
    A, r = np.array(X), np.array(r)
    strict = logistic(np.c_[A, size], r > 0.7)
    return dataclasses.replace(rule, found=logistic(A, r > 0.5), strict=strict, low_g=0.0)


def logistic(X: np.ndarray, y: np.ndarray, ridge: float = 1e-2) -> tuple[float, ...]:
    w = np.zeros(X.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-X @ w))
        H = X.T @ (X * (p * (1 - p))[:, None]) + ridge * np.eye(len(w))
        w += np.linalg.solve(H, X.T @ (y - p) - ridge * w)
    return tuple(round(float(x), 2) for x in w)


def rule_in(path: Path | None) -> Calibration:
    """Return the constants of a TOML file with a table ``rule``; without one, those of runs."""
    if path is None:
        return recipe.CALIBRATED.rule
    return decode_document(tomllib.loads(path.read_text())["rule"], Calibration)


def toml_of(rule: Calibration) -> str:
    values = {f.name: getattr(rule, f.name) for f in dataclasses.fields(rule)}
    lines = [f"{name} = {list(v) if isinstance(v, tuple) else v}" for name, v in values.items()]
    return "[rule]\n" + "\n".join(lines) + "\n"


def show(document: dict[str, Any]) -> None:
    """Print the tables."""

    def cell(value: Any) -> str:
        if isinstance(value, list):
            return "-" if not value[0] else f"{value[0]}:{value[1]:.2f}"
        return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    for name in ("rows", "bins", "cohorts", "mirror", "moments"):
        rows = document[name]
        header = list(dict.fromkeys(key for row in rows for key in row))
        print("\t".join(header))
        for row in rows:
            print("\t".join(cell(row.get(key)) for key in header))
        print()


def main(arguments: Any) -> None:
    rule = rule_in(arguments.constants)
    people, studies = arguments.people, arguments.studies
    document = measure(arguments.seed, studies, people, rule)
    show(document)
    if arguments.fit:
        arguments.fit.write_text(toml_of(fitted(document["runs"], rule)))
    if arguments.json:
        document.pop("runs")
        text = json.dumps(document, indent=1) + "\n"
        sys.stdout.write(text) if arguments.json == "-" else Path(arguments.json).write_text(text)
