"""A site's people and the feature space of their data, before any series is read."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cape.data.checks import Subject
from cape.data.cifti import read_structure
from cape.data.folders import readable
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.matrices import read_matrix
from cape.data.people import PeopleList, read_people
from cape.data.reading import has_nilearn
from cape.data.runs import Person, Series
from cape.data.space import check_feature_count, read_space
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.own_words import OwnWords
from cape.settings.resolved import Resolved, resolve
from cape.settings.words import parse_shape
from cape.space.feature_space import FeatureSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteListing:
    """The files of a site, their people and their feature space; private."""

    site: str  # public id
    config: Config
    listed: tuple[Person, ...]
    # None if the mask could not be read, or if the features of matrices are not declared
    space: FeatureSpace | None
    columns: tuple[str, ...] = ()  # declared names of the features of matrices

    @property
    def how(self) -> Resolved:
        return resolve(self.config)


def list_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None] | None = None,
    words: OwnWords | None = None,
) -> SiteListing:
    """Find the files of a site and its feature space; opens no data but tables of records.

    Without `before_records`, as in a check alone, such a table is opened although a column is
    missing, so that the others are told.
    """
    read = read_structure if config.of_cifti else read_space
    with readable(base, findings):
        space = read(config, base, findings)
    if (strategy := resolve(config).reading.strategy) and not has_nilearn():
        findings.add(IssueCode.NO_NILEARN, strategy=strategy)
    people = read_people(
        base, config, findings, listing=listing, words=words, before_tables=before_records
    )
    if config.feature_space == "matrix":
        space = _said_space(people, config, findings)
    return SiteListing(
        site=findings.site,
        config=config,
        listed=people.listed,
        space=space,
        columns=config.declared_columns,
    )


def _said_space(people: PeopleList, config: Config, findings: Findings) -> FeatureSpace | None:
    """Return the space of matrices by settings or a table of records; None if neither says it."""
    names = people.columns
    if question := config.question:  # also of a site that lacks some
        names = tuple(one.name for one in question.outcomes)
    n_features = config.declared_features or len(names)
    if n_features == 0:
        return None
    check_feature_count(n_features, config, findings)
    shape = parse_shape(config.image_shape) if config.image_shape else ()
    return FeatureSpace.of_matrix(n_features, shape, config.declared_columns or names)


def with_features_of_files(files: SiteListing, findings: Findings) -> SiteListing:
    """Take undeclared features of matrices from the first file that can be read."""
    if files.space is not None or (first := _first_header(files)) is None:
        return files
    n_features = len(first.values)
    check_feature_count(n_features, files.config, findings)
    space = FeatureSpace.of_matrix(n_features, (), first.columns)
    return replace(files, space=space, columns=first.columns)


def _first_header(files: SiteListing) -> Series | None:
    """Return the first matrix of a site that can be read; only its header if it has one."""
    how = files.how.reading
    for run in (run for each in files.listed for run in each.runs):
        if how.feature_space == "matrix" and run.row < 0:
            with suppress(UnusableFile, OSError):
                return read_matrix(run, how.orientation, how.variable, headers_only=True)
    return None


def header_of(base: Path, config: Config) -> Series | None:
    """Return the header of the first array file of a folder; None without one, or of records."""
    return _first_header(list_site(base, {}, config, Findings(base.name)))


def check_layout_is_said(listed: Sequence[Person | Subject], config: Config) -> None:
    """Raise ConfigError E013 if a private run would take its features from files of single people.

    One person could then change the message of `join`, and which other people count.
    """
    of_files = any(run.row < 0 for files in listed for run in files.runs)
    is_private = config.feature_space == "matrix" and config.private
    if is_private and of_files and not config.declared_features:
        do = "so that no person's file decides it: how many features the array files have; or "
        do += "columns, their names."
        raise ConfigError("E013", setting="n_features", do=do)
