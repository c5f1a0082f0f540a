"""``cape people``: show whose the files of a folder are; its output is private to the site."""

from __future__ import annotations

import csv
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cape.cli.common import AsJson, folder_argument, result

if TYPE_CHECKING:
    from cape.planning.people import FolderOfPeople

# Longest list of choices that is printed
MAX_LINES = 6


def people_command(
    folder: Annotated[Path, folder_argument("Data of one site, or a folder per site.")],
    layout: Annotated[
        list[str] | None,
        typer.Option(help="Where {subject}, {session} and {run} stand in paths; repeat it."),
    ] = None,
    folders: Annotated[
        str,
        typer.Option(
            help="Meaning of the folders above people: sites, groups, sessions, versions."
        ),
    ] = "",
    as_named: Annotated[
        bool, typer.Option("--as-named", help="Treat labels that look alike as different people.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Write a manifest.csv of all files, in which to fill in people."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whose the files of a folder are and how certain that is; save what you confirm."""
    from cape.planning.people import confirm, people_below, words_typed

    typed = words_typed(layout or (), folders, as_named=as_named)
    folders_read = [confirm(folder, typed)] if typed else people_below(folder)
    saved = f"saved in {folder / 'site-policy.toml'}, which never leaves this site" if typed else ""
    if write is not None:
        saved = f"written: {write}"
        if not _write_manifest(write, folders_read):
            saved += "; fill in its column subject, one label a person"
    lines = [line for each in folders_read for line in _lines(each)]
    texts = [text for each in folders_read for text in _told(each)]
    fields = {
        "level": min((each.reading.level for each in folders_read), key=_LEVELS.index),
        "images": [image for each in folders_read for image in _images(each, folder)],
        "lines": lines,
        "commands": [command for each in folders_read for command in each.reading.commands],
        "left_out": [text for each in folders_read for text in each.left_out],
        "not_in_layout": [
            path for each in folders_read for path in (*each.reading.left, *each.reading.atlases)
        ],
    }
    result(fields, *texts, *([saved] if saved else []), as_json=as_json)


_LEVELS = ("unknown", "choice", "inferred", "proved")


def _images(found: FolderOfPeople, folder: Path) -> list[Mapping[str, Any]]:
    front = os.path.relpath(found.folder, folder)
    return [
        {
            "path": image.path if front == "." else f"{front}/{image.path}",
            "site": found.site or image.site,
            "subject": image.subject,
            "session": " ".join(
                v for k, v in image.run.items() if k in ("ses", "session", "folder")
            ),
            "run": " ".join(
                f"{k}-{v}" for k, v in image.run.items() if k not in ("ses", "session", "folder")
            ),
            "version": image.version,
            "taken": image.path not in found.taken.why_not,
            "why": found.taken.why_not.get(image.path, ""),
        }
        for image in found.taken.images
    ]


def _lines(found: FolderOfPeople) -> list[str]:
    where = shlex.quote(str(found.folder))
    return [f"cape people {where} {shlex.join(line.typed)}" for line in found.lines[:MAX_LINES]]


def _told(found: FolderOfPeople) -> list[str]:
    reading, taken = found.reading, found.taken
    runs = {image.acquired for image in taken.images if not image.whole}
    several = f", {len(reading.sites)} sites" if len(reading.sites) > 1 else ""
    texts = [
        f"{found.folder}: {len(taken.images)} series, {len(reading.people)} people, "
        f"{len(runs)} runs{several}",
        f"{reading.level}{f', {reading.evidence}' if reading.evidence else ''}"
        + (f": {reading.why}" if reading.why else ""),
        *found.left_out,
    ]
    for site, subject in reading.people[:3]:
        files = [image.path for image in taken.images if image.person == (site, subject)]
        texts.append(f"  {subject}: {', '.join(files[:3])}{' ..' if len(files) > 3 else ''}")
    wholes = [image.path for image in taken.images if image.whole]
    if wholes:
        texts.append(
            f"left out because they repeat others: {len(wholes)} files such as {wholes[0]}"
        )
    if reading.atlases:
        texts.append(f"taken for an atlas by its name, not for data: {', '.join(reading.atlases)}")
    if reading.left:
        texts.append(f"not in this layout: {len(reading.left)} files such as {reading.left[0]}")
    if doubled := len(found.taken.doubled):
        texts.append(f"{doubled} runs have several versions; one of each is used")
    texts += [
        f"{line.says}:\n  {typed}" for line, typed in zip(found.lines, _lines(found), strict=False)
    ]
    if reading.commands:
        texts += [
            "These commands convert files to a readable format:",
            *reading.commands[:MAX_LINES],
        ]
    if (taken.images or found.series) and reading.level != "proved":
        where = shlex.quote(str(found.folder))
        manifest = shlex.quote(str(found.folder / "manifest.csv"))
        ask = "If none of these is right: " if taken.images else "Write a list: "
        texts.append(f"{ask}cape people {where} --write {manifest}, and fill in the people.")
    return texts


def _write_manifest(path: Path, found: Sequence[FolderOfPeople]) -> bool:
    """Write all files with their people where proved; True if every file has its person."""
    from cape.errors import ConfigError

    if path.exists():
        do = "choose another --write, or remove it."
        raise ConfigError("E016", problem=f"{path} exists already", do=do)
    files = {
        os.path.relpath(each.folder / name, path.parent): person
        for each in found
        for name, person in each.people_by_file.items()
    }
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("file", "subject"))
        rows.writerows((Path(name).as_posix(), person) for name, person in files.items())
    return all(files.values())
