"""Audit of all other releases: whitening, covariances, infomax, maps, means, histograms, moments.

Each case gives two matrices per subject, of which a fair coin chooses one, so that the differences
of their answers are orthogonal: the adversary of `test_auditor` (all replies, one colluder of four,
all data but the coins) then has one independent guess per subject and release.  How far apart two
answers of a case are, as a part of the planned sensitivity, is its *reach*: the true mu of these
guesses is reach times the claimed one.

"certified <= claimed" fails by accident with probability below 1e-6 a case, "certified >= 0.85 of
the claim" as well (15,000 guesses leave 5 standard errors or more).  Entropy is fresh.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard

from cape.algorithms.templates import CLIP_PER_TEMPLATE, TemplateBasis
from cape.computations import load
from cape.privacy.noise import discrete_gaussian
from cape.protocol import secure_sum
from cape.protocol.messages import FeatureSpace
from support import auditor, say, wiretap
from support.auditor import TOO_MUCH

HERE = Path(__file__).parent


pytestmark = pytest.mark.statistical

GUESSES = 15_000
MU = 3.2

Pair = tuple[np.ndarray, np.ndarray]
"""The two matrices of one subject."""


@dataclass(frozen=True)
class Release:
    """A release of a computation, two matrices per subject, and the least reach."""

    computation: str
    phase: str
    settings: tuple[tuple[str, Any], ...]
    pairs: Callable[[], Sequence[Pair]]
    reach: float
    chosen: tuple[tuple[str, str, float], ...] = ()
    """Matrices of the model that the adversary sets to a multiple of the identity: the guarantee
    holds for whatever was released earlier."""


# -- neighbours -----------------------------------------------------------------------------------

ONE_RELEASE = (("basis", "none"), ("feature_space", "matrix"))
ICA = (("n_looks", 1), ("n_rounds", 1), ("prewhiten", "none"), *ONE_RELEASE)
COURSE = np.tile([1.0, -1.0], 16)


def leaning(d: int = 24, loudness: float = 10.0) -> list[Pair]:
    """Return subjects on (e_i + e_j) or (e_i - e_j): their moments differ in entry ij alone."""
    found = []
    for i, j in combinations(range(d), 2):
        two = []
        for sign in (1.0, -1.0):
            X = np.zeros((d, len(COURSE)), dtype=np.float32)
            X[i], X[j] = loudness * COURSE, sign * loudness * COURSE
            two.append(X)
        found.append((two[0], two[1]))
    return found


TWIST = 1.2


def twisted(k: int = 16, s: float = TWIST) -> list[Pair]:
    """Return subjects whose log covariances are +-s E - log(cosh s) I."""
    # E pairs every row i with row i xor m and gives each pair a sign, so that E E = I and E's of
    # different m, or of other signs by a Hadamard row, are orthogonal.  The term in I is the price
    # of the trace k.  In the first look no two subjects are further apart than by it: tr exp(t L)
    # is convex in t, so of L and -t L at most one is the logarithm of a matrix of trace k.  In the
    # second the aggregator's U takes it back: with U U' = k cosh(s) I the logarithms are +-s E.
    random = np.random.default_rng(1).standard_normal((2 * k, 2 * k))
    random[:, 0] = 1.0
    Q = np.linalg.qr(random)[0][:, 1 : k + 1].T  # orthonormal rows without mean
    found = []
    for m in range(1, k):
        rows = np.array([i for i in range(k) if i < i ^ m])
        for signs in hadamard(k // 2):
            E = np.zeros((k, k))
            E[rows, rows ^ m] = E[rows ^ m, rows] = signs
            ends = [math.cosh(s / 2) * np.eye(k) + side * math.sinh(s / 2) * E for side in (1, -1)]
            found.append(tuple((root @ Q).astype(np.float32) for root in ends))
    return found


def turned(d: int = 24) -> list[Pair]:
    """Return subjects with orthogonal projectors of rank 2; planes of subjects share no entry."""
    found, used = [], set()
    pairs = list(combinations(range(d), 2))
    for first, second in zip(pairs, pairs[::-1], strict=True):
        if {*first} & {*second} or {first, second} & used:
            continue
        used |= {first, second}
        two = []
        for sign in (1.0, -1.0):
            U = np.zeros((d, 2))
            for column, (i, j) in enumerate((first, second)):
                U[i, column], U[j, column] = math.sqrt(0.5), sign * math.sqrt(0.5)
            two.append((U @ hadamard(32)[1:3]).astype(np.float32))
        found.append((two[0], two[1]))
    return found


D_MAPS, K_MAPS = 52, 4
COURSES = hadamard(32)[1 : K_MAPS + 1]
AT_THE_CLIP = CLIP_PER_TEMPLATE * 1.0001  # a hair beyond it: answers are floats


@functools.cache
def orthonormal() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(2).standard_normal((D_MAPS, D_MAPS)))[0]


def templates() -> np.ndarray:
    return orthonormal()[:, :K_MAPS]


def beside() -> list[Pair]:
    """Return subjects whose maps lie at the clip on both sides of the figure without data."""
    # That figure C and a map M have columns of norm 1, so column e of M - C has <e, c> = -|e|^2 /
    # 2: of a difference of norm r, a part r / (2 sqrt(K)) is along C whatever the coin.  It is
    # least at the clip, r = .3 sqrt(K): no two subjects are further apart than sqrt(1 - .15^2) =
    # .98869 of what is charged, and columns cos(f) c +- sin(f) w, w orthogonal to C, with 2 sin(f /
    # 2) = .3 are as far.  Column c of W is a signed basis vector m + c: matrices of other m, or of
    # other signs by a Hadamard row, are orthogonal.
    centre = TemplateBasis.of(templates(), np.eye(D_MAPS)).centre
    # Orthogonal to the templates, so that they stay what is regressed, and to C.
    taken = np.linalg.qr(np.concatenate([templates(), centre], axis=1))[0]
    rest = np.linalg.qr(np.concatenate([taken, orthonormal()], axis=1))[0][:, 2 * K_MAPS : D_MAPS]
    angle = 2 * math.asin(AT_THE_CLIP / 2)
    found = []
    for m in range(rest.shape[1]):
        for signs in hadamard(K_MAPS):
            W = signs * rest[:, (m + np.arange(K_MAPS)) % rest.shape[1]]
            ends = [math.cos(angle) * centre + side * math.sin(angle) * W for side in (1, -1)]
            found.append(tuple((M @ COURSES).astype(np.float32) for M in ends))
    return found


def correlated(k: int = 16) -> list[Pair]:
    """Return subjects whose rows correlate by +E or -E, where E pairs every row with another one.

    All entries are equally large, so that the aggregator's U can bring them to z tanh(z / 2) = 1:
    the diagonal of I - tanh(Z / 2) Z' / T then vanishes, -+E is left, and no part of it stays.
    """
    courses = hadamard(32)[1 : k // 2 + 1].astype(np.float32)
    found = []
    for shift in range(k // 2):
        partner = k // 2 + (np.arange(k // 2) + shift) % (k // 2)
        for signs in hadamard(k // 2):
            two = []
            for side in (1.0, -1.0):
                X = np.zeros((k, 32), dtype=np.float32)
                X[: k // 2], X[partner] = courses, side * signs[:, None] * courses
                two.append(X)
            found.append((two[0], two[1]))
    return found


@dataclass(frozen=True)
class WithTemplates(wiretap.Subjects):
    """Subjects of a site that holds the template maps."""

    @property
    def space(self) -> FeatureSpace:
        return FeatureSpace.of_matrix(self.n_features).with_templates(templates())


RECORD = 0.15


def opposed(D: int = 64) -> list[Pair]:
    """Return records whose moments, with the constant that capecca appends, are orthogonal."""
    # r = RECORD (a e_0 +- b e_j), the constant is RECORD / 2: r r' = -RECORD^2 / 4 takes back what
    # the constant brings.  Another j is another pair of entries.  Columns are -3 to 3 over sqrt(D).
    a, b = math.sqrt(0.375), math.sqrt(0.625)
    found = []
    for j in range(1, D):
        two = []
        for side in (1.0, -1.0):
            X = np.zeros((D, 4), dtype=np.float32)
            X[0], X[j] = a, side * b
            two.append(3.0 * math.sqrt(D) * RECORD * X)
        found.append((two[0], two[1]))
    return found


def patterned(D: int = 128) -> list[Pair]:
    """Return subjects at one end or the other of the range in every column, by a Hadamard row."""
    rows = hadamard(D)[1:].astype(np.float32)
    ends = [np.repeat(row[:, None], 4, axis=1) for row in rows]
    return [(X, -X) for X in ends]


MEAN = (("low", -1.0), ("high", 1.0), ("feature_space", "matrix"), ("min_timepoints", 3))
RELEASES = {
    "whitening": Release(
        "capedjica", "whitening",
        (*ICA, ("n_looks", 2), ("n_components", 16), ("shares", "0.05,0.9,0.05")),
        twisted, 0.99,
        chosen=(("subspace", "V", 1.0), ("whitener", "U", math.sqrt(16 * math.cosh(TWIST)))),
    ),
    "infomax": Release(  # rows of 16 have entries of .5 after scaling; 1.5434 tanh(.7717) = 1
        "paperdjica", "iterate",
        (
            *ICA, ("n_components", 16), ("shares", "0.05,0.05,0.9"), ("clip", "subject"),
            ("pca", "projector"), ("whitening", "log-euclidean"),
        ),
        correlated, 0.99, chosen=(("subspace", "V", 1.0), ("whitener", "U", 2 * 1.5434)),
    ),
    "covariance": Release(
        "paperdjica", "pca",
        (
            *ICA, ("n_components", 2), ("shares", "0.9,0.05,0.05"), ("solver", "quasi-newton"),
            ("whitening", "log-euclidean"),
        ),
        leaning, 0.99,
    ),
    "spatial": Release(
        "capegica", "spatial", (*ONE_RELEASE, ("n_components", 2)), turned, 0.99
    ),
    "template": Release(
        "capedualreg", "template", (*ONE_RELEASE, ("n_components", K_MAPS)),
        beside, 0.9886,
    ),
    "mean": Release("capemean", "mean", (*MEAN, ("mean_share", 0.9)), patterned, 0.99),
    "histogram": Release(
        "capemean", "histogram", (*MEAN, ("mean_share", 0.1), ("n_bins", 2)), patterned, 0.99
    ),
    "cca": Release(
        "capecca", "moment", (("min_timepoints", 3), ("norm_bound", RECORD)), opposed, 0.99
    ),
    "moment": Release(
        "capepca", "moment", (("feature_space", "matrix"), ("min_timepoints", 3)), leaning, 0.99
    ),
}  # fmt: skip


# -- the audit ------------------------------------------------------------------------------------


def link_of(release: Release, pairs: Sequence[Pair], bits: np.ndarray) -> Any:
    """Return a run before the release, with the matrix of each subject that its bit chooses."""
    matrices = [pair[0 if bit > 0 else 1] for pair, bit in zip(pairs, bits, strict=True)]
    rows = len(matrices[0])
    kind = WithTemplates if release.phase == "template" else wiretap.Subjects
    sources = {f"local{s}": kind(matrices=tuple(matrices[s::3]), n_features=rows) for s in range(3)}
    nothing = np.zeros_like(matrices[0])
    sources[auditor.COLLUDER] = kind(matrices=(nothing,), n_features=rows)
    settings = {**wiretap.budget(MU), **dict(release.settings)}
    link = wiretap.Wiretap(load(release.computation), settings, sources, (auditor.COLLUDER,))
    first = "pca" if release.chosen else release.phase
    link.until(first)
    for field, matrix, scale in release.chosen:
        link.exchange()
        body = replace(link._request.body, **{matrix: scale * np.eye(rows)})
        link._request = replace(link._request, body=body)
        link._state = replace(link._state, model=replace(link._state.model, **{field: body}))
    assert link._state.cursor.phase == release.phase
    return link


def answers_of(release: Release, pairs: Sequence[Pair], sign: float) -> np.ndarray:
    """Return the clipped answers of all subjects if every coin fell on that side."""
    told: list[np.ndarray] = []
    real = secure_sum.clipped_sum

    def listening(stacks: Any, query: Any, event: Any) -> np.ndarray:
        rows: list[np.ndarray] = []

        def answer(stack: Any) -> np.ndarray:
            rows.append(query.answer(stack))
            return rows[-1]

        total = real(stacks, replace(query, answer=answer), event)
        told.append(np.concatenate(rows))
        return total

    link = link_of(release, pairs, np.full(len(pairs), sign))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure_sum, "clipped_sum", listening)
        link.exchange()
    found = np.zeros((len(pairs), told[0].shape[1]))
    for s, rows in enumerate(told[:3]):
        found[s::3] = rows
    return found


@dataclass(frozen=True)
class Audited:
    """What was certified, what the plan claims, and how much of that the neighbours can show."""

    certified: float
    claimed: float
    reach: float


def audit(release: Release, guesses: int = GUESSES) -> Audited:
    """Play the release again and again from the same state, and guess every coin each time."""
    pairs = release.pairs()
    bits = auditor.coins(len(pairs))
    plus, minus = (answers_of(release, pairs, sign) for sign in (1.0, -1.0))
    apart = plus - minus
    norms = np.linalg.norm(apart, axis=1)
    directions = apart / norms[:, None]
    gram = directions @ directions.T - np.eye(len(pairs))
    assert np.abs(gram).max() < 1e-2, "guesses would not be independent"
    known = (plus + minus).sum(axis=0) / 2
    link = link_of(release, pairs, bits)
    here, statistic = link.snapshot(), []
    repeats = -(-guesses // len(pairs))
    for _ in range(repeats):
        link.back(here)
        link.exchange()
        statistic.append(directions @ (link.seen() - link.event().gamma * known))
    event = link.event()
    certified = wiretap.certified_mu(np.concatenate(statistic), np.tile(bits, repeats))
    reach = float(norms.min()) * event.gamma / event.delta_int
    return Audited(certified=certified, claimed=math.sqrt(event.cost.mu2), reach=reach)


def check(name: str, found: Audited) -> None:
    say(
        f"{name}: certified mu {found.certified:.4f}, claimed {found.claimed:.4f}, "
        f"ratio {found.certified / found.claimed:.3f}, reach {found.reach:.3f}"
    )
    assert found.certified <= found.claimed, TOO_MUCH
    assert RELEASES[name].reach <= found.reach <= 1.0 + 1e-5  # answers are floats before the clip
    assert found.certified >= 0.85 * found.claimed


SHORT = ("mean", "moment")
"""One of either shape of answers."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SHORT else pytest.mark.trust) for n in RELEASES]
)
def test_audit_of_a_release_certifies_no_more_than_claimed_and_what_its_neighbours_show(name):
    """15,000 guesses; false alarm below 1e-6."""
    check(name, audit(RELEASES[name]))


def test_audit_of_a_release_sees_half_the_noise_variance(monkeypatch):
    """True mu 1.41 times the claimed one; missed below 1e-9."""
    monkeypatch.setattr(
        secure_sum, "discrete_gaussian",
        lambda s2, size, source: discrete_gaussian(s2 // 2, size, source),
    )  # fmt: skip
    with pytest.raises(AssertionError, match=TOO_MUCH):
        check("moment", audit(RELEASES["moment"], 10_000))
