"""Simplified resting brains: mostly symmetric networks over smooth noise.

``two-sided``  16 networks of 1 or 2 blobs and their mirror images, and 4 on one side only
``smooth``     the noise alone, in which every finding is false

Positions are drawn inside the mask.  In every subject blobs are displaced and networks have
individual strengths.  No parameter was fitted to real data.
"""

from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.left_right import Field, voxel_fields
from cape.data.space import Grid
from cape.frozen import dataclass
from cape.lab.synthetic.brain import voxel_positions
from cape.lab.synthetic.generators import AUTOCORRELATION

_ONE_SIDED: Final = 0.2  # share of the networks
BLOB_MM: Final = (8.0, 14.0)  # range of the standard deviation of a blob
MIN_X: Final = 12.0  # mm from the midplane, which separates a blob from its mirror image
MIN_DISTANCE: Final = 22.0  # mm between blobs of one side
JITTER_MM: Final = 4.0  # sd of a blob's position over subjects, along each axis
_HETEROGENEITY: Final = 0.3  # lognormal sd of a network's strength over subjects
FIELD_MM: Final = 9.0  # width of the smooth noise
_FIELD: Final = 1.0  # variance of the smooth noise over that of the signal, mean over voxels
_WHITE: Final = 0.5  # the same of white noise


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TwoSided:
    """The networks of a study, and the generator of its subjects."""

    positions: Array  # (D, 3), mm
    centres: Array  # (B, 3): of all blobs
    widths: Array  # (B,): mm
    network: Array  # (B,): the network of each blob, 0 .. R - 1
    field: Field
    seed: int
    networks: bool  # false: only noise

    @property
    def maps(self) -> Array:
        """Return the true maps (D, R) of the group."""
        return self._maps(self.centres)

    def subject(self, m: int, n_times: int) -> Data:
        """Return voxels (D, T) of subject `m`, mean 0; they depend on the seed and m only."""
        rng = np.random.default_rng([self.seed, 2, m])
        n = int(self.network.max()) + 1
        maps = self._maps(self.centres + JITTER_MM * rng.standard_normal(self.centres.shape))
        strength = np.exp(_HETEROGENEITY * rng.standard_normal(n))
        signal = (maps * strength) @ in_time(rng.standard_normal((n, n_times)))
        power = float(np.mean(np.sum(self.maps**2, axis=1)))
        noise = np.sqrt(_FIELD * power) * self.field(rng, n_times)
        noise += np.sqrt(_WHITE * power) * rng.standard_normal(noise.shape)
        noise = in_time(noise)
        return np.asarray(noise + signal if self.networks else noise, dtype=np.float32)

    def _maps(self, centres: Array) -> Array:
        distance = np.sum((self.positions[:, None, :] - centres[None]) ** 2, axis=2)
        blobs = np.exp(-distance / (2.0 * self.widths**2))
        member = np.equal.outer(self.network, np.arange(self.network.max() + 1))
        maps = blobs @ member.astype(float)
        return np.asarray(maps / np.linalg.norm(maps, axis=0))


def two_sided_study(grid: Grid, n_networks: int, *, seed: int, networks: bool = True) -> TwoSided:
    """Return a study on a mask with midplane x = 0; the last networks lie on one side only."""
    rng, positions = np.random.default_rng([seed, 1]), voxel_positions(grid)
    right = positions[positions[:, 0] >= MIN_X]
    first_one_sided = n_networks - round(_ONE_SIDED * n_networks)
    centres: list[Array] = []
    widths: list[float] = []
    owner: list[int] = []
    min_distance = MIN_DISTANCE
    for k in range(n_networks):
        for _ in range(int(rng.integers(1, 3))):
            centre = right[rng.integers(len(right))]
            # Without room, reduce the distance step by step.
            while (
                centres
                and min(np.linalg.norm(np.abs(c) - np.abs(centre)) for c in centres) < min_distance
            ):
                centre, min_distance = right[rng.integers(len(right))], 0.999 * min_distance
            sides = (1.0, -1.0) if k < first_one_sided else (float(rng.choice((1.0, -1.0))),)
            width = float(rng.uniform(*BLOB_MM))
            for side in sides:
                centres.append(centre * (side, 1.0, 1.0))
                widths.append(width)
                owner.append(k)
    mm = np.linalg.norm(grid.affine[:3, :3], axis=0)
    return TwoSided(
        positions=positions,
        centres=np.array(centres),
        widths=np.array(widths),
        network=np.array(owner),
        field=voxel_fields(grid.inside, (float(mm[0]), float(mm[1]), float(mm[2])), FIELD_MM),
        seed=seed,
        networks=networks,
    )


def in_time(values: Array) -> Array:
    """Turn white noise (n, T) into an AR(1) in time of the same variance, in place."""
    gain = np.sqrt(1.0 - AUTOCORRELATION**2)
    for t in range(1, values.shape[1]):
        values[:, t] = AUTOCORRELATION * values[:, t - 1] + gain * values[:, t]
    return values
