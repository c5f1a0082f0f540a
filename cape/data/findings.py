"""What is wrong with a site's data: stable codes and two texts, private and public.

The rows are those of the table of bad inputs (docs/errors.md): row nn has the codes CAPE-E1nn
(stops the site) and CAPE-W1nn (warns, or leaves a subject out).  The private text names files and
numbers and stays at the site; the public text is a fixed sentence of `cape.errors.CATALOGUE`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from string import Formatter
from typing import Literal

from cape.errors import CATALOGUE, DataError

Severity = Literal["E", "X", "W"]

CONTENT_ROWS = frozenset({21, 25, 26, 27, 28, 48})
"""Findings about image content: a stop for one of them says no more than CAPE-E100."""

MOST_PLACES = 20
"""Places listed in one private text; further ones are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem, at all places where it was found.

    Attributes
    ----------
    code : str
        ``CAPE-E1nn`` or ``CAPE-W1nn``; nn is the row of the table of bad inputs.
    severity : {"E", "X", "W"}
        The site stops; the subject is left out; a warning.
    private : str
        What is wrong, where and what was found, what was expected, how to fix it.  Stays.
    public : str
        The only text that may leave the site; empty unless the site stops for this finding.
    """

    code: str
    severity: Severity
    private: str
    public: str


class Rejected(Exception):  # noqa: N818 - not an error of ours: the verdict on one file
    """A file that cannot be used; the reader of the site turns it into a finding.

    Parameters
    ----------
    row : int
        Row of the table of bad inputs.
    what, found, expected, fix : str
        The four parts of the private text; the name of the file is added by the catcher.
    severity : {"E", "X"}
        Stop, or leave the subject out.
    """

    def __init__(
        self,
        row: int,
        what: str,
        *,
        found: str,
        expected: str = "",
        fix: str = "",
        severity: Severity = "E",
    ) -> None:
        super().__init__(what)
        self.row = row
        self.what = what
        self.found = found
        self.expected = expected
        self.fix = fix
        self.severity = severity


@dataclass(kw_only=True, slots=True)
class _Entry:
    row: int
    severity: Severity
    what: str
    expected: str
    fix: str
    fields: dict[str, object]
    escalated: bool = False
    places: list[str] = field(default_factory=list)


class Findings:
    """Collects all findings of one site; equal problems at several places become one.

    Parameters
    ----------
    site : str
        Public id of the site.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        self._entries: list[_Entry] = []

    def add(
        self,
        row: int,
        severity: Severity,
        what: str,
        where: str = "",
        *,
        expected: str = "",
        fix: str = "",
        **fields: object,
    ) -> None:
        """Note a problem; `fields` fill the public sentence and must be public things."""
        for entry in self._entries:
            if (entry.row, entry.severity, entry.what) == (row, severity, what) and (
                entry.expected == expected and entry.fix == fix
            ):
                entry.places.append(where)
                return
        self._entries.append(
            _Entry(
                row=row, severity=severity, what=what, expected=expected, fix=fix,
                fields=fields, places=[where],
            )
        )  # fmt: skip

    def reject(self, verdict: Rejected, name: str) -> None:
        """Note the verdict on the file called `name`."""
        self.add(
            verdict.row,
            verdict.severity,
            verdict.what,
            f"{name}: {verdict.found}",
            expected=verdict.expected,
            fix=verdict.fix,
        )

    def escalate(self, reason: str) -> None:
        """Make every exclusion a stop and say why (too many subjects would be left out)."""
        for entry in self._entries:
            if entry.severity == "X":
                entry.severity, entry.escalated = "E", True
                entry.what = f"{entry.what} ({reason})"

    @property
    def blocked(self) -> bool:
        """Whether the site must stop."""
        return any(entry.severity == "E" for entry in self._entries)

    def listing(self) -> tuple[Finding, ...]:
        """Return all findings, worst first, then by row."""
        return tuple(self._finding(entry) for entry in self._sorted())

    def raise_if_blocked(self) -> None:
        """Raise DataError with the public text of the worst finding if the site must stop."""
        if not self.blocked:
            return
        key, fields = _public_key(self._sorted()[0], self.site)
        detail = "\n".join(finding.private for finding in self.listing())
        raise DataError(key, detail=detail, **fields)

    def _sorted(self) -> list[_Entry]:
        return sorted(self._entries, key=lambda e: ("EXW".index(e.severity), e.escalated, e.row))

    def _finding(self, entry: _Entry) -> Finding:
        code = f"CAPE-{'E' if entry.severity == 'E' else 'W'}1{entry.row:02d}"
        shown = [place for place in entry.places if place][:MOST_PLACES]
        more = len([place for place in entry.places if place]) - len(shown)
        parts = [f"{code} {entry.what}" + ("" if entry.what.endswith("?") else ".")]
        if shown:
            parts.append("; ".join(shown) + (f"; and {more} more." if more else "."))
        if entry.expected:
            parts.append(f"Expected {entry.expected}.")
        if entry.fix:
            parts.append(f"Fix: {entry.fix}.")
        key, fields = _public_key(entry, self.site)
        return Finding(
            code=code,
            severity=entry.severity,
            private=" ".join(parts),
            public=f"CAPE-{key} {CATALOGUE[key].format(**fields)}" if entry.severity == "E" else "",
        )


def _public_key(entry: _Entry, site: str) -> tuple[str, dict[str, object]]:
    """Return the key of the public sentence and what fills it: never more than the table allows."""
    key = f"E1{entry.row:02d}"
    fields = {"site": site, **entry.fields}
    if key not in CATALOGUE or entry.row in CONTENT_ROWS:
        return "E100", fields
    wanted = {name for _, name, _, _ in Formatter().parse(CATALOGUE[key]) if name}
    return ("E100" if wanted - set(fields) else key), fields
