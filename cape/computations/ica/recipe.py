"""The steps from a released mean of projectors to spatial maps: mirror, rotation, claims."""

from __future__ import annotations

from cape.algorithms.estimators import Array
from cape.algorithms.left_right import CLEAR, LeftRight, Mirror, mirrored
from cape.algorithms.spatial import Score, claims, leading, spatial_ica
from cape.frozen import dataclass
from cape.space.public_basis import Basis

SCORE: Score = "skewness"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotated:
    """Spatial components of a released mean, and what may be said of them."""

    V: Array  # (d, k)
    mixing: Array  # (k, k)
    maps: Array  # (D, k): ``B V mixing``
    converged: bool
    mirrored: bool
    claims: tuple[float, ...]


def rotated(
    F: Array,
    B: Basis | None,
    n_components: int,
    *,
    noise_std: float,
    mirror: Mirror | None,
    test: LeftRight | None,
    symmetry: str,
) -> Rotated:
    """Take the recipe's steps from a released mean F (d, d): mirror, maps, rotation, claims."""
    clear = test is not None and test.z >= CLEAR
    # Without noise there is nothing that a mirror would take away.
    wanted = symmetry == "assume" or (symmetry == "auto" and clear and noise_std > 0)
    J = mirror.J if mirror is not None and wanted else None
    V = leading(F if J is None else mirrored(F, J), n_components)
    directions = V if B is None else B @ V
    rotation = spatial_ica(directions, score=SCORE)
    maps = directions @ rotation.mixing
    return Rotated(
        V=V,
        mixing=rotation.mixing,
        maps=maps,
        converged=rotation.converged,
        mirrored=J is not None,
        claims=claims(F, B, maps, noise_std=noise_std, J=J) if clear and noise_std > 0 else (),
    )
