"""A site's tables of people: which files they are, and where the columns stand that are asked for.

The owner names columns, the site names files: those of `tables` in its own file, else
participants.tsv and phenotype/*.tsv as BIDS has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cape.data.file_type import visible
from cape.data.folders import PARTICIPANTS
from cape.data.issues import IssueCode, UnusableFile
from cape.data.runs import leads_out
from cape.data.tables import column_names, rows_of_people
from cape.settings.comparison import Comparison
from cape.settings.option import did_you_mean
from cape.settings.own_words import POLICY_FILE, OwnWords

PHENOTYPE: Final = "phenotype/*.tsv"
TABLE_ENDS: Final = (".tsv", ".csv")
GIFT_END: Final = ".mat"
GIFT_RESULTS: Final = "*_postprocess_results.mat"


def tables_of(base: Path, words: OwnWords) -> tuple[str, ...]:
    """Return the tables of people of a site, first those that it names.

    `UnusableFile`: one of those is not there.
    """
    return tuple(dict.fromkeys((*_named(base, words, TABLE_ENDS), *_of_bids(base))))


def _of_bids(base: Path) -> tuple[str, ...]:
    own = [PARTICIPANTS] if (base / PARTICIPANTS).is_file() else []
    others = [path for path in base.glob(PHENOTYPE) if visible(path) and path.is_file()]
    return (*own, *sorted(path.relative_to(base).as_posix() for path in others))


def gift_results(base: Path, words: OwnWords) -> str:
    """Return the name of a site's only file of GIFT's results; `UnusableFile`: none, or several."""
    there = sorted(path.name for path in base.glob(GIFT_RESULTS) if visible(path))
    found = _named(base, words, (GIFT_END,)) or tuple(there)
    if len(found) != 1:
        observed = ", ".join(found) or f"no {GIFT_RESULTS}"
        raise UnusableFile(IssueCode.GIFT_FILES, observed)
    return found[0]


def _named(base: Path, words: OwnWords, ends: tuple[str, ...]) -> tuple[str, ...]:
    for name in words.tables:
        place = f"{name}, of tables in {POLICY_FILE}"
        if leads_out(name):
            raise UnusableFile(IssueCode.OUTSIDE_FOLDER, place)
        if not name.lower().endswith((*TABLE_ENDS, GIFT_END)):
            accepted = ", ".join((*TABLE_ENDS, f"{GIFT_END} of GIFT"))
            raise UnusableFile(IssueCode.FILE_TYPE_UNUSABLE, place, accepted=accepted)
        if not (base / name).is_file():
            raise UnusableFile(IssueCode.FILE_MISSING, place, base=base)
    return tuple(name for name in words.tables if name.lower().endswith(ends))


def tables_with(base: Path, words: OwnWords, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return for each table of people those of `columns` that it alone has; `UnusableFile`."""
    named = {name: _header(base, name) for name in _named(base, words, TABLE_ENDS)}
    headers = named | {name: _header(base, name) for name in _of_bids(base) if name not in named}
    found: dict[str, list[str]] = {}
    for column in columns:
        having = [name for name, header in named.items() if column.lower() in header]
        # A table that the site names stands before those that BIDS has.
        having = having or [name for name, head in headers.items() if column.lower() in head]
        if len(having) > 1:
            raise UnusableFile(IssueCode.COLUMN_AGAIN, f"{column}: {', '.join(having)}")
        if not having:
            names = dict.fromkeys(name for header in headers.values() for name in header)
            looked_at = ", ".join(headers) or f"no {PARTICIPANTS}, no {PHENOTYPE}"
            observed = f"{column}{did_you_mean(column.lower(), names)}: {looked_at}"
            raise UnusableFile(IssueCode.GROUP_COLUMN, observed, columns=", ".join(columns))
        found.setdefault(having[0], []).append(column)
    return found


def table_of_outcomes(base: Path, words: OwnWords, comparison: Comparison) -> str:
    """Return the name of the file whose rows are the people that are compared; `UnusableFile`."""
    if comparison.of_gift:
        return gift_results(base, words)
    return table_with(base, words, comparison.outcomes)


def table_with(base: Path, words: OwnWords, columns: Sequence[str]) -> str:
    """Return the one table of people that has all of `columns`; `UnusableFile`."""
    found = tables_with(base, words, columns)
    if len(found) > 1:
        parts = (f"{name} ({', '.join(own)})" for name, own in found.items())
        raise UnusableFile(IssueCode.OUTCOMES_APART, "; ".join(parts))
    return next(iter(found))


def _header(base: Path, name: str) -> list[str]:
    try:
        header, _ = rows_of_people(base / name)
    except UnusableFile as err:
        raise err.issue.verdict(f"{name}: ") from None
    return column_names(header)
