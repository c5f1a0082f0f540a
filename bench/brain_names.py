"""Whether maps get the right names: `bench/brains.py names`.

Synthetic two-sided cohorts (`bench/brain_claims.py`) whose networks are those of a public set, at
the places of its regions, each region moved a little.  A name is right where the planted network
that a map is most like, with |r| above .5, has that name; networks of the other set count as it
where their maps are alike (|r| above .5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import brain_claims as claims
from cape.computations.ica import recipe
from cape.data.space import grid_of
from cape.lab.synthetic.resting import TwoSided, two_sided_study
from cape.report import labels, public_networks

MOVED_MM = 4.0
NEAR = 0.5
REGIONS = {
    "dosenbach_2010": public_networks.dosenbach_regions,
    "seitzman_2018": public_networks.seitzman_regions,
}


def planted_set(name: str, seed: int) -> tuple[TwoSided, tuple[str, ...]]:
    """Return a study whose networks are those of a public set."""
    regions = REGIONS[name]()
    if not regions:
        raise SystemExit(f"{name}: nilearn is not installed here")
    words = tuple(sorted({word for word, _ in regions}))
    centres = np.array([place for _, place in regions])
    rng = np.random.default_rng([seed, 11])
    study = two_sided_study(grid_of(claims.SPACE), claims.NETWORKS, seed=seed)
    return dataclasses.replace(
        study,
        centres=centres + MOVED_MM * rng.standard_normal(centres.shape),
        widths=np.full(len(centres), public_networks.BLOB_SD),
        network=np.array([words.index(word) for word, _ in regions]),
    ), words


def measure(seeds: list[int], sets: Sequence[str] = labels.DEFAULT) -> list[dict[str, Any]]:
    """Return one row a run: maps, those near a planted network, names, and right ones."""
    template = labels.bundled(claims.SPACE)
    if template is None:
        raise SystemExit("the public sets come with nilearn, which is not installed here")
    alike = np.abs(claims.unit(template.values).T @ claims.unit(template.values)) > NEAR
    rows = []
    for seed in seeds:
        for name in sets:
            study, words = planted_set(name, seed)
            person = claims.planted(study)
            people = [person(m) for m in range(claims.COHORT)]
            listed = list(zip(template.labels, template.sources, strict=True))
            place = [listed.index((word, name)) for word in words]
            for g in claims.LEVELS:
                at = claims.level(g)
                F = at.released(at.answers(people), np.random.default_rng([seed, 12, int(g)]))
                test = at.test(F)
                q = claims.cohort(
                    F, test, noise_std=at.noise_std, n_subjects=claims.COHORT, rank=at.R
                )
                found = recipe.rotated(
                    F, at.basis, at.R, noise_std=at.noise_std, mirror=at.mirror, test=test, q=q,
                    rank=at.R, symmetry="auto", kind="mask", n_subjects=claims.COHORT,
                )  # fmt: skip
                A = at.basis @ found.directions
                r = np.abs(claims.unit(A).T @ claims.unit(study.maps))
                nearest, near = r.argmax(axis=1), r.max(axis=1) > NEAR
                own = labels.at_resolution(template, at.basis)
                z = (A - A.mean(axis=0)) / A.std(axis=0)
                said = labels.match_networks(z, own, claims.SPACE)
                named = [k for k, one in enumerate(said) if one.name is not None]
                right = sum(
                    near[k] and alike[listed.index((said[k].label, said[k].source)), place[j]]
                    for k, j in ((k, nearest[k]) for k in named)
                )
                rows.append(
                    {"seed": seed, "set": name, "G": g, "maps": len(said), "near": int(near.sum()),
                     "named": len(named), "right": int(right)}
                )  # fmt: skip
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(*rows[0], sep="\t")
    for row in rows:
        print(*row.values(), sep="\t")
    print("all", "", "", *(sum(row[n] for row in rows) for n in ("maps", "near", "named", "right")),
          sep="\t")  # fmt: skip
