"""A privacy.json that somebody hands over: only its integers are trusted, the rest recomputed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from cape.errors import CapeError, ConfigError, MessageError
from cape.frozen import dataclass
from cape.privacy.cost import FREE, Cost, Event, Noise, Shape, Viewer, total_cost
from cape.privacy.mechanisms import verify_event
from cape.protocol import wire

# A run of 2,000 rounds writes about 2 MB; the decoder counts the parts before it builds them.
LARGEST_FILE = 64 * 2**20

# Relative; a claim below the recomputed figure by more is a finding.
CLAIM_TOLERANCE = 1e-9

F = TypeVar("F")


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What the file of every run says; epsilon is null where nothing is promised."""

    schema: Literal["cape-privacy-1"]
    private: bool
    guarantee: str
    epsilon: float | None
    delta: float
    roster_fingerprint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedRelease:
    """A row of `events`; large integers travel as text, which JavaScript does not round."""

    phase: str
    round: int
    field: str
    shape: Shape
    size: int
    log2_gamma: int
    clip_int: int
    delta_int: int
    s2: str
    shares: int
    mu2: str | None
    seed_ratio: int = 0

    def __post_init__(self) -> None:
        # Here, so that all that is wrong with a file is one error, with the name of the field.
        try:
            int(self.s2), self.mu2 is None or Cost.parse(self.mu2), self.event
        except (ValueError, ArithmeticError) as err:
            raise MessageError("E202", problem=f"s2 or mu2: {type(err).__name__}") from err

    @property
    def event(self) -> Event:
        names = {field.name for field in dataclasses.fields(Event)} - {"variance"}
        return Event(variance=int(self.s2), **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewClaim:
    """What the file claims against a viewer."""

    key: Viewer
    epsilon: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentClaim:
    """What the file claims of the budget."""

    epsilon_spent: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What ``cape budget --check`` recomputes of a private run."""

    min_survivors: int
    assumed_colluders: int
    noise: Noise
    budget: SpentClaim
    views: tuple[ViewClaim, ...]
    events: tuple[StatedRelease, ...]


def read_privacy_file(path: Path, figures: type[F]) -> tuple[Promise, F | None]:
    """Return the promise and, of a private run, `figures`; ConfigError E017: not a run's file."""
    try:
        document = wire.loads(path.read_bytes(), LARGEST_FILE)
        # Later versions may say more, and a check needs a part only: other keys do not matter.
        promise = wire.decode_document(document, Promise, "privacy.json", unknown="ignore")
        if not promise.private:
            return promise, None
        return promise, wire.decode_document(document, figures, "privacy.json", unknown="ignore")
    except MessageError as err:
        raise no_privacy_file(path, err.public) from err


def no_privacy_file(path: Path, detail: str) -> ConfigError:
    return ConfigError("E017", detail=f"{path}: {detail}")


# -- what its integers give ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedFile:
    """One file, recomputed; `run` is the fingerprint of the roster, or empty.

    `cost`, `epsilon`: of its releases, for the headline viewer; `claimed`: of the plan, maybe more.
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
    """Return the recomputed figures of a privacy.json; ConfigError if it is none."""
    promise, figures = read_privacy_file(path, Figures)
    if figures is None:
        lies = promise.epsilon is not None or promise.guarantee != "none"
        findings = ["a run without a promise claims an epsilon"] if lies else []
        total, epsilon = FREE, math.inf
    else:
        total, findings = _releases(figures)
        epsilon = total.epsilon(promise.delta) or 0.0
        findings += _below("epsilon", promise.epsilon, epsilon)
        findings += _below("epsilon_spent", figures.budget.epsilon_spent, epsilon)
        findings += _view_findings(figures, total, promise.delta)
    return CheckedFile(
        path=str(path),
        private=figures is not None,
        cost=total,
        delta=promise.delta,
        epsilon=epsilon,
        claimed=promise.epsilon,
        findings=tuple(findings),
        run=promise.roster_fingerprint,
    )


def together(files: Sequence[CheckedFile]) -> Together:
    first: dict[tuple[object, ...], str] = {}
    same: dict[int, str] = {}
    counted = []
    for i, file in enumerate(files):
        # Without a fingerprint nobody can tell copies apart, so every such file counts.
        key = (file.run, file.cost, file.delta) if file.run else (i,)
        if key in first:
            same[i] = first[key]
        elif file.private:
            counted.append(file)
        first.setdefault(key, file.path)
    if not counted:
        return Together(runs=0, epsilon=None, delta=None, same=same)
    # At the largest delta the total would look better than that of each run.
    delta = min(file.delta for file in counted)
    epsilon = total_cost(file.cost for file in counted).epsilon(delta)
    return Together(runs=len(counted), epsilon=epsilon, delta=delta, same=same)


def _releases(figures: Figures) -> tuple[Cost, list[str]]:
    costs: list[Cost] = []
    findings: list[str] = []
    names: set[tuple[str, int, str]] = set()
    for release in figures.events:
        event = release.event
        # The same release twice would be one that the ledger charged once.
        if (key := (event.phase, event.round, event.field)) in names:
            findings.append(f"{event.name} is listed twice")
        names.add(key)
        findings += _event_findings(event, release.mu2)
        if event.private:  # one without noise is a finding already
            costs.append(event.cost)
    return total_cost(costs), findings


def _event_findings(event: Event, mu2: str | None) -> list[str]:
    if not event.private:
        return [f"{event.name} carries no noise"]
    findings = []
    try:
        # The clip that the file states in real units is not trusted: the integer one decides.
        verify_event(event, (event.clip_int + 0.5) / event.gamma)
    except CapeError as err:
        findings.append(str(err.fields.get("problem", err)))
    if mu2 is None or Cost.parse(mu2) != event.cost:
        findings.append(f"{event.name}: mu2 is {mu2}, its integers give {event.cost}")
    return findings


def _view_findings(figures: Figures, total: Cost, delta: float) -> list[str]:
    # A viewer subtracts the noise shares it knows: each figure rests on what is left for it.
    t = figures.min_survivors
    h = t - figures.assumed_colluders
    if figures.noise != "local" and any(release.shares != h for release in figures.events):
        return [f"releases are not calibrated for {h} noise shares"]
    by_viewer = total.by_viewer(noise_shares=h, n_sites=t, noise=figures.noise)
    findings = []
    for view in figures.views:
        least = by_viewer[view.key].epsilon(delta) or 0.0
        findings += _below(f"epsilon of {view.key}", view.epsilon, least)
    return findings


def _below(name: str, claimed: float | None, least: float) -> list[str]:
    if claimed is None:
        return [f"{name} is missing"]
    if claimed < least * (1.0 - CLAIM_TOLERANCE):
        return [f"{name} is claimed as {claimed:.6g}, the releases give {least:.6g}"]
    return []
