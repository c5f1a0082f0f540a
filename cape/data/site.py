"""All subjects of a site: every check before a run, then one subject at a time.

Nothing here mixes subjects: no group mean, no scale from several people.  Acceptance looks at each
subject alone, and at public limits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cape.algorithms.estimators import Array, Data
from cape.config import Config, parse_shape
from cape.data.checks import (
    Subject,
    columns_of_runs,
    features_of,
    judge,
    judge_site,
    same_values_twice,
)
from cape.data.files import IMAGE_SUFFIXES, MATRIX_SUFFIXES, discover
from cape.data.findings import Finding, Findings
from cape.data.records import columns_of, expand, with_records
from cape.data.resources import Needs, check_room, needs_of
from cape.data.space import grid_of, read_space, reserved_names, too_many_features
from cape.data.subject_reader import Pass, examine, outline
from cape.data.subjects import joined_in_time, project, subject_matrix
from cape.errors import DataError
from cape.feature_space import FeatureSpace
from cape.frozen import dataclass
from cape.public_basis import widest_basis

Progress = Callable[[int, int], None]
"""Called with (subjects done, subjects in all)."""

Keep = Callable[[FeatureSpace | None, str, Data], None]
"""Called with (space or None, label, X_m (D, T_m)) of every accepted subject."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteData:
    """The accepted subjects of one site; private but for `space`, M_s and the TR range.

    Attributes
    ----------
    site : str
        Public id.
    space : FeatureSpace
        What the D rows of every subject are.
    subjects : tuple of Subject
        Accepted subjects in natural order of their labels.
    excluded : tuple of str
        Labels of those left out.
    findings : tuple of Finding
        Warnings and exclusions.
    tr_range : tuple of float
        Shortest and longest of the repetition times, s, rounded to 1e-3; 0 if unknown.
    fingerprint : str
        SHA-256 over the contents of the accepted files, without their names.
    """

    site: str
    space: FeatureSpace
    subjects: tuple[Subject, ...]
    excluded: tuple[str, ...]
    findings: tuple[Finding, ...]
    tr_range: tuple[float, float]
    fingerprint: str

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return len(self.subjects)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What `inspect_site` found.

    Attributes
    ----------
    subjects : tuple of Subject
        All subjects that could be read, accepted or not.
    findings : tuple of Finding
        All problems, worst first.
    accepted : SiteData or None
        None if the site must stop; `error` says why then.
    error : DataError or None
        What `load_site` raises.
    labels : tuple of str
        All subjects that the site listed.
    needs : Needs or None
        Memory and disk of a run, if anything could be read.
    """

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]
    accepted: SiteData | None
    error: DataError | None
    labels: tuple[str, ...] = ()
    needs: Needs | None = None


def load_site(
    base: Path,
    given: Mapping[str, object],
    config: Config,
    *,
    site: str,
    progress: Progress | None = None,
    working: Path | None = None,
    keep: Keep | None = None,
) -> SiteData:
    """Check all data of a site and return its accepted subjects.

    Parameters
    ----------
    base : Path
        The site's folder.
    given : mapping
        What the site gave: `data` (list of names, or one glob), `manifest` (name of a table) or
        `bids` (a folder of derivatives), or nothing: then the folder's own manifest, else all its
        data files, else its BIDS layout.
    config : Config
        The owner's settings.
    site : str
        Public id of the site.
    progress : callable, optional
        Called with (subjects done, subjects in all).
    working : Path, optional
        Folder of the working files, to see whether its disk suffices.
    keep : callable, optional
        Gets the data of every accepted subject while they are in memory: each file is read once.

    Returns
    -------
    SiteData
        Reading them again gives the same bits.

    Raises
    ------
    DataError
        Its public text is that of the worst finding; its detail holds all private texts.
    """
    inspection = inspect_site(
        base, given, config, site=site, progress=progress, working=working, keep=keep
    )
    if inspection.error is not None:
        raise inspection.error
    if inspection.accepted is None:
        raise DataError("E100", site=site)
    return inspection.accepted


def inspect_site(
    base: Path,
    given: Mapping[str, object],
    config: Config,
    *,
    site: str,
    progress: Progress | None = None,
    working: Path | None = None,
    keep: Keep | None = None,
    headers_only: bool = False,
) -> Inspection:
    """Return everything that is wrong at a site, and its accepted subjects; never stops early.

    Parameters are those of `load_site`, and `headers_only`: read headers and tables, no data.
    """
    findings = Findings(site)
    space = read_space(config, base, findings)
    is_matrix = config.feature_space == "matrix"
    listed = discover(
        base, with_records(base, given) if is_matrix else given, findings,
        suffixes=MATRIX_SUFFIXES if is_matrix else IMAGE_SUFFIXES,
        reserved=reserved_names(config),
        bids_filter=config.bids_filter,
    )  # fmt: skip
    if is_matrix:
        listed = expand(listed, findings)
    state = Pass(config=config, grid=None if space is None else grid_of(space), findings=findings)
    subjects: list[Subject] = []
    accepted: list[Subject] = []
    for done, files in enumerate(listed, start=1):
        skip = headers_only and all(run.row < 0 for run in files.runs)  # a table is read anyway
        subject, parts = (outline(files, state), []) if skip else examine(files, state)
        if subject is not None:
            subjects.append(subject)
            if judge(subject, config, findings):
                accepted.append(subject)
                if keep is not None:
                    keep(space, subject.label, joined_in_time(parts, config))
        if progress is not None:
            progress(done, len(listed))
    same_values_twice(state.shapes, findings)
    if is_matrix:
        space = _matrix_space(state, columns_of(listed))
    if space is not None or is_matrix:
        judge_site(subjects, accepted, len(listed), config, findings)
    needs = None
    if space is not None and accepted:
        needs = needs_of(accepted, space.n_features, widest_basis(config, space), working)
        check_room(needs, findings)
    labels = tuple(files.label for files in listed)
    return replace(_conclude(subjects, accepted, labels, space, findings), needs=needs)


def _conclude(
    subjects: list[Subject],
    accepted: list[Subject],
    labels: Sequence[str],
    space: FeatureSpace | None,
    findings: Findings,
) -> Inspection:
    """Return the inspection, with the accepted subjects if nothing stops the site."""
    error = None
    try:
        findings.raise_if_blocked()
    except DataError as err:
        error = err
    listing = findings.listing()
    site_data = None
    if error is None and space is not None:
        chosen = {subject.label for subject in accepted}
        trs = [tr for subject in accepted for tr in subject.trs]
        digests = "\n".join(" ".join(subject.digests) for subject in accepted)
        site_data = SiteData(
            site=findings.site,
            space=space,
            subjects=tuple(accepted),
            excluded=tuple(label for label in labels if label not in chosen),
            findings=listing,
            tr_range=(round(min(trs, default=0.0), 3), round(max(trs, default=0.0), 3)),
            fingerprint=hashlib.sha256(digests.encode()).hexdigest(),
        )
    return Inspection(
        subjects=tuple(subjects), findings=listing, accepted=site_data, error=error,
        labels=tuple(labels),
    )  # fmt: skip


def _matrix_space(state: Pass, columns: tuple[str, ...]) -> FeatureSpace | None:
    config = state.config
    n_features = features_of(state.shapes, config, state.findings)
    if n_features == 0:
        return None
    too_many_features(n_features, config, state.findings)
    shape = parse_shape(config.image_shape) if config.image_shape else ()
    names = columns or columns_of_runs(state.shapes, state.findings)
    return FeatureSpace.of_matrix(n_features, shape, names)


def reduce_to_basis(
    site: SiteData, basis: Array | None, config: Config
) -> Iterator[tuple[str, Data]]:
    """Yield every accepted subject in the coordinates of the public basis, one at a time.

    Parameters
    ----------
    site : SiteData
        From `load_site`.
    basis : ndarray, shape (D, d), or None
        B, float64 with orthonormal columns; None is the identity.
    config : Config
        The owner's settings.

    Yields
    ------
    label : str
        Subject; private.
    Y_m : ndarray, shape (d, T_m)
        ``B' X_m``, float32.  Scaling to unit trace is the caller's.

    Raises
    ------
    DataError
        CAPE-E161: files changed since they were accepted.
    """
    for subject in site.subjects:
        yield subject.label, project(subject_matrix(subject, site.space, config), basis)
