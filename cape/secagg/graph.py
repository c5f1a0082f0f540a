"""The k-regular graph of sites that share masks and secrets, if all pairs would be too many.

Bell et al. 2020 (SecAgg+): every site has k neighbours; only neighbours mask against each other and
hold each other's shares, of which t' open a secret.  Sites take random positions in a fixed
circulant graph; all sites contribute to the random bytes and none can choose them
(`cape.secagg.steps.wired`).  k and t' are the least for which both hold, by exact counts and the
second eigenvalue (`plan_graph`); theorem and proof: docs/privacy.md, "Many sites"; check:
docs/checks/secagg_graph.py.
"""

import functools
import hashlib
import math
from typing import Final

import numpy as np

from cape.frozen import dataclass
from cape.secagg.keys import lp, sha256, u64

# Fewer sites share with all others: a graph would save nothing
MIN_SITES: Final = 25

# Both probabilities are below 2^-40 per run
LOG2_EXPOSURE: Final = 40
LOG2_FAILURE: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphPlan:
    """The graph for S, t and S_C."""

    neighbours: int  # k
    threshold: int  # t', shares that open a secret
    # Colluding neighbours of a site, which no honest site exceeds except with probability 2^-40
    colluding: int
    # Honest sites of a component of survivors, at least; two components have no room
    component: int


@functools.cache
def plan_graph(n_sites: int, survivors: int, colluders: int) -> GraphPlan | None:
    """Graph of fewest neighbours for t = `survivors` and S_C = `colluders`; None: all pairs."""
    if n_sites < MIN_SITES:
        return None
    # A graph in which a site has more than half of the others as neighbours saves too little.
    for k in range(4, (n_sites - 1) // 2 + 1, 2):
        if plan := _with_neighbours(n_sites, survivors, colluders, k):
            return plan
    return None


def unknown_shares(n_sites: int, survivors: int, *, assumed: int, colluders: int) -> int:
    """Return how many noise shares are unknown to `colluders` and a lying aggregator.

    For ``aggregation=secagg`` with t = `survivors` and S_C = `assumed`.  With more colluders than
    the run can bear, both secrets of a site can be opened, and only its own share remains
    (docs/secure-sum.md, "SecureAgg").  Below 1: they know all shares.
    """
    one_list = 2 * survivors > n_sites + colluders
    kept = colluders <= assumed or (one_list and plan_graph(n_sites, survivors, assumed) is None)
    return survivors - colluders if kept else min(1, survivors - colluders)


def _with_neighbours(n_sites: int, survivors: int, colluders: int, k: int) -> GraphPlan | None:
    # A site's neighbours are k of the others, all choices equally likely; the union over all sites.
    colluding = _most(n_sites, colluders, k, LOG2_EXPOSURE)
    threshold = k - _most(n_sites, n_sites - survivors, k, LOG2_FAILURE)
    # Every list of survivors that is signed leaves each of them so many honest neighbours.
    honest = threshold - colluding
    # No graph has a smaller second eigenvalue, which rules out most k at once.
    if honest < 0 or honest**2 * (n_sites - 1) < k * (n_sites - k):
        return None
    expansion = second_eigenvalue(n_sites, k)
    if honest <= expansion:
        return None
    # Expander mixing lemma: a set of a sites has at most k a / S + lambda (1 - a / S) neighbours
    # within, on average.
    component = max(honest + 1, math.ceil(n_sites * (honest - expansion) / (k - expansion)))
    # Two parts a <= b of the honest survivors without an edge between them have
    # a b k^2 <= lambda^2 (S - a) (S - b); the left side grows faster with a and b.
    rest = max(survivors - colluders - component, component)
    if component * rest * k**2 <= expansion**2 * (n_sites - component) * (n_sites - rest):
        return None
    return GraphPlan(neighbours=k, threshold=threshold, colluding=colluding, component=component)


def _most(n_sites: int, marked: int, k: int, log2: int) -> int:
    """Least x with S P[more than x of k others are marked] < 2^-log2, counted exactly."""
    others = n_sites - 1
    every, tail, x = math.comb(others, k), 0, min(k, marked)
    # Ways in which exactly x neighbours are marked
    ways = math.comb(marked, x) * math.comb(others - marked, k - x)
    while x > 0:
        tail += ways
        if n_sites * tail << log2 >= every:
            return x
        ways = ways * x * (others - marked - k + x) // ((marked - x + 1) * (k - x + 1))
        x -= 1
    return 0


def second_eigenvalue(n_sites: int, k: int) -> float:
    """Largest size of an eigenvalue of the graph, k itself aside, rounded up."""
    row = np.zeros(n_sites)
    for step in steps(n_sites, k):
        row[[step, n_sites - step]] = 1.0
    # Eigenvectors of a circulant matrix are Fourier modes.  Rounded, so that all computers agree.
    return math.ceil(float(np.abs(np.fft.fft(row).real[1:]).max()) * 2**20 + 1) / 2**20


@functools.cache
def steps(n_sites: int, k: int) -> tuple[int, ...]:
    """Distances (k / 2 of them) of the circulant graph: fixed, pseudorandom, without a pattern."""

    def rank(step: int) -> bytes:
        return sha256(lp(b"cape/1/circulant") + u64(n_sites) + u64(k) + u64(step))

    return tuple(sorted(range(1, (n_sites - 1) // 2 + 1), key=rank)[: k // 2])


@functools.lru_cache(maxsize=4)
def neighbourhoods(
    sites: tuple[str, ...], seed: bytes, plan: GraphPlan
) -> dict[str, frozenset[str]]:
    """Neighbours of every site; `seed` (32 bytes) assigns the positions, uniformly."""

    def rank(site: str) -> bytes:
        return hashlib.sha256(lp(b"cape/1/position") + seed + lp(site.encode())).digest()

    around = sorted(sites, key=rank)
    n_sites = len(around)
    distances = steps(n_sites, plan.neighbours)
    return {
        site: frozenset(
            around[(i + sign * step) % n_sites] for step in distances for sign in (1, -1)
        )
        for i, site in enumerate(around)
    }
