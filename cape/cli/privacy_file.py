"""A privacy.json that somebody hands over, read by declared type: whatever is wrong is one error.

`Promise` is what the file of every run has; a caller declares what it needs of a private run beside
it (`Figures` for ``cape budget --check``; the papers' accountants have a record of their own).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

from cape.errors import ConfigError, MessageError
from cape.frozen import dataclass
from cape.privacy.cost import Cost, Event, Noise, Shape, Viewer
from cape.protocol import wire

# A run of 2,000 rounds writes about 2 MB; the decoder counts the parts before it builds them.
LARGEST_FILE = 64 * 2**20

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
class ReleaseRow:
    """A row of `events`: the integers that everything else follows from.

    The noise variance and mu^2 travel as text: JavaScript and JSON readers round large integers.
    """

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
        """Refuse integers that no release can have."""
        try:
            int(self.s2), self.mu2 is None or Cost.parse(self.mu2), self.event
        except (ValueError, ArithmeticError) as err:
            raise MessageError("E202", problem=f"s2 or mu2: {type(err).__name__}") from err

    @property
    def event(self) -> Event:
        """The release as the ledger has it."""
        return Event(
            phase=self.phase,
            round=self.round,
            field=self.field,
            shape=self.shape,
            size=self.size,
            log2_gamma=self.log2_gamma,
            clip_int=self.clip_int,
            delta_int=self.delta_int,
            variance=int(self.s2),
            shares=self.shares,
            seed_ratio=self.seed_ratio,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewClaim:
    """Epsilon that the file claims against a viewer."""

    key: Viewer
    epsilon: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentClaim:
    """What the file claims to have been spent of the budget."""

    epsilon_spent: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What ``cape budget --check`` recomputes of a private run."""

    min_survivors: int
    assumed_colluders: int
    noise: Noise
    budget: SpentClaim
    views: tuple[ViewClaim, ...]
    events: tuple[ReleaseRow, ...]


def read_privacy_file(path: Path, figures: type[F]) -> tuple[Promise, F | None]:
    """Return what a file promises and, of a private run, the record `figures`; else None.

    Raises
    ------
    ConfigError
        E017: this is not the file of a run; the detail names the field.
    OSError
        The file cannot be read.
    """
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
    """Return the error of a file that is not that of a run."""
    return ConfigError("E017", detail=f"{path}: {detail}")
