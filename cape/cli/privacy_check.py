"""Check a privacy.json: trust only its integers and recompute the rest."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cape.errors import CapeError, ConfigError, MessageError, PrivacyBudgetError, own_words
from cape.frozen import dataclass
from cape.privacy.cost import FREE, Cost, Event, total_cost, total_of
from cape.privacy.ledger import read_entries
from cape.privacy.mechanisms import verify_event
from cape.protocol import wire
from cape.report.privacy_json import PrivacyStatement, ReleaseRow

# A run of 2,000 rounds writes about 2 MB; the decoder counts the parts before it builds them.
MAX_FILE_BYTES = 64 * 2**20

# Relative amount by which a claim may be below the recomputed figure.
CLAIM_TOLERANCE = 1e-9


def read_privacy_file(path: Path) -> PrivacyStatement:
    """Return the content of a privacy.json; ConfigError E017 if the file is not one."""
    try:
        document = wire.loads(path.read_bytes(), MAX_FILE_BYTES)
        # Later versions may add keys.
        return wire.decode_document(document, PrivacyStatement, "privacy.json", unknown="ignore")
    except (MessageError, OSError) as err:
        raise no_privacy_file(path, own_words(err, "it cannot be read")) from err


def no_privacy_file(path: Path, detail: str) -> ConfigError:
    return ConfigError("E017", detail=f"{path}: {detail}")


# -- what its integers give ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedFile:
    """Recomputed figures of one file; `run` is the fingerprint of the roster, or empty.

    `cost` and `epsilon` are of its releases, for the headline viewer; `claimed` is the epsilon that
    the file states for the whole plan.
    """

    path: str
    private: bool
    cost: Cost
    delta: float
    epsilon: float
    claimed: float | None
    findings: tuple[str, ...]
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Several runs on the same subjects; `epsilon` at the smallest delta, as in a site's ledger.

    `same`: position of a file -> path of an earlier file of the same run, counted once.
    """

    runs: int
    epsilon: float | None
    delta: float | None
    same: Mapping[int, str]


def check_file(path: Path) -> CheckedFile:
    """Return the recomputed figures of a privacy.json; ConfigError E017 if the file is not one."""
    stated = read_privacy_file(path)
    if not stated.private:
        lies = stated.epsilon is not None or stated.guarantee != "none"
        findings = ["a run without privacy claims an epsilon"] if lies else []
        total, epsilon = FREE, math.inf
    else:
        total, findings = _releases(stated.events, path)
        epsilon = total.epsilon(stated.delta) or 0.0
        findings += _ledger_findings(stated)
        findings += _below("epsilon", stated.epsilon, epsilon)
        findings += _below("epsilon_spent", stated.budget.epsilon_spent, epsilon)
        findings += _view_findings(stated, total)
    return CheckedFile(
        path=str(path),
        private=stated.private,
        cost=total,
        delta=stated.delta,
        epsilon=epsilon,
        claimed=stated.epsilon,
        findings=tuple(findings),
        run=stated.roster_fingerprint,
    )


def together(files: Sequence[CheckedFile]) -> Together:
    first: dict[tuple[object, ...], str] = {}
    same: dict[int, str] = {}
    counted = []
    for i, file in enumerate(files):
        # Without a fingerprint copies cannot be recognised, so every such file counts.
        key = (file.run, file.cost, file.delta) if file.run else (i,)
        if key in first:
            same[i] = first[key]
        elif file.private:
            counted.append(file)
        first.setdefault(key, file.path)
    if not counted:
        return Together(runs=0, epsilon=None, delta=None, same=same)
    # At a larger delta the total could look better than single runs.
    delta = min(file.delta for file in counted)
    epsilon = total_cost(file.cost for file in counted).epsilon(delta)
    return Together(runs=len(counted), epsilon=epsilon, delta=delta, same=same)


def _releases(rows: Sequence[ReleaseRow], path: Path) -> tuple[Cost, list[str]]:
    events: list[Event] = []
    findings: list[str] = []
    names: set[tuple[str, int, str]] = set()
    for row in rows:
        try:
            event, claimed = row.event, row.cost
        except (ValueError, ArithmeticError, ConfigError) as err:
            detail = own_words(err, "its numbers are those of no release")
            raise no_privacy_file(path, f"release {row.seq}: {detail}") from err
        # A release listed twice may have been charged once.
        if (key := (event.phase, event.round, event.field)) in names:
            findings.append(f"{event.name} is listed twice")
        names.add(key)
        if not event.private:
            findings.append(f"{event.name} carries no noise")
            continue
        findings += _event_findings(event, claimed)
        events.append(event)
    return total_of(events), findings


def _ledger_findings(stated: PrivacyStatement) -> list[str]:
    """Return releases whose part of the people differs from the ledger; the cost depends on it."""
    try:
        charged = read_entries(stated.ledger.entries, head=stated.ledger.head)
    except PrivacyBudgetError as err:
        return [f"its ledger is damaged: {err}"]
    parts = {(event.phase, event.round, event.field): event.part for event in charged}
    rows = {(row.phase, row.round, row.field): row.part for row in stated.events}
    return [
        f"{phase} round {round_}: part '{part}', the ledger has {parts.get(key, 'none')!r}"
        for key, part in rows.items()
        if parts.get(key) != part
        for phase, round_, _ in (key,)
    ]


def _event_findings(event: Event, claimed: Cost) -> list[str]:
    findings = []
    try:
        # Trust the integer clip, not the one in real units.
        verify_event(event, (event.clip_int + 0.5) / event.gamma)
    except CapeError as err:
        findings.append(str(err.fields.get("problem", err)))
    if claimed != event.cost:
        findings.append(f"{event.name}: mu2 is {claimed}, its integers give {event.cost}")
    return findings


def _view_findings(stated: PrivacyStatement, total: Cost) -> list[str]:
    # A viewer subtracts the noise shares that it knows.
    t = stated.min_survivors
    h = t - stated.assumed_colluders
    if stated.noise != "local" and any(release.shares != h for release in stated.events):
        return [f"releases are not calibrated for {h} noise shares"]
    noise = stated.noise or "correlated"  # the stricter one
    by_viewer = total.by_viewer(noise_shares=h, n_sites=t, noise=noise)
    findings = []
    for view in stated.views:
        recomputed = by_viewer[view.key].epsilon(stated.delta) or 0.0
        findings += _below(f"epsilon of {view.key}", view.epsilon, recomputed)
    return findings


def _below(name: str, claimed: float | None, recomputed: float) -> list[str]:
    if claimed is None:
        return [f"{name} is missing"]
    if claimed < recomputed * (1.0 - CLAIM_TOLERANCE):
        return [f"{name} is stated as {claimed:.6g}, the releases give {recomputed:.6g}"]
    return []
