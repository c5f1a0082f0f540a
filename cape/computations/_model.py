"""What every party of a run holds in common after each round, and the line that a round shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from cape.config import Config
from cape.messages import (
    Cursor,
    KeyAdvertisements,
    KeyBook,
    Progress,
    Roster,
    RoundRecord,
    SealedShareBook,
    SurvivorSignatures,
)
from cape.phases import Attendance
from cape.privacy.ledger import Ledger


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

    Every computation has these; it adds one field per stage, the state of its estimator, which is
    None before the first release of the stage.

    Attributes
    ----------
    roster, keys, fingerprint
        From `join`, `zero-sum` and `zero-sum.probe`.
    trace : tuple of RoundRecord
        One line per released round.
    drop_outs : DropOuts or None
        Who is left, where sites may drop out.
    """

    roster: Roster | None = None
    keys: KeyBook | None = None
    fingerprint: str = ""
    trace: tuple[RoundRecord, ...] = ()
    drop_outs: DropOuts | None = field(default=None, metadata={"added": True})


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


def progress(config: Config, model: Model, ledger: Ledger | None, cursor: Cursor) -> Progress:
    """Return the public line of a broadcast: where the run is and what it has spent."""
    planned = model.roster.plan if model.roster else ()
    rounds = sum(event.phase == cursor.phase for event in planned) or 1
    budgeted = config.private and ledger is not None and ledger.budget is not None
    last = model.trace[-1] if model.trace else None
    return Progress(
        phase=cursor.phase,
        round=cursor.round,
        rounds=rounds,
        exchange=cursor.seq,
        exchanges=4 + len(planned),
        mu=(ledger.mu_spent() or 0.0) if budgeted and ledger else 0.0,
        mu_budget=ledger.budget.mu if budgeted and ledger and ledger.budget else 0.0,
        epsilon=(ledger.epsilon_spent() or 0.0) if budgeted and ledger else 0.0,
        step=last.step_norm if last else 0.0,
        stability=last.stability if last else 0.0,
    )
