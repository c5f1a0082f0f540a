"""What every party of a run holds in common after each round, and how a stage reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.errors import ConsortiumError
from cape.messages import Cursor, KeyBook, Roster, RoundRecord


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
    """

    roster: Roster | None = None
    keys: KeyBook | None = None
    fingerprint: str = ""
    subspace: Subspace | None = None
    whitener: Whitener | None = None
    unmixing: Unmixing | None = None
    trace: tuple[RoundRecord, ...] = ()


def joined(model: Model) -> Roster:
    """Return the roster of a run that has joined."""
    if model.roster is None:
        raise RuntimeError("no roster before join")
    return model.roster


def everybody(model: Model, sites: Iterable[str], cursor: Cursor) -> None:
    """Raise ConsortiumError unless exactly the sites of the roster answered."""
    present, listed = set(sites), {entry.site for entry in joined(model).sites}
    if late := sorted(listed - present):
        raise ConsortiumError("E156", site=late[0], phase=cursor.phase, round=cursor.round)
    if new := sorted(present - listed):
        raise ConsortiumError("E204", field="list of sites", sites=f"{new[0]} never joined")
