"""A site's tables of people: which files they are, and where the columns stand that are asked for.

The owner names columns, the site names files: those of `tables` in its own file, else
participants.tsv and phenotype/*.tsv as BIDS has them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.file_type import visible
from cape.data.folders import PARTICIPANTS
from cape.data.issues import IssueCode, UnusableFile
from cape.data.runs import leads_out
from cape.data.tables import PERSON, SESSION, column_names, rows_of_people
from cape.settings.documents import toml_key, toml_value
from cape.settings.option import nearest
from cape.settings.own_words import POLICY_FILE, OwnWords, folded
from cape.settings.question import Question, Variable, plain
from cape.settings.usual import are_alike

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
    absent: dict[str, str] = {}
    for column in columns:
        own = folded(words.column(column))
        having = [name for name, header in named.items() if own in header]
        # A table that the site names stands before those that BIDS has.
        having = having or [name for name, header in headers.items() if own in header]
        if len(having) > 1:
            raise UnusableFile(IssueCode.COLUMN_AGAIN, f"{own}: {', '.join(having)}")
        if having:
            found.setdefault(having[0], []).append(column)
        else:
            absent[column] = own
    if absent:
        raise _without_columns(absent, headers)
    for name in found:
        # A row is read from its left end, so that its first cell is what no fault can move.
        if PERSON in headers[name][1:] and headers[name][0] != PERSON:
            raise UnusableFile(IssueCode.PERSON_FIRST, f"{name}: {', '.join(headers[name])[:80]}")
    return found


def near_name(name: str, others: Iterable[str]) -> str:
    """Return the name of a column that may be the same under another name; "" if none is."""
    others = list(others)
    return next((one for one in others if are_alike(one, name)), "") or nearest(name, others)


def _without_columns(
    absent: Mapping[str, str], headers: Mapping[str, Sequence[str]]
) -> UnusableFile:
    """Return the verdict on tables without columns, with the lines that say their names there.

    `absent`: by the owner's word the site's.  Others read the first alone.
    """
    names = dict.fromkeys(name for header in headers.values() for name in header)
    near = {column: near_name(own, names) for column, own in absent.items()}
    asked = (
        f"{own}; did you mean '{near[column]}'?" if near[column] else own
        for column, own in absent.items()
    )
    looked_at = ", ".join(headers) or f"no {PARTICIPANTS}, no {PHENOTYPE}"
    lines = (
        f"variables.{toml_key(column)}.column = {toml_value(one or '...')}"
        for column, one in near.items()
    )
    return UnusableFile(
        IssueCode.GROUP_COLUMN,
        f"{', '.join(asked)}: {looked_at}",
        f"column {next(iter(absent))}",
        column=", ".join(absent),
        line=", ".join(lines),
    )


def lacking(question: Question, words: OwnWords) -> tuple[str, ...]:
    """Return the outcomes of tables that a site states it does not have."""
    stated = set(map(folded, words.lacks))
    names = (one.name for one in question.outcomes if question.measure is None)
    return tuple(name for name in names if name.lower() in stated)


def column_faults(base: Path, words: OwnWords, question: Question) -> list[UnusableFile]:
    """Return why the site's tables lack columns that a question names."""
    faults = []
    for check in (_check_variables, _check_outcomes):
        try:
            check(base, words, question)
        except UnusableFile as verdict:
            faults.append(verdict)
    return faults


def _check_variables(base: Path, words: OwnWords, question: Question) -> None:
    tables_with(base, words, [v.name for v in question.variables if v.name not in question.of_runs])
    for one in question.variables:
        if not one.is_range:
            levels_here(one, words)


def _check_outcomes(base: Path, words: OwnWords, question: Question) -> None:
    if question.of_tables:
        table = table_of_outcomes(base, words, question)
        if question.change and SESSION not in _header(base, table):
            raise UnusableFile(IssueCode.SESSION_COLUMN, table)


def table_of_outcomes(base: Path, words: OwnWords, question: Question) -> str:
    """Return the name of the file whose rows are the people that are compared; `UnusableFile`."""
    if question.of_gift:
        return gift_results(base, words)
    lacks = lacking(question, words)
    columns = [one.name for one in question.outcomes if one.name not in lacks]
    if not columns:
        observed = f"lacks in {POLICY_FILE} has all of {', '.join(lacks)}"
        raise UnusableFile(IssueCode.LACKS_ALL, observed)
    try:
        return table_with(base, words, columns)
    except UnusableFile as verdict:
        if verdict.issue.code is not IssueCode.GROUP_COLUMN:
            raise
        # With the line that states all that are missing.
        there = {name for table in tables_of(base, words) for name in _header(base, table)}
        absent = [name for name in columns if folded(words.column(name)) not in there]
        line = f"lacks = {toml_value([*words.lacks, *absent])}"
        issue = verdict.issue
        raise UnusableFile(
            IssueCode.OUTCOME_COLUMN, issue.observed, issue.what, **{**issue.values, "lacks": line}
        ) from None


def table_with(base: Path, words: OwnWords, columns: Sequence[str]) -> str:
    """Return the one table of people that has all of `columns`; `UnusableFile`."""
    found = tables_with(base, words, columns)
    if len(found) > 1:
        parts = (f"{name} ({', '.join(own)})" for name, own in found.items())
        raise UnusableFile(IssueCode.OUTCOMES_APART, "; ".join(parts))
    return next(iter(found))


def levels_here(variable: Variable, words: OwnWords) -> dict[str, str]:
    """Return the levels of a variable by the words of the site's tables, as `plain` gives them.

    `UnusableFile`: two levels have one word.
    """
    said = {plain(level): word for level, word in words.level_words(variable.name).items()}
    each = [(plain(said.get(plain(level), level)), level) for level in variable.levels]
    found = dict(each)
    if len(found) < len(each):
        shown = ", ".join(word for word, _ in each)
        raise UnusableFile(IssueCode.LEVEL_WORDS, f"{variable.name}: {shown}")
    return found


def _header(base: Path, name: str) -> list[str]:
    try:
        header, _ = rows_of_people(base / name)
    except UnusableFile as err:
        raise err.issue.verdict(f"{name}: ") from None
    return column_names(header)
