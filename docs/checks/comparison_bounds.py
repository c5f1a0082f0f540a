# ruff: noqa: N803, N806, T201 - symbols of the page; a check prints its claim and its figures
"""Claim: one person moves a comparison's sum w v', less its site part, by the charged bound."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from cape.algorithms import looks
from cape.algorithms.looks import RHO, RHO_PROTECTED, W, Y

Array = Any
# form, columns of w, entries of v, whether a person has all of them or none
CASES = (
    ("public", 1, 1, True), ("public", 1, 3, True), ("public", 1, 3, False),
    ("groups", 2, 1, True), ("groups", 2, 3, True), ("groups", 2, 3, False),
    ("protected", 1, 1, True), ("protected", 1, 3, True), ("protected", 1, 3, False),
)  # fmt: skip
SITES, KEPT, ROUNDS = 1200, 200, 150


def charged(form: str, q: int, n_values: int, whole: bool, rho: float) -> float:
    """Return twice the bound that the looks ask in, for |v| <= 1."""
    public = SimpleNamespace(
        protected=form == "protected", q=q, has=np.ones((1, 1 if whole else n_values))
    )
    return 2 * looks.moved(public, "balance" if whole else "contrast", rho)  # type: ignore[arg-type]


def ball(x: Array, radius: Array, axis: int = 1) -> Array:
    """Project vectors along an axis into a ball."""
    norm = np.sqrt((x**2).sum(axis=axis, keepdims=True))
    return x * np.minimum(1.0, radius / np.maximum(norm, 1e-12))


def weight(form: str, r: Array, h: Array) -> Array:
    """Return w (n, q) of any covariates h."""
    if form == "groups":
        return ball(r - ball(h, W / 2), W)
    return np.clip(h, -W / 3 if form == "public" else -W, W)


def moves(form: str, q: int, K: int, whole: bool, rho: float, z: Array) -> Array:
    """Return how far one person moves the sum of each of n sites; z (n, ...): all else there."""
    lengths = (1, q * K, K, K, q, q, K, K, q, K, K)
    size, A, v, there, r, *people = np.split(z, np.cumsum(lengths)[:-1], axis=1)
    others = np.floor(np.exp(np.minimum(2 * np.abs(size), 7.0))) - 1.0  # up to 1095
    n, A = others + 1.0, A.reshape(-1, q, K)
    if whole:
        A, there = A[:, :, :1].repeat(K, axis=2), there[:, :1].repeat(K, axis=1)
    there = others / (1 + np.exp(-3 * there))  # how many others have a value
    A = ball(A * n[:, :, None], W * there[:, None])  # sum of their w
    v = ball(np.clip(v * n, -there, there), others)  # and of their v
    sums = []
    for h, own, has in (people[:3], people[3:]):
        t = (has[:, :1].repeat(K, axis=1) if whole else has) > -0.7
        w, own = weight(form, ball(r, 0.5), h) * t.any(axis=1, keepdims=True), ball(3 * own * t, 1)
        a = ball((A + w[:, :, None] * t[:, None]) / n[:, :, None], rho)
        mean = ball((v + own) / np.maximum(there + t, 0.8 * n), Y)
        sums.append(w[:, :, None] * own[:, None] - n[:, :, None] * a * mean[:, None])
    return np.sqrt(((sums[0] - sums[1]) ** 2).sum(axis=(1, 2)))


def farthest(rng: Any, *case: Any) -> float:
    """Return the largest move that a search finds: the sites moved most breed the next ones."""
    _, q, K, _, _ = case
    z = 2 * rng.standard_normal((SITES, 1 + q * K + 2 * K + q + 2 * (q + 2 * K)))
    for number in range(ROUNDS):
        best = z[np.argsort(-moves(*case, z))[:KEPT]]
        step = 2.0 * 0.96**number * (rng.random(z.shape) < 0.3)
        z = best[rng.integers(KEPT, size=SITES)] + step * rng.standard_normal(z.shape)
        z[:KEPT] = best
    return float(moves(*case, z).max())


def of_groups() -> float:
    """Return the most of |w v' - w' v''- d Y / 2| + |d| |Y| / 2 for |v| = 1, in units of 2 W."""
    e = np.linspace(0, 0.5, 5001)  # 1 - cosine of w and w'
    inner = np.sqrt(4 - (2 - Y**2 / 2) * e + Y**2 / 4 * e**2 / (1 - e))
    return float((inner + Y / 2 * np.sqrt(2 * e)).max() / 2)


def of_vectors(rho: float) -> float:
    """Return the most at w = -w' where people have all values and the cut of Y acts: g _|_ Y."""
    a, angle = 1.25 * rho, np.linspace(0, math.pi / 2, 181)
    c, phi = np.cos(angle)[:, None, None], angle[None, :, None]
    s = np.sqrt(1 - c**2)
    d = 2 * s * np.sin(phi) * np.linspace(0, 1, 41)  # v - v' along Y
    along = 2 * W * c * np.cos(phi) + 2 * W * Y
    across = (2 * W * c * np.sin(phi)) ** 2 + 4 * W * c * a * np.cos(phi) * d
    return float(np.sqrt(along**2 + across + a**2 * (4 * s**2 - d**2)).max())


def of_protected(rho: float) -> float:
    """Return the most at w = -w' where people have some values, by the page's last formula."""
    a, best = 1.25 * rho, 0.0
    f, y = np.linspace(0, math.sqrt(2), 201), np.linspace(0, Y, 101)[:, None]
    R, rest = np.sqrt(np.maximum(1 - f**2 / 2, 0)), np.sqrt(Y**2 - y**2)
    for angle in np.linspace(0, math.pi / 2, 91):
        c, s = math.cos(angle), math.sin(angle)
        long = np.hypot(2 * W * R * c + a * R * s + 2 * W * rest, (W + a / 2) * (f + y))
        best = max(best, float((long + a / 2 * np.hypot(2 * R * s, f + y)).max()))
    return best


def main() -> int:
    print(__doc__)
    rng, good = np.random.default_rng(0), True
    for form, q, K, whole in CASES:
        rho = RHO_PROTECTED if form == "protected" else RHO
        found, most = farthest(rng, form, q, K, whole, rho), charged(form, q, K, whole, rho)
        kind = "all or none" if whole else "some"
        print(f"{form}, {K} values, {kind}: moved {found:.4f}, charged {most:.4f}")
        good &= 0.85 * most < found <= most * (1 + 1e-9)
    others = of_vectors(RHO_PROTECTED), of_protected(RHO_PROTECTED)
    print(f"groups: {of_groups():.5f} W; protected: {others[0]:.5f}, {others[1]:.5f}")
    good &= of_groups() <= 1.033
    good &= of_vectors(RHO_PROTECTED) <= charged("protected", 1, 1, True, RHO_PROTECTED) + 1e-9
    good &= of_protected(RHO_PROTECTED) <= charged("protected", 1, 3, False, RHO_PROTECTED) + 1e-9
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
