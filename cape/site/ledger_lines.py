"""Lines of the ledger of all runs: one JSON record each, chained by SHA-256; and their number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from cape.errors import CapeError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.spending import Charge, RunSpending, Spending
from cape.protocol import wire
from cape.site.files import write_atomically

# Digest that the first line is chained to.
FIRST_LINK: Final = hashlib.sha256(b"cape/1/spending").hexdigest()
# Fields of `RunSpending` that are written as they are
AS_THEY_ARE: Final = (
    "run", "dataset", "computation", "date", "epsilon", "delta", "promised", "key",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """Where a line stands, and whose it is."""

    v: Literal[1]
    seq: int
    prev: str
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine(_Line):
    """A run begins; its fields are those of `RunSpending`."""

    kind: Literal["run"]
    dataset: str
    people: tuple[str, ...]
    computation: str
    date: str
    epsilon: float
    delta: float
    promised: bool
    key: str

    def spending(self) -> RunSpending:
        """Return the run without charges; ValueError for values that no run of ours has."""
        if not 0.0 < self.delta < 1.0:
            raise ValueError("delta")
        if not all(person.split() for person in self.people):
            raise ValueError("somebody without a digest")
        fields = {name: getattr(self, name) for name in AS_THEY_ARE}
        return RunSpending(people=frozenset(self.people), **fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpromisedLine(_Line):
    """A run turned out to promise nothing: another site's noise is seeded."""

    kind: Literal["unpromised"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChargeLine(_Line):
    """One charged release."""

    kind: Literal["charge"]
    phase: str
    round: int
    field: str
    mu2: str

    def charge(self) -> Charge:
        return Charge.of(phase=self.phase, round=self.round, field=self.field, mu2=self.mu2)


LINE_TYPES: Final = RunLine | UnpromisedLine | ChargeLine


def read_lines(lines: Sequence[bytes]) -> Spending:
    """PrivacyBudgetError if a line is damaged, missing, added or out of place."""
    # A ledger that says less than was spent must not let another run begin.
    runs: dict[str, RunSpending] = {}
    charges: dict[str, dict[tuple[str, int, str], Charge]] = {}
    digest = FIRST_LINK
    for seq, text in enumerate(lines, start=1):
        try:
            line = wire.decode(wire.loads(text), LINE_TYPES, "line", form="document")
            # The chain shows a line that was changed, left out or put in from another ledger.
            if (line.seq, line.prev) != (seq, digest):
                raise ValueError("out of place")
            if isinstance(line, RunLine):
                if line.run in runs:
                    # Two runs of one nonce would share their charges.
                    raise ValueError("a run is opened twice")
                runs[line.run], charges[line.run] = line.spending(), {}
            elif isinstance(line, UnpromisedLine):
                runs[line.run] = replace(runs[line.run], promised=False)
            else:
                charge = line.charge()
                if charges[line.run].setdefault(charge.key, charge) is not charge:
                    raise ValueError("a release is charged twice")
        except (CapeError, ValueError, KeyError, ArithmeticError):
            raise damaged(f"line {seq} is damaged, missing or out of place") from None
        digest = hashlib.sha256(text).hexdigest()
    made = (replace(run, charges=tuple(charges[name].values())) for name, run in runs.items())
    return Spending(runs=tuple(made))


def run_line(run: RunSpending, lines: Sequence[bytes]) -> bytes:
    fields = {name: getattr(run, name) for name in AS_THEY_ARE}
    people = tuple(sorted(run.people))
    return _text(RunLine(**_place(lines), kind="run", people=people, **fields))


def unpromised_line(run: str, lines: Sequence[bytes]) -> bytes:
    return _text(UnpromisedLine(**_place(lines), kind="unpromised", run=run))


def charge_line(run: str, charge: Charge, lines: Sequence[bytes]) -> bytes:
    fields = {name: getattr(charge, name) for name in ("phase", "round", "field", "mu2")}
    return _text(ChargeLine(**_place(lines), kind="charge", run=run, **fields))


def _place(lines: Sequence[bytes]) -> dict[str, Any]:
    previous = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST_LINK
    return {"v": 1, "seq": len(lines) + 1, "prev": previous}


def _text(line: RunLine | UnpromisedLine | ChargeLine) -> bytes:
    document = wire.encode(line, type(line))
    # Not `wire.dumps`: people read this file.
    return json.dumps(document, sort_keys=True, allow_nan=False).encode("ascii")


def _head(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def write_head(path: Path, n_lines: int, last: bytes) -> None:
    write_atomically(_head(path), f"{n_lines} {hashlib.sha256(last).hexdigest()}\n".encode())


def check_head(path: Path, lines: list[bytes]) -> None:
    """Raise PrivacyBudgetError if lines are gone that a ledger had."""
    try:
        n_text, _, digest = _head(path).read_text(encoding="ascii").strip().partition(" ")
        n_lines = int(n_text)
    except FileNotFoundError:
        if len(lines) > 1:  # a crash may come between the first line and its head
            raise damaged("what is known of its length is gone") from None
        return
    except ValueError:
        raise damaged("what is known of its length is damaged") from None
    last = lines[n_lines - 1] if 0 < n_lines <= len(lines) else b""
    if hashlib.sha256(last).hexdigest() != digest:
        raise damaged(f"it had {n_lines} lines and has {len(lines)}, or others")


def damaged(problem: str) -> PrivacyBudgetError:
    do = "restore it with its .key and its .head; do not delete it."
    return PrivacyBudgetError("E235", problem=problem, do=do)
