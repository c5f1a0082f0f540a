"""Which files a site has, whose they are, and in which feature space, before anybody's are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cape.data.checks import Subject
from cape.data.cifti import read_structure
from cape.data.discovery import discover
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.matrices import read_matrix
from cape.data.runs import Series, SubjectFiles
from cape.data.space import check_feature_count, read_space
from cape.data.strategies import has_nilearn
from cape.data.tables import read_records
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import Resolved, resolve
from cape.settings.words import parse_shape
from cape.space.feature_space import FeatureSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteListing:
    """Which files a site has, whose they are, and in which feature space; private."""

    site: str  # public id
    config: Config
    how: Resolved
    listed: tuple[SubjectFiles, ...]
    # None where the mask could not be read, and of matrices whose features nobody said
    space: FeatureSpace | None
    columns: tuple[str, ...] = ()  # names that the features of matrices must have


def list_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None] = lambda: None,
) -> SiteListing:
    """Find the files of a site and its feature space; of people's data opens tables of records."""
    read = read_structure if config.of_cifti else read_space
    space, how = read(config, base, findings), resolve(config)
    if how.reading.strategy and not has_nilearn():
        public, strategy = {"site": findings.site}, how.reading.strategy
        findings.add(IssueCode.NO_NILEARN, public=public, strategy=strategy)
    listed = discover(base, listing, config, findings, before_records)
    if config.feature_space == "matrix":
        space = _said_space(listed, config, findings)
    return SiteListing(
        site=findings.site,
        config=config,
        how=how,
        listed=listed,
        space=space,
        columns=config.said_columns,
    )


def _said_space(
    listed: Sequence[SubjectFiles], config: Config, findings: Findings
) -> FeatureSpace | None:
    """Return the space of matrices that settings or a table of records say; None: nobody does."""
    tables = (run.path for files in listed for run in files.runs if run.row >= 0)
    table = next(tables, None)
    names = () if table is None else read_records(table).names
    n_features = config.said_features or len(names)
    if n_features == 0:
        return None
    check_feature_count(n_features, config, findings)
    shape = parse_shape(config.image_shape) if config.image_shape else ()
    return FeatureSpace.of_matrix(n_features, shape, config.said_columns or names)


def with_features_of_files(files: SiteListing, findings: Findings) -> SiteListing:
    """Take the features of matrices from the first file that can be read, if nobody said them."""
    if files.space is not None or (first := _first_header(files)) is None:
        return files
    n_features = len(first.values)
    check_feature_count(n_features, files.config, findings)
    space = FeatureSpace.of_matrix(n_features, (), first.columns)
    return replace(files, space=space, columns=first.columns)


def _first_header(files: SiteListing) -> Series | None:
    """Return the first matrix of a site that can be read, of its header alone if it has one."""
    how = files.how.reading
    for run in (run for each in files.listed for run in each.runs):
        if how.feature_space == "matrix" and run.row < 0:
            with suppress(UnusableFile, OSError):
                return read_matrix(run, how.orientation, how.variable, headers_only=True)
    return None


def header_of(base: Path, config: Config) -> Series | None:
    """Return what the first array file of a folder says; None: there is none, or it has records."""
    return _first_header(list_site(base, {}, config, Findings(base.name)))


def check_layout_is_said(listed: Sequence[SubjectFiles | Subject], config: Config) -> None:
    """Raise ConfigError E013 if the files of single people would say what the features are.

    Else one person could move what leaves in `join`, and who else counts, in a private run.
    """
    of_files = any(run.row < 0 for files in listed for run in files.runs)
    if config.feature_space == "matrix" and config.private and of_files:
        if not config.said_features:
            do = "so that nobody's file decides it: how many features the array files have; or "
            do += "columns, their names."
            raise ConfigError("E013", setting="n_features", do=do)
