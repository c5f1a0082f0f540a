"""Checks that need the content of a subject, or several subjects of a site.

Acceptance depends on one subject and public limits, never on other people's data.  The owner
declares features and their names; without noise they may come from the first file.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cape.counting import number_of
from cape.data.cleaning import UNREAD, Quality
from cape.data.issues import Findings, Issue, IssueCode
from cape.data.runs import SiteRun
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import resolve

# Fraction of NaN or infinite entries above which a subject fails.
MAX_BAD: Final = 0.001
# Fraction of constant features above which a subject fails.
MAX_CONSTANT: Final = 0.2
# Fraction of features with signal: warned below the first, failed below the second.
FULL_COVERAGE: Final = 0.8
MIN_COVERAGE: Final = 0.5
# Fraction of a site's people who may fail before `validate` says that it is not ready.
MAX_FAILED: Final = 0.1
# Robust z of the first volume above which dummy scans are suspected.
DUMMY_Z: Final = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """Facts about one subject after reading it; private."""

    label: str
    site: str  # public id of the site
    runs: tuple[SiteRun, ...]  # in the order in which they are joined, as are the next three
    digests: tuple[str, ...]  # SHA-256 of each; empty if only headers were read
    trs: tuple[float, ...]  # repetition times, s; 0 if unknown
    n_volumes: tuple[int, ...] = ()  # stored volumes of each
    n_features: int  # D
    n_timepoints: int  # T_m, without dummies and scrubbed volumes
    quality: Quality  # counts over all runs; `UNREAD` if only headers were read
    rank: int  # numerical rank of the preprocessed data; of headers only its bound min(D, T_m)
    grid: str  # "ok", "reoriented", a displacement such as "0.004 vox", or "-" for matrices
    n_scrubbed: int = 0  # volumes removed by scrubbing
    left_out: tuple[int, ...] = ()  # positions of dummy and scrubbed volumes in the joined runs
    seconds: float = 0.0  # that remain; 0 if a repetition time is unknown
    mean_fd: float | None = None  # framewise displacement before scrubbing, mm; None: no table
    turned: tuple[str, ...] = ()  # of the images that are turned against their headers, how
    content: str = ""  # SHA-256 of X_m; empty if it was not read, or is a row of a table


@dataclass(frozen=True, kw_only=True, slots=True)
class RunShape:
    """Shape of one run, and the digest of its values; empty if they were not read."""

    name: str
    person: str  # label
    n_features: int
    n_timepoints: int
    values_digest: str
    columns: tuple[str, ...] = ()
    place: str = ""  # as in `Series`
    course: tuple[float, ...] = ()  # from `course_of`; empty if the values were not read


def judge_subject(subject: Subject, config: Config, findings: Findings) -> bool:
    """Tell whether a subject is accepted; an unread one is judged by its length and TR alone."""
    label = subject.label
    noted = [findings.add_issue(one, label, person=label) for one in _faults(subject, config)]
    return not {"E", "X"} & set(noted)


def _faults(subject: Subject, config: Config) -> Iterator[Issue]:
    limit = config.max_mean_fd
    if limit and subject.mean_fd is not None and subject.mean_fd > limit:
        # Reported alone: after too much motion no other finding matters.
        yield Issue(IssueCode.MOTION_HIGH, f"{subject.mean_fd:.2f} mm", {"most": limit})
        return
    quality = subject.quality
    if quality is not UNREAD and quality.n_bad == quality.n_values > 0:
        yield Issue(IssueCode.ALL_NAN, "")
        return
    # Reported alone: the other rules are broken as well, and would only distract.
    if quality is not UNREAD and quality.n_zero + quality.n_constant == quality.n_features:
        yield Issue(IssueCode.NO_SIGNAL, "")
        return
    for way in subject.turned:
        yield Issue(IssueCode.IMAGE_TURNED, f"{way}")
    yield from _length(subject, config)
    if config.tr:
        # To the ms: headers keep float32.  It never leaves its site.
        for tr in [round(tr, 3) for tr in subject.trs if tr > 0]:
            if abs(tr - config.tr) > config.tr_tolerance:
                yield Issue(IssueCode.TR_OTHER, f"{tr:g} s", {"tr": config.tr})
    if quality is not UNREAD:
        yield from _content(quality)
        if quality.n_empty:
            yield Issue(IssueCode.VOLUMES_EMPTY, number_of(quality.n_empty, "volume"))
        if quality.dummy_z > DUMMY_Z:
            yield Issue(IssueCode.DUMMY_SCANS, f"z {quality.dummy_z:.0f}", {"most": DUMMY_Z})


def _content(quality: Quality) -> Iterator[Issue]:
    if quality.n_bad:
        many = quality.bad_fraction > MAX_BAD
        code = IssueCode.NAN_TOO_MANY if many else IssueCode.NAN_FILLED
        seen = f"{quality.n_bad} values, {100 * quality.bad_fraction:.3g} %"
        yield Issue(code, seen, {"most": 100 * MAX_BAD})
    if quality.n_constant:
        many = quality.constant_fraction > MAX_CONSTANT
        code = IssueCode.CONSTANT_TOO_MANY if many else IssueCode.CONSTANT_ZEROED
        yield Issue(code, f"{100 * quality.constant_fraction:.3g} %", {"most": 100 * MAX_CONSTANT})
    if quality.coverage < FULL_COVERAGE:
        low = quality.coverage < MIN_COVERAGE
        code = IssueCode.COVERAGE_LOW if low else IssueCode.COVERAGE_PART
        least = MIN_COVERAGE if low else FULL_COVERAGE
        yield Issue(
            code, f"{100 * quality.coverage:.3g} % of the mask is not 0", {"least": 100 * least}
        )


def _length(subject: Subject, config: Config) -> Iterator[Issue]:
    n_times, n_components = (
        subject.n_timepoints,
        resolve(config).most_components(subject.n_features),
    )
    minutes = subject.seconds / 60
    too_short = n_times < config.min_timepoints or n_times <= n_components
    if subject.n_scrubbed and (too_short or minutes < config.min_minutes):
        seen = (
            f"{n_times} of {number_of(n_times + subject.n_scrubbed, 'volume')}, {minutes:.1f} min"
        )
        limits = f"min_timepoints = {config.min_timepoints}, min_minutes = {config.min_minutes:g}"
        yield Issue(IssueCode.SCRUBBED_SHORT, seen, {"limits": limits})
        return
    if minutes < config.min_minutes:
        yield Issue(IssueCode.MINUTES_FEW, f"{minutes:.1f} min", {"least": config.min_minutes})
        return
    seen = number_of(n_times, "time point")
    if config.max_timepoints and n_times > config.max_timepoints:
        yield Issue(IssueCode.TIME_CUT, seen, {"most": config.max_timepoints})
    if too_short:
        limits = f"min_timepoints = {config.min_timepoints}"
        if n_components:
            limits += f", and more than n_components = {n_components}"
        yield Issue(IssueCode.TIME_SHORT, seen, {"limits": limits})
    # Long enough, but denoising removed so many signals that R components cannot be separated.
    elif subject.rank < n_components:
        yield Issue(IssueCode.RANK_LOW, f"rank {subject.rank}", {"n_components": n_components})


def judge_site(
    subjects: Sequence[Subject],
    accepted: Sequence[Subject],
    n_listed: int,
    config: Config,
    findings: Findings,
    *,
    stop: bool = True,
) -> None:
    """Note findings of the site as a whole; if strict, too many failed subjects stop it.

    `stop`: so do more than half of the people who fail, and then nothing else is noted.
    """
    if stop:
        findings.stop_if_most_fail({subject.label for subject in accepted}, n_listed)
    if findings.most_fail:
        return
    outside = [s for s in subjects if 0 < s.quality.coverage < MIN_COVERAGE]
    # If half of the subjects miss the mask, the images are in native space.
    if subjects and 2 * len(outside) >= len(subjects):
        findings.add(
            IssueCode.NATIVE_SPACE, f"{len(outside)} of {number_of(len(subjects), 'subject')}"
        )
    # Failed subjects count as zeros and weaken every result: with many of them a person decides.
    n_failed, allowed = n_listed - len(accepted), int(MAX_FAILED * n_listed)
    if findings.strict and n_listed and (n_failed > allowed or not accepted):
        findings.escalate(
            f"{n_failed} of {number_of(n_listed, 'subject')} fail, at most {allowed} should"
        )
    resolved = resolve(config)
    n_components = resolved.max_components
    # R that follows from the run follows from its people, too.
    if math.isinf(resolved.room) and 0 < len(accepted) < n_components:
        place = number_of(len(accepted), "subject")
        findings.add(IssueCode.SUBJECTS_FEW, place, n_components=n_components)
    # Each subject was compared with the owner's `tr`; without it, with the others of the site.
    trs = [(s.label, tr) for s in accepted for tr in s.trs if tr > 0]
    if config.tr or not trs:
        return
    middle = float(np.median([tr for _, tr in trs]))
    for label, tr in trs:
        if abs(tr - middle) > config.tr_tolerance:
            findings.add(IssueCode.TR_DIFFERS, f"{label}: {tr:g} s", middle=middle)


def check_grids(shapes: Sequence[RunShape], findings: Findings) -> None:
    """Note images of no stated space whose grids differ from person to person."""
    people: dict[str, str] = {}
    for shape in shapes:
        if shape.place:
            people.setdefault(shape.place, shape.person)
    if len(set(people.values())) > 1:
        who = ", ".join(list(people.values())[:3])
        findings.add(IssueCode.NATIVE_GRIDS, f"{len(people)} grids, such as those of {who}")


def note_columns(
    shapes: Sequence[RunShape], wanted: tuple[str, ...], code: IssueCode, findings: Findings
) -> None:
    """Note tables with other names of columns; another number is a finding of its own."""
    alike = (shape.name for shape in shapes if shape.columns == wanted)
    first = next(alike, "the owner's setting columns")
    for shape in shapes:
        if len(shape.columns) != len(wanted) or shape.columns == wanted:
            continue
        pairs = enumerate(zip(shape.columns, wanted, strict=True), start=1)
        i, (name, there) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        place = f"{shape.name}: column {i} is '{name[:20]}'"
        place += ", the same names in another order" * (sorted(shape.columns) == sorted(wanted))
        findings.add(code, place, person=shape.person, wanted=there[:20], first=first)


def note_features(shapes: Sequence[RunShape], wanted: int, findings: Findings) -> None:
    for shape in shapes:
        if shape.n_features == wanted:
            continue
        place = f"{shape.name}: {number_of(shape.n_features, 'feature')}, "
        place += number_of(shape.n_timepoints, "time point")
        if shape.n_timepoints == wanted:
            findings.add(IssueCode.TRANSPOSED, place, person=shape.person, n_features=wanted)
        else:
            findings.add(IssueCode.FEATURES_DIFFER, place, person=shape.person, n_features=wanted)
