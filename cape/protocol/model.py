"""The public state that all parties of a run share after each round: roster and trace."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import TypeVar

from cape.errors import ConfigError, MessageError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import Event
from cape.privacy.ledger import Ledger, by_exchange
from cape.protocol.messages import Cursor, KeyAdvertisements, KeyBook, Progress
from cape.protocol.phases import Attendance
from cape.secagg.messages import SurvivorSignatures
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace, packed_space

Own = TypeVar("Own", bound=Config)

# Exchanges of a run before its releases, and exchanges of one round of releases
EXCHANGES = {"all-sites": (4, 1), "secagg": (7, 3)}

TRACE_ROW = struct.Struct("<4d")  # the four norms of a `RoundRecord`


@dataclass(frozen=True, kw_only=True, slots=True)
class RosterEntry:
    """One site of the run."""

    site: str
    nonce: str
    n_subjects: int
    commitment: str = field(default="", metadata={"omittable": True})
    counts: tuple[int, ...] = field(default=(), metadata={"omittable": True})
    lacks: tuple[str, ...] = field(default=(), metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Roster:
    """Broadcast of `join`: sites, features and plan; each site verifies it."""

    sites: tuple[RosterEntry, ...]  # sorted by the bytes of the id
    config: str
    space: FeatureSpace
    n_basis: int  # d
    colluders: int  # S_C
    survivors: int  # t
    seeded: bool
    plan: tuple[Event, ...]
    warnings: tuple[str, ...]

    @property
    def n_sites(self) -> int:
        return len(self.sites)

    @property
    def n_subjects(self) -> int:
        return sum(entry.n_subjects for entry in self.sites)

    @property
    def noise_shares(self) -> int:
        """Noise shares h = t - S_C that the assumed adversary cannot subtract."""
        return self.survivors - self.colluders


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRecord:
    """One round, whatever it released; public.  `survivors` is empty if all sites must answer."""

    phase: str
    round: int
    statistic_norm: float
    noise_norm: float
    step_norm: float
    stability: float
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The released rounds of a run, packed: every party reads and writes them in each round."""

    # Line i belongs to round i of the plan (`by_exchange`), which names its phase and its releases.

    released: str = field(metadata={"key": "lines"})  # per line "1" if it was released, else "0"
    rows: bytes  # per line a `TRACE_ROW`; zeros before it is released
    # If sites may drop out: per site of the roster, the number of lines before it dropped out
    lines_of_site: tuple[int, ...] = field(default=(), metadata={"omittable": True, "key": "taken"})

    def __post_init__(self) -> None:
        if len(self.rows) != TRACE_ROW.size * len(self.released) or set(self.released) - {"0", "1"}:
            raise MessageError("E202", problem="a trace of another length than its plan")

    @property
    def last_step(self) -> tuple[float, float]:
        """Step norm and stability of the last round; zeros before the first."""
        last = max(self.released.rfind("1"), 0)
        step, stability = TRACE_ROW.unpack_from(self.rows, TRACE_ROW.size * last)[2:]
        return step, stability


@dataclass(frozen=True, kw_only=True, slots=True)
class DropOuts:
    """Public state of a run whose sites may drop out (``aggregation=secagg``)."""

    advertised: KeyAdvertisements  # public keys of U1
    asked: tuple[str, ...]  # sites asked in the present phase: those that answered in the last one
    survivors: tuple[str, ...] = ()  # U3 of the last round
    releases: int = 0  # key sets used up
    signatures: SurvivorSignatures | None = None  # from `*.consistency` until the round is done


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The public state, derived from broadcasts only; equal bit for bit at all parties."""

    # A computation adds a field per stage, its estimator's state; None before the first release.

    # From `join`
    roster: Roster | None = field(default=None, metadata={"constant": True})
    keys: KeyBook | None = None  # from `zero-sum`
    fingerprint: str = ""  # from `zero-sum.probe`
    trace: Trace | None = None  # None before the first release
    # If sites may drop out
    drop_outs: DropOuts | None = field(default=None, metadata={"omittable": True})
    # Signatures of all sites on the key roster, if keys are signed
    signatures: tuple[str, ...] = field(default=(), metadata={"omittable": True})

    def attendance(self) -> Attendance | None:
        """Return the sites asked in the present phase and how many must answer."""
        # None before `join`.  A site that dropped out never comes back.
        if self.roster is None:
            return None
        sites = tuple(entry.site for entry in self.roster.sites)
        if self.drop_outs is not None:
            sites = self.drop_outs.asked
        return Attendance(sites=sites, least=self.roster.survivors)

    def progress(self, config: Config, ledger: Ledger | None, cursor: Cursor) -> Progress:
        """Return the public progress line of a broadcast."""
        planned = by_exchange(self.roster.plan if self.roster else ())
        rounds = sum(phase == cursor.phase for phase, _ in planned) or 1
        spent = ledger if config.private else None
        step, stability = self.trace.last_step if self.trace is not None else (0.0, 0.0)
        setting_up, each = EXCHANGES[config.aggregation]
        return Progress(
            phase=cursor.phase,
            round=cursor.round,
            rounds=rounds,
            exchange=cursor.seq,
            exchanges=setting_up + each * len(planned),
            mu=(spent.spent.mu() or 0.0) if spent else 0.0,
            mu_budget=gdp_mu(epsilon=config.epsilon, delta=config.delta) if config.private else 0.0,
            epsilon=(spent.epsilon_spent() or 0.0) if spent else 0.0,
            step=step,
            stability=stability,
        )


def settings_of(kind: type[Own], config: Config) -> Own:
    # The settings of another computation are a mistake in the code, not one of a person.
    if not isinstance(config, kind):
        raise TypeError(f"{type(config).__name__} given where {kind.__name__} is needed")
    return config


def signs(config: Config) -> bool:
    """Whether the sites sign their keys of this run with identity keys that outlive it."""
    return config.key_trust != "aggregator"


def broadcast_roster(model: Model) -> Roster:
    """Return the roster as it was sent, byte for byte; all digests of a run depend on it."""
    if model.roster is None:
        raise RuntimeError("no roster before join")
    return model.roster


def joined(model: Model) -> Roster:
    """Return the roster, with the labels of its space once sites have sent them."""
    roster = broadcast_roster(model)
    told = model.drop_outs.advertised if model.drop_outs is not None else model.keys
    packed = packed_space(told.labels, told.maps) if told is not None else ""
    return replace(roster, space=replace(roster.space, packed=packed)) if packed else roster


def n_basis(model: Model) -> int:
    return joined(model).n_basis


def own_subjects(site: str, model: Model) -> int:
    return next(entry.n_subjects for entry in joined(model).sites if entry.site == site)


def agreed_labels(model: Model, shown: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return labels and maps that sites sent after `join`; MessageError if one sent others."""
    # `join` compared only their digest, so that no site reveals a mask that the others do not have.
    # Not every site sends maps; they are empty if none does.
    space, sent = joined(model).space, tuple(shown)
    for labels, maps in sent:
        space.filled(packed_space(labels, maps))
    return sent[0][0], next((maps for _, maps in sent if maps), "")


def check_maps_are_sent(config: Config, model: Model, maps: str) -> None:
    """Raise ConfigError E285 if no site sent the maps that all parties need."""
    if resolve(config).sends_maps and not maps:
        raise ConfigError("E285", got=joined(model).space.digest)


def start_trace(plan: Sequence[Event]) -> Trace:
    n_rounds = len(by_exchange(plan))
    return Trace(released="0" * n_rounds, rows=bytes(TRACE_ROW.size * n_rounds))


def with_row(
    trace: Trace,
    roster: Roster,
    phase: str,
    row: tuple[float, float, float, float],
    survivors: Sequence[str],
) -> Trace:
    """Return the trace with the next round of a phase; MessageError if none is planned."""
    waiting = (
        i
        for i, (planned, _) in enumerate(by_exchange(roster.plan))
        if planned == phase and trace.released[i] == "0"
    )
    line = next(waiting, None)
    if line is None:
        raise MessageError("E202", problem=f"{phase}: more releases than planned")
    lines_of_site = trace.lines_of_site
    if survivors:
        inside, before = frozenset(survivors), lines_of_site or (0,) * roster.n_sites
        lines_of_site = tuple(
            line + 1 if entry.site in inside else n
            for entry, n in zip(roster.sites, before, strict=True)
        )
    return replace(
        trace,
        released=trace.released[:line] + "1" + trace.released[line + 1 :],
        rows=trace.rows[: TRACE_ROW.size * line]
        + TRACE_ROW.pack(*row)
        + trace.rows[TRACE_ROW.size * (line + 1) :],
        lines_of_site=lines_of_site,
    )


def records(trace: Trace | None, roster: Roster) -> tuple[RoundRecord, ...]:
    """Return a record for every released round, in order."""
    if trace is None:
        return ()
    return tuple(
        RoundRecord(
            phase=phase,
            round=number,
            statistic_norm=statistic,
            noise_norm=noise,
            step_norm=step,
            stability=stability,
            survivors=tuple(
                entry.site
                for entry, n in zip(
                    roster.sites, trace.lines_of_site, strict=bool(trace.lines_of_site)
                )
                if i < n
            ),
        )
        for i, ((phase, number), released, (statistic, noise, step, stability)) in enumerate(
            zip(
                by_exchange(roster.plan),
                trace.released,
                TRACE_ROW.iter_unpack(trace.rows),
                strict=True,
            )
        )
        if released == "1"
    )
