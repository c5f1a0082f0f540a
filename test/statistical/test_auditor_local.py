"""Audit of ``noise=local``, the conventional scheme: what every single reply gives away.

No masks hide a site here: the aggregator sees each site's own noisy sum (`Released`) or a function
of it (`Reduced`), so the site's own noise alone must give the claimed mu.  The adversary holds all
replies of a release and all data but one bit per subject: subjects of a site answer at the largest
distance of the release, in directions that do not meet, and its guess is the sign along each.  As
in `test_auditor`, with fresh entropy: "certified <= claimed" is asked of every site by itself and
fails by accident with probability below 1e-6 a test (both rates of a site would have to be past
their bounds of 5e-7 together); "certified >= 0.8 claimed", of all sites together, fails below 1e-8
(5,000 guesses of each sign at mu 2 leave six standard errors).  The mistakes at the end must each
turn a check red.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import hadamard

from cape.algorithms.linalg import svec
from cape.computations import load
from cape.papers.computations.dpdispca import Reduced
from cape.protocol import plan as _plan
from cape.protocol import secure_sum
from cape.protocol.messages import Released
from support import auditor, wiretap

HERE = Path(__file__).parent


pytestmark = pytest.mark.statistical

MU, N_SITES, BITS = 2.0, 3, 10_000
SHARES_OF_ALL = 2
"""What correlated noise of three sites counts on: t - S_C."""


@dataclass(frozen=True)
class Case:
    """A release: how subjects hold bits, and along what the adversary looks.

    `subjects(bits)` gives one matrix per bit, `directions` one row per bit of the sum that a site
    sends, and `read(reply)` that sum of a reply.
    """

    name: str
    phase: str
    settings: dict[str, object]
    subjects: Callable[[np.ndarray], list[np.ndarray]]
    directions: np.ndarray
    read: Callable[[Released | Reduced], np.ndarray] = lambda reply: reply.total


def pairs_of(D: int) -> list[tuple[int, int]]:
    return list(combinations(range(D), 2))


def pair_records(bits: np.ndarray, D: int) -> list[np.ndarray]:
    """Return records e_i + bit e_j, far past any norm bound: opposite bits are orthogonal."""
    found = []
    for bit, (i, j) in zip(bits, pairs_of(D), strict=True):
        x = np.zeros((D, 1), dtype=np.float32)
        x[i], x[j] = 3.0, 3.0 * bit
        found.append(x)
    return found


def pair_directions(D: int) -> np.ndarray:
    found = []
    for i, j in pairs_of(D):
        E = np.zeros((D, D))
        E[i, j] = E[j, i] = 1.0
        found.append(svec(E))
    return np.array(found)


PAIRS = 20
"""Columns of a record: 190 subjects a site, each along a pair of its own."""
WHOLE = {"feature_space": "matrix", "basis": "none", "min_timepoints": 1}


def capepca() -> Case:
    return Case(
        name="capepca", phase="moment", settings={**WHOLE, "norm_bound": 0.5},
        subjects=lambda bits: pair_records(bits, PAIRS), directions=pair_directions(PAIRS),
    )  # fmt: skip


def capecca() -> Case:
    """Columns at the ends of their ranges, the others in the middle; past the norm bound."""
    settings = {**WHOLE, "norm_bound": 0.1, "centre": "range"}
    return Case(
        name="capecca", phase="moment", settings=settings,
        subjects=lambda bits: pair_records(bits, PAIRS), directions=pair_directions(PAIRS),
    )  # fmt: skip


def capemean() -> Case:
    """Every column at an end of its range, by the rows of a Hadamard matrix."""
    H = hadamard(512).astype(np.float32)
    return Case(
        name="capemean", phase="mean",
        settings={**WHOLE, "low": -1.0, "high": 1.0, "n_bins": 1, "mean_share": 0.99,
                  "min_timepoints": 3},
        subjects=lambda bits: [
            np.tile(bit * row[:, None], 3) for bit, row in zip(bits, H, strict=True)
        ],
        directions=H.astype(np.float64),
    )  # fmt: skip


def capedjica() -> Case:
    """The PCA release: projectors on (e_i + e_j, e_k + e_l) or (e_i - e_j, e_k - e_l)."""
    d, courses = 16, np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    chosen = auditor.disjoint_pairs(d)
    ends = [[auditor.plane(d, two, sign) for sign in (1.0, -1.0)] for two in chosen]
    settings = {**WHOLE, "n_components": 2, "shares": "0.9,0.05,0.05", "n_looks": 1, "n_rounds": 1,
                "prewhiten": "none", "min_timepoints": 4}  # fmt: skip
    return Case(
        name="capedjica", phase="pca", settings=settings,
        subjects=lambda bits: [
            (plus if bit > 0 else minus) @ courses
            for bit, (plus, minus) in zip(bits, ends, strict=True)
        ],
        directions=np.array([svec(plus @ plus.T - minus @ minus.T) for plus, minus in ends]),
    )  # fmt: skip


def dpdispca(n_sent: int) -> Case:
    """Sites send P_s (D, R); with R = D it holds the whole noisy moment, which is positive here."""

    def read(reply: Reduced) -> np.ndarray:
        assert reply.values.shape == (PAIRS, n_sent)
        return svec(reply.values @ reply.values.T)

    return Case(
        name="dpdispca", phase="moment", read=read,
        settings={**WHOLE, "norm_bound": 0.5, "n_sent": n_sent},
        subjects=lambda bits: pair_records(bits, PAIRS), directions=pair_directions(PAIRS),
    )  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """Certified mu of the site that shows most, and of a reply of any site; the claimed one."""

    worst: float
    certified: float
    claimed: float


def audit(case: Case) -> Audit:
    """Repeat one release, and look at the reply of every site by itself."""
    n = len(case.directions)
    bits = {f"local{s}": auditor.coins(n) for s in range(N_SITES)}
    matrices = {site: tuple(case.subjects(own)) for site, own in bits.items()}
    rows = matrices["local0"][0].shape[0]
    sources = {
        site: wiretap.Subjects(matrices=own, n_features=rows) for site, own in matrices.items()
    }
    mu = MU / math.sqrt(float(str(case.settings.get("shares", "1")).partition(",")[0]))
    settings = {**wiretap.budget(mu), "noise": "local", **case.settings}
    link = wiretap.Wiretap(load(case.name), settings, sources).until(case.phase)
    here, seen = link.snapshot(), {site: [] for site in bits}
    n_releases = -(-BITS // (n * N_SITES))
    for _ in range(n_releases):
        link.back(here)
        link.exchange()
        for site in bits:
            reply = link.replies[site]
            assert type(reply) in (Released, Reduced)  # in the clear, no mask
            seen[site].append(case.directions @ case.read(reply))
    statistic = {site: np.concatenate(found) for site, found in seen.items()}
    truth = {site: np.tile(own, n_releases) for site, own in bits.items()}
    return Audit(
        worst=max(wiretap.certified_mu(statistic[site], truth[site]) for site in bits),
        certified=wiretap.certified_mu(
            np.concatenate([*statistic.values()]), np.concatenate([*truth.values()])
        ),
        claimed=math.sqrt(link.event().cost.mu2),
    )


def check_sound(found: Audit) -> None:
    auditor.check_sound(found.worst, found.claimed)
    auditor.check_sound(found.certified, found.claimed)


OTHERS = (capepca, capecca, capedjica)


def check_tight(found: Audit) -> None:
    check_sound(found)
    assert found.certified >= 0.8 * found.claimed


@pytest.mark.parametrize(
    "case",
    [capemean, *(pytest.param(c, marks=pytest.mark.trust) for c in OTHERS)],
    ids=["capemean", *(c.__name__ for c in OTHERS)],
)
def test_a_site_that_is_seen_alone_gives_the_claimed_mu_and_no_more(case):
    """10,000 bits; false alarm below 1e-6."""
    check_tight(audit(case()))


@pytest.mark.trust
def test_all_directions_of_a_site_give_the_claimed_mu_and_no_more():
    """DPdisPCA at R = D: nothing is cut off.  10,000 bits; false alarm below 1e-6."""
    check_tight(audit(dpdispca(PAIRS)))


@pytest.mark.trust
def test_fewer_directions_of_a_site_give_less_than_the_claimed_mu():
    """DPdisPCA at R = D / 2: a function of the same release.  False alarm below 1e-6."""
    found = audit(dpdispca(PAIRS // 2))
    check_sound(found)
    assert 0.2 * found.claimed < found.certified < 0.9 * found.claimed  # yet not nothing


def test_one_site_with_half_the_noise_variance_is_seen(monkeypatch):
    """True mu 2.83 at one site of three; missed with probability below 1e-8."""
    draw, stream, sites = secure_sum.discrete_gaussian, secure_sum.noise_stream, []

    def listening(site, *rest):
        sites.append(site.id)
        return stream(site, *rest)

    def sparing(variance, size, source):
        return draw(variance // 2 if sites[-1] == "local1" else variance, size, source)

    monkeypatch.setattr(secure_sum, "noise_stream", listening)
    monkeypatch.setattr(secure_sum, "discrete_gaussian", sparing)
    with pytest.raises(AssertionError, match=auditor.TOO_MUCH):
        check_sound(audit(capecca()))


def test_counting_on_the_noise_of_other_sites_is_seen(monkeypatch):
    """Two shares counted where a reply holds one: true mu 2.83 for 2."""
    monkeypatch.setattr(_plan, "noise_shares_of", lambda config, n_sites: SHARES_OF_ALL)
    with pytest.raises(AssertionError, match=auditor.TOO_MUCH):
        check_sound(audit(capecca()))
