# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the k of SecureAgg's graph keeps its two promises, whoever is said to have dropped out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cape.secagg import graph

# S, t, S_C
CASES = ((50, 45, 1), (100, 90, 5), (200, 180, 5), (200, 160, 10), (500, 450, 25), (500, 400, 25))
LIMIT = Fraction(1, 2**40)


def tail(n_sites: int, marked: int, k: int, x: int) -> Fraction:
    """S P[more than x of k neighbours are marked], the others drawn one after the other."""
    # Chances of so many marked ones among the first sites drawn.
    chances = {0: Fraction(1)}
    for drawn in range(k):
        left, after = n_sites - 1 - drawn, {}
        for found, chance in chances.items():
            hit = Fraction(marked - found, left)
            after[found + 1] = after.get(found + 1, Fraction(0)) + chance * hit
            after[found] = after.get(found, Fraction(0)) + chance * (1 - hit)
        chances = {found: chance for found, chance in after.items() if chance}
    return n_sites * sum((c for found, c in chances.items() if found > x), Fraction(0))


def adjacency(n_sites: int, k: int) -> np.ndarray:
    """Of the graph at its fixed positions; the sites are put on them at random."""
    table = np.zeros((n_sites, n_sites), dtype=bool)
    for i in range(n_sites):
        for step in graph.steps(n_sites, k):
            table[i, (i + step) % n_sites] = table[(i + step) % n_sites, i] = True
    return table


def ring(n_sites: int, k: int) -> np.ndarray:
    """Everybody with his k nearest in a circle, for comparison."""
    gap = np.abs(np.subtract.outer(np.arange(n_sites), np.arange(n_sites)))
    gap = np.minimum(gap, n_sites - gap)
    return (gap > 0) & (gap <= k // 2)


def fewest_around(table: np.ndarray, sizes: range) -> int:
    """Fewest sites around a group of such a size, for a group that grows greedily from one site."""
    group = np.zeros(len(table), dtype=bool)
    group[0], best = True, len(table)
    for size in range(1, max(sizes) + 1):
        around = table[group].any(axis=0) & ~group
        if size in sizes:
            best = min(best, int(around.sum()))
        outside = np.flatnonzero(around)
        new = [(table[site] & ~group & ~around).sum() for site in outside]
        group[outside[int(np.argmin(new))]] = True
    return best


def main() -> int:
    """Print k, what it is for, and what an aggregator that chooses the drop-outs would need."""
    print(__doc__)
    good = True
    for n_sites, survivors, colluders in CASES:
        plan = graph.plan_graph.__wrapped__(n_sites, survivors, colluders)
        if plan is None:
            print(f"S {n_sites}, t {survivors}, S_C {colluders}: every pair")
            good = False
            continue
        k, lost = plan.neighbours, n_sites - survivors
        exposed = tail(n_sites, colluders, k, plan.colluding)
        failed = tail(n_sites, lost, k, k - plan.threshold)
        table = adjacency(n_sites, k)
        second = float(np.sort(np.abs(np.linalg.eigvalsh(table.astype(float))))[-2])
        honest = plan.threshold - plan.colluding
        # No two parts of the honest survivors without an edge between them, of any size; a site
        # with so many honest neighbours has them in its own part.
        room = [
            a
            for a in range(honest + 1, (n_sites - colluders) // 2 + 1)
            if k * a / n_sites + second * (1 - a / n_sites) >= honest
            and a * max(survivors - colluders - a, a) * k**2
            <= second**2 * (n_sites - a) * (n_sites - max(survivors - colluders - a, a))
        ]
        around = fewest_around(table, range(plan.component, n_sites // 2))
        circle = fewest_around(ring(n_sites, k), range(plan.component, n_sites // 2))
        print(
            f"S {n_sites}, t {survivors}, S_C {colluders}: k {k}, t' {plan.threshold}, "
            f"lambda {second:.1f}; exposed {float(exposed):.1e}, failed {float(failed):.1e}; "
            f"around a group at least {around} sites, in a ring {circle}, {lost} may be lost"
        )
        good &= exposed < LIMIT and failed < LIMIT and honest > second and not room
        good &= around > lost
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
