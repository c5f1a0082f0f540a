"""Whom the reader of people finds in a folder, and what `cape people` prints of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cape.cli import main
from cape.data.folders import sites_below
from cape.data.issues import Findings
from cape.data.people import PeopleList, read_people
from cape.data.runs import Person
from cape.settings.config import Config

IMAGES = Config(epsilon=1.0, delta=1e-5)
MATRIX = Config(epsilon=1.0, delta=1e-5, feature_space="matrix", n_features=1)


def people_said(folder: Path, capsys: Any, *typed: str) -> dict[str, Any]:
    """Return what `cape people --json` says of a folder."""
    capsys.readouterr()
    code = main(["people", str(folder), *typed, "--json"])
    said = json.loads(capsys.readouterr().out.splitlines()[0])
    assert code == (2 if said["refused"] else 0)
    return said


def sites_of(folder: Path) -> dict[str, Path]:
    return sites_below(folder) or {"": folder}


def read_all(
    folder: Path, config: Config = IMAGES, listing: Mapping[str, object] | None = None
) -> tuple[PeopleList, list[str]]:
    """Return the list of a site, and what was found, each with its severity first."""
    findings = Findings("B")
    people = read_people(folder, config, findings, listing=listing or {})
    return people, [f"{finding.severity} {finding.private}" for finding in findings.listing()]


def read(
    folder: Path, config: Config = IMAGES, listing: Mapping[str, object] | None = None
) -> tuple[Person, ...] | None:
    """Return the people who take part; None if the site is refused."""
    people, texts = read_all(folder, config, listing)
    return None if any(text.startswith("E ") for text in texts) else people.listed
