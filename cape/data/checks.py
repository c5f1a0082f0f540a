"""The checks that need the content of a subject, or several subjects of a site.

Thresholds are public constants.  Each rule names its row of the table of bad inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cape.config import Config, parse_shape
from cape.data.files import RunFile, same_data_twice
from cape.data.findings import Findings, Severity
from cape.data.signals import UNREAD, Quality
from cape.frozen import dataclass

MOST_BAD = 0.001
"""Row 25: share of NaN or infinite entries above which a subject is left out."""

MOST_CONSTANT = 0.2
"""Row 26: share of constant features above which a subject is left out."""

FULL_COVERAGE, LEAST_COVERAGE = 0.8, 0.5
"""Row 28: share of features with signal below which the site is warned, the subject left out."""

DUMMY_Z = 6.0
"""Row 35: robust z of the first volume above which dummy scans are suspected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What is known about one subject after reading it; private.

    Attributes
    ----------
    label : str
        Subject.
    site : str
        Public id of the site.
    runs : tuple of RunFile
        Files, in the order in which they are joined.
    digests : tuple of str
        SHA-256 of each file; empty if only headers were read.
    n_features, n_timepoints : int
        D, and T_m after dropping dummies and joining.
    trs : tuple of float
        Repetition time of each run, s; 0 if unknown.
    quality : Quality
        Counts over all runs; `UNREAD` if only headers were read.
    rank : int
        Numerical rank of the preprocessed data; of headers only its bound min(D, T_m).
    grid : str
        "ok", "reoriented", a displacement such as "0.004 vox", or "-" for matrices.
    """

    label: str
    site: str
    runs: tuple[RunFile, ...]
    digests: tuple[str, ...]
    n_features: int
    n_timepoints: int
    trs: tuple[float, ...]
    quality: Quality
    rank: int
    grid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunShape:
    """Shape of one run, and the digest of its values; empty if they were not read."""

    name: str
    n_features: int
    n_timepoints: int
    values_digest: str
    columns: tuple[str, ...] = ()


def components_of(config: Config) -> int:
    """Return R if the computation has components, else 0."""
    return int(getattr(config, "n_components", 0))


def exclusion(config: Config) -> Severity:
    """Return the severity of a subject that fails: left out, or a stop."""
    return "X" if config.exclude_bad_subjects else "E"


def judge(subject: Subject, config: Config, findings: Findings) -> bool:
    """Return whether a subject is accepted; note rows 25 to 29, 34, 35 and 48.

    Of an unread subject only length and repetition time can be judged: rows 29, 34 and 48.
    """
    bad = exclusion(config)
    severities = [
        *_length(subject, config, bad, findings),
        *_repetition_time(subject, config, bad, findings),
    ]
    if subject.quality is UNREAD:
        return not {"E", "X"} & set(severities)
    severities += _content(subject, bad, findings)
    if subject.quality.dummy_z > DUMMY_Z:
        findings.add(
            35, "W", "The first volume differs from the others: dummy scans?",
            f"{subject.label}: z {subject.quality.dummy_z:.0f}", expected=f"z below {DUMMY_Z:g}",
            fix="write n_dummy in the manifest, or ask the owner for drop_first_volumes",
        )  # fmt: skip
    return not {"E", "X"} & set(severities)


def _content(subject: Subject, bad: Severity, findings: Findings) -> list[Severity]:
    """Note rows 25 to 28: image content."""
    quality, label = subject.quality, subject.label
    if quality.n_zero + quality.n_constant == quality.n_features:
        findings.add(
            27, bad, "A subject is constant or zero everywhere", label, expected="a signal",
            fix="convert it again, or leave it out",
        )  # fmt: skip
        return [bad]
    severities: list[Severity] = []
    if quality.n_bad:
        severities.append(bad if quality.bad_fraction > MOST_BAD else "W")
        findings.add(
            25, severities[-1],
            "A subject has too many NaN or infinite values" if severities[-1] == bad
            else "NaN or infinite values were set to the mean of their voxel",
            f"{label}: {quality.n_bad} values, {100 * quality.bad_fraction:.3g} %",
            expected=f"none; at most {100 * MOST_BAD:g} %", fix="convert it again",
        )  # fmt: skip
    if quality.n_constant:
        severities.append(bad if quality.constant_fraction > MOST_CONSTANT else "W")
        findings.add(
            26, severities[-1],
            "A subject has too many constant voxels" if severities[-1] == bad
            else "Constant voxels were set to 0",
            f"{label}: {100 * quality.constant_fraction:.3g} %",
            expected=f"at most {100 * MOST_CONSTANT:g} %", fix="check mask and preprocessing",
        )  # fmt: skip
    if quality.coverage < FULL_COVERAGE:
        severities.append(bad if quality.coverage < LEAST_COVERAGE else "W")
        limit = LEAST_COVERAGE if severities[-1] == bad else FULL_COVERAGE
        findings.add(
            28, severities[-1], "A subject does not cover the mask",
            f"{label}: {100 * quality.coverage:.3g} % of the mask is not 0",
            expected=f"at least {100 * limit:g} %", fix="check field of view and normalisation",
        )  # fmt: skip
    return severities


def _length(subject: Subject, config: Config, bad: Severity, findings: Findings) -> list[Severity]:
    """Note row 29 (too few or cut time points) and row 48 (rank)."""
    n_times, n_components = subject.n_timepoints, components_of(config)
    if config.max_timepoints and n_times > config.max_timepoints:
        findings.add(
            29, "W", "Time points past max_timepoints are not used",
            f"{subject.label}: {n_times} time points", expected=f"at most {config.max_timepoints}",
        )  # fmt: skip
    if n_times < config.min_timepoints or n_times <= n_components:
        limits = f"min_timepoints = {config.min_timepoints}"
        if n_components:
            limits += f", and more than n_components = {n_components}"
        findings.add(
            29, bad, "A subject has too few time points",
            f"{subject.label}: {n_times} time points", expected=limits,
            fix="lower n_components or min_timepoints (the owner), or drop the subject",
        )  # fmt: skip
        return [bad]
    if subject.rank < n_components:
        findings.add(
            48, bad, "A subject has a lower rank than there are components",
            f"{subject.label}: rank {subject.rank}",
            expected=f"at least n_components = {n_components}",
            fix="use data with fewer signals removed, or lower n_components (the owner)",
        )  # fmt: skip
        return [bad]
    return []


def judge_site(
    subjects: Sequence[Subject],
    accepted: Sequence[Subject],
    n_listed: int,
    config: Config,
    findings: Findings,
) -> None:
    """Note rows 21, 30, 34, and stop when too many subjects fail.

    Parameters
    ----------
    subjects, accepted : sequence of Subject
        All that could be read, and those among them that passed.
    n_listed : int
        Subjects that the site listed.
    config, findings
        Limits, and where to note.
    """
    outside = [s for s in subjects if 0 < s.quality.coverage < LEAST_COVERAGE]
    if subjects and 2 * len(outside) >= len(subjects):
        findings.add(
            21, "E", "Most subjects have no signal in half of the mask: not in the common space?",
            f"{len(outside)} of {len(subjects)} subjects", expected="images normalised to MNI152",
            fix="use the normalised images, not those in native space",
        )  # fmt: skip
    n_failed = n_listed - len(accepted)
    allowed = int(config.max_excluded_fraction * n_listed)
    if n_listed and (n_failed > allowed or not accepted):
        findings.escalate(
            f"{n_failed} of {n_listed} subjects fail, max_excluded_fraction = "
            f"{config.max_excluded_fraction:g} allows {allowed}"
        )
    n_components = components_of(config)
    if 0 < len(accepted) < n_components:
        findings.add(
            30, "W", "The site has fewer subjects than there are components",
            f"{len(accepted)} subjects", expected=f"n_components = {n_components} or more; the "
            "consortium as a whole must have them",
        )  # fmt: skip
    _repetition_times(accepted, config, findings)


def _repetition_time(
    subject: Subject, config: Config, bad: Severity, findings: Findings
) -> list[Severity]:
    """Note row 34 for a subject that is not of the owner's `tr`: the whole run would end (E134)."""
    if not config.tr:
        return []
    # As rounded in the site's card: who passes here does not end the run there.
    known = [round(tr, 3) for tr in subject.trs if tr > 0]
    wrong = [tr for tr in known if max(config.tr - tr, tr - config.tr) > config.tr_tolerance]
    for tr in wrong:
        findings.add(
            34, bad, "The repetition time of a subject is not that of the settings",
            f"{subject.label}: {tr:g} s", expected=f"{config.tr:g} s (tr)",
            fix="correct column 'tr' of the manifest, or leave the subject out",
            sites=f"within site {findings.site}", allowed=f"{config.tr:g}",
        )  # fmt: skip
    return [bad] * len(wrong)


def _repetition_times(accepted: Sequence[Subject], config: Config, findings: Findings) -> None:
    """Warn of subjects that differ from the others of the site, if the owner sets no `tr`."""
    known = [(s.label, tr) for s in accepted for tr in s.trs if tr > 0]
    if config.tr or not known:
        return
    middle = float(np.median([tr for _, tr in known]))
    for label, tr in known:
        if abs(tr - middle) > config.tr_tolerance:
            findings.add(
                34, "W", "The repetition time differs", f"{label}: {tr:g} s",
                expected=f"{middle:g} s (most subjects)",
                fix="correct column 'tr' of the manifest, or leave the subject out",
                sites=f"within site {findings.site}", allowed=config.tr_tolerance,
            )  # fmt: skip


def same_values_twice(shapes: Sequence[RunShape], findings: Findings) -> None:
    """Note row 5 for runs with equal values, whatever their files are called."""
    first: dict[str, str] = {}
    for shape in shapes:
        if shape.n_features * shape.n_timepoints == 0 or not shape.values_digest:
            continue
        if shape.values_digest in first:
            same_data_twice(first[shape.values_digest], shape.name, findings)
        first.setdefault(shape.values_digest, shape.name)


def columns_of_runs(shapes: Sequence[RunShape], findings: Findings) -> tuple[str, ...]:
    """Return the names that the features of text tables have, () without; note row 44."""
    named = [shape for shape in shapes if shape.columns]
    if not named:
        return ()
    first = named[0]
    for shape in named[1:]:
        if len(shape.columns) == len(first.columns) and shape.columns != first.columns:
            i = next(i for i, pair in enumerate(zip(shape.columns, first.columns, strict=True))
                     if pair[0] != pair[1])  # fmt: skip
            findings.add(
                44, "E", "The columns of a table have other names than those of the others",
                f"{shape.name}: column {i + 1} is '{shape.columns[i][:20]}'",
                expected=f"'{first.columns[i][:20]}' as in {first.name}",
                fix="use the same header everywhere, in the same order",
                sites=f"within site {findings.site}",
            )  # fmt: skip
    return first.columns


def features_of(shapes: Sequence[RunShape], config: Config, findings: Findings) -> int:
    """Return D of array files (0 if unknown); note rows 43 and 44.

    D is the size of `image_shape`, else what most runs have; a run that has it as its number of
    time points is transposed.
    """
    if not shapes:
        return 0
    if config.image_shape:
        wanted = int(np.prod(parse_shape(config.image_shape)))
    else:
        wanted, votes = Counter(shape.n_features for shape in shapes).most_common(1)[0]
        other, other_votes = Counter(shape.n_timepoints for shape in shapes).most_common(1)[0]
        if len(shapes) > 1 and votes < len(shapes) and other_votes == len(shapes):
            wanted = other  # the axis that is equal everywhere must be that of the features
    for shape in shapes:
        if shape.n_features == wanted:
            continue
        found = f"{shape.name}: {shape.n_features} features, {shape.n_timepoints} time points"
        if shape.n_timepoints == wanted:
            findings.add(
                43, "E", "A matrix seems to be transposed", found, expected=f"{wanted} features",
                fix="transpose it, or ask the owner for the other orientation",
            )  # fmt: skip
        else:
            findings.add(
                44, "E", "A matrix has another number of features than the others", found,
                expected=f"{wanted} features", fix="use the same features everywhere",
                sites=f"within site {findings.site}",
            )  # fmt: skip
    return wanted
