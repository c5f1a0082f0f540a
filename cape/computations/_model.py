"""What every party of a run holds in common after each round, and how a stage reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.messages import (
    KeyAdvertisements,
    KeyBook,
    Roster,
    RoundRecord,
    SealedShareBook,
    SeedSum,
    SurvivorSignatures,
)
from cape.phases import Attendance


@dataclass(frozen=True, kw_only=True, slots=True)
class DropOuts:
    """Public state of a run whose sites may drop out (``aggregation=secagg``).

    Attributes
    ----------
    advertised : KeyAdvertisements
        Public keys of U1.
    asked : tuple of str
        Sites asked in the present phase: those that answered the last one.
    participants : tuple of str
        Sites that were asked for the release under way.
    survivors : tuple of str
        U3 of the last release.
    releases : int
        Key sets used up.
    shares : SealedShareBook or None
        From `zero-sum.shares` until the sites have opened them.
    signatures : SurvivorSignatures or None
        From `*.consistency` until the release is done.
    """

    advertised: KeyAdvertisements
    asked: tuple[str, ...]
    participants: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    releases: int = 0
    shares: SealedShareBook | None = None
    signatures: SurvivorSignatures | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The public state: released values and what follows from them; equal bit for bit everywhere.

    Attributes
    ----------
    roster, keys, fingerprint
        From `join`, `zero-sum` and `zero-sum.probe`.
    subspace, whitener, unmixing
        Estimator states: V (d, k), U (k, k), W (k, k); None before the first release of a stage.
    trace : tuple of RoundRecord
        One line per released round.
    drop_outs : DropOuts or None
        Who is left, where sites may drop out.
    signatures : tuple of str
        Of all sites over the key roster, where keys are pinned.
    seed_sum : SeedSum or None
        T of Alg. 1 during a release with Gaussian zero-sum noise.
    """

    roster: Roster | None = None
    keys: KeyBook | None = None
    fingerprint: str = ""
    subspace: Subspace | None = None
    whitener: Whitener | None = None
    unmixing: Unmixing | None = None
    trace: tuple[RoundRecord, ...] = ()
    drop_outs: DropOuts | None = field(default=None, metadata={"added": True})
    signatures: tuple[str, ...] = field(default=(), metadata={"added": True})
    seed_sum: SeedSum | None = field(default=None, metadata={"added": True})


def joined(model: Model) -> Roster:
    """Return the roster of a run that has joined."""
    if model.roster is None:
        raise RuntimeError("no roster before join")
    return model.roster


def attendance(model: Model) -> Attendance | None:
    """Return who is asked in the present phase and how many must answer; None before `join`."""
    if model.roster is None:
        return None
    sites = tuple(entry.site for entry in model.roster.sites)
    if model.drop_outs is not None:
        sites = model.drop_outs.asked
    return Attendance(sites=sites, least=model.roster.survivors)
