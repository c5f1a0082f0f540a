"""``cape people``: show whose the files of a folder are; its output is private to the site."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cape.cli.common import AsJson, RefusedEnd, Replace, check_free, present, result
from cape.counting import number_of

if TYPE_CHECKING:
    from cape.data.runs import Person
    from cape.planning.people import SitePeople

# Files named where some are not taken
_MAX_NAMED = 3


def people_command(
    folder: Path,
    layout: str = "",
    bids_filter: str | None = None,
    bids_exclude: str | None = None,
    write: Path | None = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Show who the people of a folder are, their runs, who is left out, and what is not taken."""
    from cape.data.people import labels_that_recur
    from cape.planning.people import keep_layout, people_below, write_manifest

    check_free(write, replace=replace, option="--write")
    saved = []
    if layout:
        saved.append(f"saved in {keep_layout(folder, layout)}, which never leaves this site")
    found = people_below(folder, present(bids_filter=bids_filter, bids_exclude=bids_exclude))
    if write is not None:
        done = write_manifest(write, found)
        saved.append(f"written: {write}{'' if done else _FILL_IN}")
    recurring = labels_that_recur(
        {each.site: each.people.stated for each in found if not each.refused}
    )
    refused = [each for each in found if each.refused]
    fields: dict[str, object] = {
        "people": [row for each in found for row in _rows(each, folder)],
        "not_taken": [
            {"path": _from(folder, each, name.path), "why": name.why}
            for each in found
            for name in each.people.not_taken
        ],
        "refused": None,
    }
    if refusals := [each.refused for each in refused if each.refused]:
        ways = dict.fromkeys(way for each in refusals for way in each.ways)
        first = refusals[0]
        fields["refused"] = {"code": first.code, "text": first.text, "ways": list(ways)}
    texts = [text for each in found for text in _told(each)]
    result(fields, *texts, *filter(None, [recurring]), *saved, as_json=as_json)
    if refused:
        raise RefusedEnd


_FILL_IN = "; fill in its column participant_id, one label a person"


def _from(folder: Path, each: SitePeople, name: str) -> str:
    front = os.path.relpath(each.people.folder, folder)
    return name if front == "." else f"{front}/{name}"


def _rows(each: SitePeople, folder: Path) -> list[Mapping[str, Any]]:
    return [
        {
            "site": each.site,
            "person": person.label.removeprefix("sub-"),
            "left_out": person.left_out or None,
            "runs": [
                {"path": _from(folder, each, run.name), "session": run.session, "run": run.run}
                for run in person.runs
            ],
        }
        for person in (() if each.refused else each.people.people)
    ]


def _told(each: SitePeople) -> list[str]:
    people, texts = each.people, []
    if each.refused:
        texts.append(f"{people.folder}: refused\n{each.refused.text}")
        return [*texts, *(f"  {way}" for way in each.refused.ways)]
    runs = number_of(sum(len(person.runs) for person in people.listed), "run")
    listed = number_of(len(people.listed), "person")
    texts.append(f"{people.folder}: {listed}, {runs}, stated by {people.source}")
    texts += people.said
    texts += [f"  {_in_a_line(person)}" for person in people.people]
    whys = Counter(name.why for name in people.not_taken)
    for why, n in whys.most_common():
        first = next(name.path for name in people.not_taken if name.why == why)
        texts.append(f"not taken: {first}{f' and {n - 1} more' if n > 1 else ''}: {why}")
    return [*texts, *each.warnings]


def _in_a_line(person: Person) -> str:
    if person.left_out:
        return f"{person.label}: left out, {person.left_out}"
    sessions = [run.session and f"session {run.session}" for run in person.runs]
    runs = [
        " ".join(filter(None, (session, run.run))) or run.path.name
        for session, run in zip(sessions, person.runs, strict=True)
    ]
    more = " ..." if len(runs) > _MAX_NAMED else ""
    count = number_of(len(runs), "run")
    return f"{person.label}: {count}: {', '.join(runs[:_MAX_NAMED])}{more}"
