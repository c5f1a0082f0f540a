"""Folders in BIDS layout: where images lie, which of them a run takes, what lies beside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

from cape.data.exclusions import ListOfPeople, leave_out
from cape.data.file_type import CIFTI_SUFFIX, visible
from cape.data.issues import Findings, IssueCode
from cape.data.people import Entities, entities_of, has_all, natural_key, subject_of
from cape.data.runs import ListedRun
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.settings.words import parse_entities, parse_exclusions

CONFOUND_ENDS: Final = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
# Entities that tell versions of one run apart.
VERSIONS: Final = ("space", "res", "desc", "den", "cohort", "seg", "atlas", "stat", "echo")
# Entities listed where no image fits: the first ones show how the names are made.
MOST_ENTITIES: Final = 6
PLACES: Final = ("sub-*", "sub-*/ses-*")
PATTERNS: Final = tuple(f"{place}/func/*_bold.nii*" for place in PLACES)
CIFTI_PATTERNS: Final = {
    space: tuple(f"{place}/func/*{suffix}" for place in PLACES)
    for space, suffix in CIFTI_SUFFIX.items()
}
EVERY_PATTERN: Final = (*PATTERNS, *itertools.chain(*CIFTI_PATTERNS.values()))


def patterns_of(config: Config) -> tuple[str, ...]:
    """Return where a BIDS folder has the files of a feature space."""
    return CIFTI_PATTERNS.get(config.feature_space, PATTERNS)


def bids_files(base: Path, patterns: Sequence[str] = EVERY_PATTERN) -> Iterator[Path]:
    return (path for pattern in patterns for path in base.glob(pattern) if visible(path))


def is_bids(base: Path, patterns: Sequence[str] = EVERY_PATTERN) -> bool:
    # The first match will do: a study has thousands.
    return any(True for _ in bids_files(base, patterns))


def confounds_beside(image: Path) -> Path | None:
    # One table serves all versions of a run: its name has none of their entities.
    run = [f"{k}-{v}" for k, v in entities_of(image.name).items() if k not in VERSIONS]
    if not run:
        return None
    tables = (image.with_name("_".join(run) + end) for end in CONFOUND_ENDS)
    # A link whose content was not fetched is told as that, not as no table.
    return next((table for table in tables if table.is_file() or table.is_symlink()), None)


class Image(NamedTuple):
    """A file of the layout, known by its name."""

    name: str  # below the site's folder
    subject: str
    entities: dict[str, str]

    @property
    def run(self) -> Entities:
        """Return what all versions of a run have in common."""
        return tuple((k, v) for k, v in self.entities.items() if k not in VERSIONS)

    def listed(self) -> ListedRun:
        order = "_".join(f"{key}-{value}" for key, value in self.run if key not in ("sub", "ses"))
        session = self.entities.get("ses", "")
        return ListedRun(file=self.name, subject=self.subject, ses=session, run=order)


def bids_runs(
    base: Path, folder: str, config: Config, lists: Sequence[ListOfPeople], findings: Findings
) -> tuple[ListedRun, ...]:
    """Return the runs that owner and site take, and who of the site is there without one.

    Runs that a list of the site leaves out are among them, and say so.
    """
    images = [
        Image(
            path.relative_to(base).as_posix(), subject_of(path.as_posix()), entities_of(path.name)
        )
        for path in sorted(set(bids_files(base / folder, patterns_of(config))))
    ]
    marked = leave_out([image.listed() for image in images], lists, findings)
    gone = {run.file for run in marked if run.left_out}
    # Everybody whose name is there, whatever the owner's filter: it must not ask who has which run,
    # nor whether anybody has.  The site itself may leave people out.
    people = {image.subject for image in images if image.name not in gone}
    entities, place = resolve(config).entities, f"{len(images)} images below {folder or '.'}"
    wanted, unwanted = parse_entities(entities), parse_exclusions(config.bids_exclude)
    taken = [
        image
        for image in images
        if has_all(image.entities, wanted)
        and not any(has_all(image.entities, part) for part in unwanted)
        and image.name not in gone
    ]
    doubled = _with_two_versions(taken, findings)
    if not people:
        findings.add(IssueCode.NO_FILES, place)
    elif not taken:
        findings.add(IssueCode.NO_BIDS_MATCH, place + _entities_there(images), wanted=entities)
    runs = [image.listed() for image in taken if image.subject not in doubled]
    without = people - {run.subject for run in runs}
    for subject in sorted(without - doubled if taken else (), key=natural_key):
        findings.add(IssueCode.NO_BIDS_IMAGE, subject, wanted=entities)
    nobodys = (ListedRun(file="", subject=name) for name in sorted(without, key=natural_key))
    return (*runs, *nobodys, *(run for run in marked if run.left_out))


def _with_two_versions(images: Sequence[Image], findings: Findings) -> Set[str]:
    """Return who has two versions of a run: joined, they would be the same data twice."""
    versions: dict[tuple[str, Entities], str] = {}
    doubled = set()
    for image in images:
        first = versions.setdefault((image.subject, image.run), image.name)
        if first != image.name:
            findings.add(IssueCode.RUN_VERSIONS, f"{first} and {image.name}")
            doubled.add(image.subject)
    return doubled


def _entities_there(images: Sequence[Image]) -> str:
    pairs = (pair for image in images for pair in image.entities.items())
    there = sorted({f"{k}-{v}" for k, v in pairs if k in ("task", *VERSIONS[:3])})
    return f" with {', '.join(there[:MOST_ENTITIES])}" if there else ""
