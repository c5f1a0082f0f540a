"""Lines of the ledger of all runs: JSON records chained by SHA-256; and its head."""

import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from cape.errors import CapeError, StateLostError
from cape.frozen import dataclass
from cape.privacy.cost import Cost, Half
from cape.privacy.spending import Charge, Forgiven, RunSpending, Spending, sum_up
from cape.protocol import wire
from cape.site.files import side_path, write_atomically

# Digest to which the first line is chained
FIRST_LINK: Final = hashlib.sha256(b"cape/1/spending").hexdigest()
# Format of a line.  Software of another format must not use this ledger: it would miss holds.
LINE_FORMAT: Final = 3
# Fields of `RunSpending` that are written unchanged
AS_THEY_ARE: Final = (
    "run", "dataset", "computation", "date", "epsilon", "delta", "promised", "key", "owner",
    "question",
)  # fmt: skip
CHARGE: Final = ("phase", "round", "field", "mu2", "part")  # of `Charge`


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """The position of a line."""

    v: Literal[1, 3]  # a run of format 1 holds nothing
    seq: int
    prev: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine(_Line):
    """A run begins; its fields are those of `RunSpending`.

    Its people are those of the run `listed_by`, without some and with `people`: most runs have the
    people of an earlier one, and a list of all in each of them would grow the file without bound.
    """

    kind: Literal["run"]
    run: str
    dataset: str
    people: tuple[str, ...]
    computation: str
    date: str
    epsilon: float
    delta: float
    promised: bool
    key: str
    owner: str = ""
    question: str = ""
    listed_by: str = dataclasses.field(default="", metadata={"omittable": True})
    without: tuple[str, ...] = dataclasses.field(default=(), metadata={"omittable": True})

    def spending(self, runs: Mapping[str, RunSpending]) -> RunSpending:
        """Return the run without charges; ValueError, KeyError for values that no run has."""
        if not 0.0 < self.delta < 1.0:
            raise ValueError("delta")
        if not all(person.split() for person in self.people):
            raise ValueError("somebody without a digest")
        people = frozenset(self.people)
        if self.listed_by:
            earlier = runs[self.listed_by].people
            # The same object where nobody differs: sums look at each list once.
            people = (earlier - set(self.without)) | people if self.without or people else earlier
        fields = {name: getattr(self, name) for name in AS_THEY_ARE}
        return RunSpending(people=people, **fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpromisedLine(_Line):
    """A run promises nothing: another site's noise is seeded."""

    kind: Literal["unpromised"]
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldLine(_Line):
    """A run reserves its plan; the runs in `replaces` yield theirs; `name`: as in `RunSpending`."""

    kind: Literal["hold"]
    run: str
    mu2: str
    replaces: tuple[str, ...]
    date: str
    name: str = dataclasses.field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChargeLine(_Line):
    """One charged release."""

    kind: Literal["charge"]
    run: str
    phase: str
    round: int
    field: str
    mu2: str
    part: Half = dataclasses.field(default="", metadata={"omittable": True})  # "": all are asked

    def charge(self) -> Charge:
        return Charge.of(**{name: getattr(self, name) for name in CHARGE})


@dataclass(frozen=True, kw_only=True, slots=True)
class EndLine(_Line):
    """A run ended and frees the uncharged part of its hold; `by` and `text` if people closed it."""

    kind: Literal["end"]
    run: str
    why: Literal["finished", "failed", "closed"]
    by: str
    text: str
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgivenLine(_Line):
    """People cleared accesses of an owner, which no longer count (`cape.site.access`)."""

    kind: Literal["forgiven"]
    owner: str
    count: int
    by: str
    text: str
    date: str


LINE_TYPES: Final[Mapping[str, Any]] = {
    "run": RunLine, "unpromised": UnpromisedLine, "hold": HoldLine, "charge": ChargeLine,
    "end": EndLine, "forgiven": ForgivenLine,
}  # fmt: skip


def read_whole(path: Path, lines: list[bytes]) -> Spending:
    """Return the content of a ledger file and its side files.

    StateLostError if lines are gone, or if a run was asked beside it that it does not know.
    """
    check_head(path, lines)
    spending = read_lines(lines)
    rounds = side_path(path, "rounds")
    asked = {name for name in os.listdir(rounds) if name[0] != "."} if rounds.is_dir() else set()
    if unknown := asked - {run.run for run in spending.runs}:
        run = f"{rounds.name}/{min(unknown)}"
        raise damaged_ledger(f"it is older than {run}: it does not know that run")
    return spending


def read_lines(lines: Sequence[bytes]) -> Spending:
    """Return the content of a ledger.

    StateLostError if a line is damaged, missing, added or out of place: a ledger that shows less
    than was spent must not admit another run.
    """
    runs: dict[str, RunSpending] = {}
    charges: dict[str, dict[tuple[str, int, str], Charge]] = {}
    forgiven: list[Forgiven] = []
    digest = FIRST_LINK
    for seq, text in enumerate(lines, start=1):
        try:
            document = wire.loads(text)
            line = wire.decode(document, LINE_TYPES[document["kind"]], "line", form="document")
            # The chain reveals a line that was changed, removed or copied from another ledger.
            if (line.seq, line.prev) != (seq, digest):
                raise ValueError("out of place")
            if isinstance(line, ChargeLine):
                charge = line.charge()
                if charges[line.run].setdefault(charge.key, charge) is not charge:
                    raise ValueError("a release is charged twice")
            elif isinstance(line, ForgivenLine):
                names = ("owner", "count", "by", "text", "date")
                forgiven.append(Forgiven(**{name: getattr(line, name) for name in names}))
            else:
                runs.update(_changed(runs, line))
                charges.setdefault(line.run, {})
        except (CapeError, ValueError, KeyError, TypeError, ArithmeticError):
            raise damaged_ledger(f"line {seq} is damaged, missing or out of place") from None
        digest = hashlib.sha256(text).hexdigest()
    made = (replace(run, charges=tuple(charges[name].values())) for name, run in runs.items())
    return Spending(runs=tuple(made), forgiven=tuple(forgiven))


def _changed(
    runs: Mapping[str, RunSpending], line: RunLine | UnpromisedLine | HoldLine | EndLine
) -> dict[str, RunSpending]:
    """Return the runs that a line changes; ValueError or KeyError if it is not valid here."""
    if isinstance(line, RunLine):
        if line.run in runs:
            # Two runs with one nonce would share their charges.
            raise ValueError("a run is opened twice")
        return {line.run: line.spending(runs)}
    run = runs[line.run]
    if isinstance(line, UnpromisedLine):
        return {line.run: replace(run, promised=False)}
    if isinstance(line, EndLine):
        ended = replace(run, state=line.why, since=line.date, by=line.by, why=line.text)
        return {line.run: ended}
    lost = {
        name: replace(runs[name], state="yielded", since=line.date, by=line.run)
        for name in line.replaces
    }
    plan, name = sum_up((Cost.parse(line.mu2),)), line.name or run.name
    return {
        **lost,
        line.run: replace(run, state="held", plan=plan, since=line.date, name=name, why=""),
    }


def run_line(
    run: RunSpending, lines: Sequence[bytes], earlier: Sequence[RunSpending] = ()
) -> bytes:
    """Return the line of a run; its people by their difference to the most similar earlier list."""
    people: dict[str, object] = {"people": tuple(sorted(run.people))}
    lists = {other.people: other.run for other in reversed(earlier)}  # the first run of each list
    if lists:
        near = min(lists, key=lambda people: len(people ^ run.people))
        if len(near ^ run.people) < len(run.people):
            added, without = (
                tuple(sorted(some)) for some in (run.people - near, near - run.people)
            )
            people = {"people": added, "without": without, "listed_by": lists[near]}
    return next_line("run", lines, **people, **{name: getattr(run, name) for name in AS_THEY_ARE})


def charge_line(run: str, charge: Charge, lines: Sequence[bytes]) -> bytes:
    fields = {name: getattr(charge, name) for name in CHARGE}
    return next_line("charge", lines, run=run, **fields)


def hold_line(
    run: str, plan: Cost, replaces: Sequence[str], lines: Sequence[bytes], name: str = ""
) -> bytes:
    fields = {"mu2": str(plan), "replaces": tuple(replaces), "date": today(), "name": name}
    return next_line("hold", lines, run=run, **fields)


def today() -> str:
    return datetime.date.today().isoformat()


def next_line(kind: str, lines: Sequence[bytes], **fields: object) -> bytes:
    """Return a line that follows `lines`; `fields`: those of its class in `LINE_TYPES`."""
    previous = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST_LINK
    place = {"v": LINE_FORMAT, "seq": len(lines) + 1, "prev": previous, "kind": kind}
    document = wire.encode(LINE_TYPES[kind](**place, **fields), LINE_TYPES[kind])
    # Not `wire.dumps`: people read this file.
    return json.dumps(document, sort_keys=True, allow_nan=False).encode("ascii")


def write_head(path: Path, n_lines: int, last: bytes) -> None:
    """Write the number of lines and the digest of the last, which is empty if there is none."""
    write_atomically(
        side_path(path, "head"), f"{n_lines} {hashlib.sha256(last).hexdigest()}\n".encode()
    )


def check_head(path: Path, lines: list[bytes]) -> None:
    """Raise StateLostError if lines are gone that a ledger had."""
    try:
        head = side_path(path, "head").read_text(encoding="ascii").strip()
        n_text, _, digest = head.partition(" ")
        n_lines = int(n_text)
    except FileNotFoundError:
        # Only a first line without a key may lack it: a crash came before its head.
        rounds = side_path(path, "rounds")
        earlier = side_path(path, "key").exists() or (rounds.is_dir() and any(rounds.iterdir()))
        if len(lines) > 1 or earlier:
            raise damaged_ledger("what is known of its length is gone") from None
        return
    except ValueError:
        raise damaged_ledger("what is known of its length is damaged") from None
    last = lines[n_lines - 1] if 0 < n_lines <= len(lines) else b""
    if hashlib.sha256(last).hexdigest() != digest:
        raise damaged_ledger(f"it had {n_lines} lines and has {len(lines)}, or others")


def damaged_ledger(problem: str) -> StateLostError:
    do = "do not delete it, restore all its files together; without a backup: docs/ledger.md."
    return StateLostError("E235", problem=problem, do=do)
