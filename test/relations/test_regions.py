"""Relation: people whose parcels are alike in pairs alone have pairs, and no networks.

With an atlas and private=false 11 of 12 maps "found again" were one left-right pair, called
"default mode" or "visual": every brain has such pairs, whatever its networks are.
"""

import numpy as np
import pytest

import cape
from cape.data.space import mask_space
from cape.protocol.messages import FeatureSpace
from cape.report.consortium import components_of, results_of
from cape.report.maps import FEW_REGIONS, of_few_regions
from cape.report.results import sentence
from cape.settings.config import Config

PEOPLE, TIMES, NETWORK = 20, 400, 6  # pairs of the network


def atlas() -> tuple[FeatureSpace, np.ndarray]:
    """Return blocks of the MNI mask as parcels, and the number of each one's pair (D,)."""
    config = Config.from_input({"private": False, "mask": "MNI152-10mm"})
    space = mask_space(config)
    inside = space.labels() > 0
    affine = np.array(space.affine).reshape(4, 4)
    mm = np.argwhere(inside) @ affine[:3, :3].T + affine[:3, 3]
    block = np.column_stack([np.abs(mm[:, 0]) // 30, (mm[:, 1:] + 200) // 35]).astype(int)
    _, pair = np.unique(block, axis=0, return_inverse=True)
    parcel = 2 * pair.ravel() + (mm[:, 0] > 0) + 1
    labels = np.zeros(space.shape, dtype=np.int32)
    labels[inside] = parcel
    there = np.unique(parcel)
    return FeatureSpace.of_labels("atlas", labels, affine, "MNI152"), (there - 1) // 2


def cohort(pair: np.ndarray, strength: float) -> list[np.ndarray]:
    """Return people (T, D) with alike pairs, and a network of so much strength."""
    rng, people = np.random.default_rng(11), []
    for _ in range(PEOPLE):
        X = rng.standard_normal((TIMES, len(pair)))
        shared = rng.standard_normal((TIMES, pair.max() + 1))
        X += (shared * np.linspace(1.2, 0.3, pair.max() + 1))[:, pair]
        X += strength * rng.laplace(size=(TIMES, 1)) * (pair < NETWORK)
        people.append(X)
    return people


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
def test_a_network_is_found_and_named_only_where_there_is_one() -> None:
    space, pair = atlas()
    for strength, n_networks in ((0.0, 0), (0.8, 1)):
        sites = {"lab": cohort(pair, strength)}
        run = cape.Consortium(sites, space=space).run(computation="capegica", private=False)
        rows, results = components_of(run.outcome), results_of(run.outcome)
        halves = results.separation.halves
        assert halves is not None
        assert (halves.in_halves, halves.few > 0) == (n_networks, True)
        local = [of_few_regions(row, "atlas", space.n_features) for row in rows]
        assert sum(local) >= halves.few
        assert not any(row.label for row, few in zip(rows, local, strict=True) if few)
        assert [FEW_REGIONS in (row.found_again or "") for row in rows if row.found_again] == [
            few for row, few in zip(rows, local, strict=True) if row.found_again
        ]
        assert f"{halves.few} are of one to three regions, which is no network" in sentence(results)
