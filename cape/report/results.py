"""The files of the consortium as typed records, fields in the order of the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.delimited import split_lines
from cape.forecast.rule import Kind
from cape.frozen import dataclass
from cape.report import files
from cape.report.comparison import Comparison, Tables, read_tables
from cape.report.maps import Component
from cape.report.privacy_json import RELATION, PrivacyStatement

# Beside the results of a simulation: the same figures from smooth noise
SURROGATE_FILE: Final = "surrogate.json"
# Of the spatial set of a temporal run, columns as in components.tsv
SPATIAL_TABLE: Final = "spatial_components.tsv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """What results.json says of every run; epsilon and mu as in `privacy_json.HeadlineFigures`."""

    schema: str = "cape-results-1"
    status: str
    ended: str  # the same in words: of a run judged by time courses how many components passed
    reason: str
    n_sites: int
    n_subjects: int
    min_survivors: int
    survivors: tuple[str, ...]  # whose data are in the last sum
    n_features: int
    n_basis: int
    feature_space: str
    feature_space_digest: str
    grid: tuple[int, ...]  # empty without one, as the affine
    affine: tuple[float, ...]
    template_space: str  # such as MNI152NLin2009cAsym; empty if nobody said
    epsilon: float | None
    epsilon_planned: float | None
    epsilon_spent: float | None
    epsilon_unspent: float | None
    delta: float
    mu: float | None
    mu_spent: float | None
    mu_unspent: float | None
    # A short word for programs; privacy.json says it in a sentence.
    unit: str = "subject"
    relation: str = RELATION
    # Whether the guarantee holds, which it does not without noise and with a seed.
    private: bool
    seeded: bool
    simulation: bool = False
    # Only a planted truth beside the sites tells that nobody's data are behind a result.
    synthetic: bool = False
    computation: str
    version: str
    run: str
    config_digest: str
    fingerprint: str
    sites: Mapping[str, int]
    warnings: tuple[str, ...]
    # Of the computer that wrote the results: the day in UTC, and the versions of what computes
    date: str
    software: Mapping[str, str]

    @property
    def departed(self) -> tuple[str, ...]:
        return tuple(site for site in self.sites if site not in self.survivors)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseBand:
    """Whether components.tsv has noise levels, why not, and how well they held in a test."""

    shown: bool
    why_not: str
    margin_expected_r: float
    margin_band: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSource:
    """What the maps were compared with: name, labels, how to read them (or why there are none)."""

    template: str | None
    labels: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialFit:
    """Whether spatial components are sparser than those of equally smooth noise (kurtosis).

    None where the left-right test says it: of coarse maps of a brain kurtosis says nothing.
    """

    converged: bool
    kurtosis: float | None = None
    surrogate: float | None = None
    surrogate_std: float | None = None
    fits: bool | None = None
    recipe: bool = False  # whether it is that of brains
    n_basis: int = 0  # of a kernel basis of its own; 0: in that of the run
    maps: int  # how many


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftRightFigures:
    """The left-right test: z, the statistic over its largest value, and what smooth noise gives."""

    z: float
    statistic: float
    null: float
    null_std: float
    verdict: str  # {"brain", "unclear", "nothing"}
    mirrored: bool  # whether the two sides were averaged


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimFigures:
    """How many networks are claimed, by word, and what the release says of who took part.

    No mirror image counts, and a pair that cannot be told counts once.
    """

    yes: int
    likely: int
    uncertain: int
    sharp: int  # of these, likely to have |r| > .7 with a network of other people
    images: int  # maps that are the mirror image of another map's network
    untold_pairs: int  # mirror images of each other that may be one network or two
    q: float  # share of what people have in common that is the same on both sides
    cohort: str  # what that was like where it was known


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateRow:
    """One template: likenesses, and how much of the deviation is left of its noise."""

    r_template: float
    r_without_data: float
    r_template_without_data: float
    strength: float
    kept: float


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictFigures:
    """What the rounds' answers to their public turns say (`algorithms.verdict`)."""

    confirmed: int  # components that the answers confirm
    spatial_start: bool  # whether rounds began at the spatial components
    curvature: float
    z: float  # curvature over its standard error; N(0, 1) if the answers are noise only
    component_error: float  # standard error of the curvature of a component


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFigures:
    """The model of a run, with what its free or additional sets of maps say."""

    kind: Kind
    spatial: SpatialFit | None = None
    left_right: LeftRightFigures | None = None  # of brains, before any mirroring
    claims: ClaimFigures | None = None  # of brains, where the left-right test is clear
    template: tuple[TemplateRow, ...] | None = None

    @property
    def of_images(self) -> bool:
        """Whether spatial maps were made as those of brains are."""
        return self.kind == "spatial" or (self.spatial is not None and self.spatial.recipe)

    @property
    def found_free(self) -> bool:
        """Whether the free spatial set is more than smooth noise gives: only then it has names."""
        sparse = self.spatial is not None and bool(self.spatial.fits)
        return sparse or (self.left_right is not None and self.left_right.verdict != "nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapResults(Results):
    """results.json of a run whose result is maps."""

    rounds: int
    rounds_planned: int
    n_components: int
    # Against planted maps, where a simulation knows them.
    q_ngi: float | None = None
    map_correlation: float | None = None
    stability: float | None  # None: not assessed
    verdict: VerdictFigures | None  # None: not judged
    noise_edge: float | None
    gap_ratio: float | None
    rank_status: str
    # Effective size of the run, and that of a sure one; None without noise.
    g_eff: float | None
    g_needed: float | None
    forecast: str | None  # what `cape budget` answers to this plan; None without noise
    suggested_n_components: int | None
    noise_band: NoiseBand
    labels: LabelSource
    separation: ModelFigures

    @property
    def kind(self) -> Kind:
        return self.separation.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFile:
    """Where a released table stands, what its rows are, and how to read them."""

    file: str
    title: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableResults(Results):
    """results.json of a run whose result is tables."""

    tables: tuple[TableFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonResults(Results):
    """results.json of a comparison of groups."""

    comparison: Comparison | None  # None: a site refused a release, and there is no answer


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """The content of settings.json: all settings, defaults included, and their digest."""

    settings: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One row of rounds.tsv: a released round; None is "not known"."""

    index: int
    phase: str
    round: int
    statistic_norm: float | None
    expected_noise_norm: float | None
    step_norm: float | None
    stability: float | None
    mu_so_far: float | None
    epsilon_so_far: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SurrogateFigures:
    """What a run and its surrogate, subjects of smooth noise, are compared by."""

    stability: float | None = None
    gap: float | None = None
    kurtosis: float | None = None
    r_template: float | None = None
    strength: float | None = None

    @classmethod
    def of(cls, results: MapResults) -> SurrogateFigures:
        model = results.separation
        rows = model.template or ()
        return cls(
            stability=results.stability or None,
            gap=results.gap_ratio or None,
            kurtosis=None if model.spatial is None else model.spatial.kurtosis,
            r_template=float(np.mean([row.r_template for row in rows])) if rows else None,
            strength=float(np.mean([row.strength for row in rows])) if rows else None,
        )


def read_results(folder: Path) -> MapResults | TableResults | ComparisonResults:
    path = folder / "results.json"
    # The file itself says which kind it is: no result depends on the name of a computation.
    said = files.read_json(path)
    if "tables" in said:
        return files.read_record(path, TableResults)
    if "comparison" in said:
        return files.read_record(path, ComparisonResults)
    return files.read_record(path, MapResults)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFolder:
    """The result folder of a run whose result is tables."""

    path: Path
    results: TableResults
    privacy: PrivacyStatement
    settings: Mapping[str, Any]

    def table(self, name: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        content = (self.path / name).read_bytes()
        header, *rows = (line.cells() for line in split_lines(content, ",", comments=False))
        return header, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonFolder:
    """The result folder of a comparison of groups."""

    path: Path
    results: ComparisonResults
    privacy: PrivacyStatement
    settings: Mapping[str, Any]
    tables: Tables


@dataclass(frozen=True, kw_only=True, slots=True)
class MapFolder:
    """The result folder of a run whose result is maps; the maps themselves are read when drawn."""

    path: Path
    results: MapResults
    privacy: PrivacyStatement
    settings: Mapping[str, Any]
    components: tuple[Component, ...]
    spatial: tuple[Component, ...]  # the spatial set of a temporal run
    rounds: tuple[Round, ...]
    eigenvalues: Array
    # Only beside a simulation that was asked for it.
    surrogate: SurrogateFigures | None


def read_folder(path: Path) -> MapFolder | TableFolder | ComparisonFolder:
    """Return the content of a result folder; FileNotFoundError names a file that is missing."""
    results = read_results(path)
    privacy = files.read_record(path / "privacy.json", PrivacyStatement)
    settings = files.read_record(path / "settings.json", RunSettings).settings
    if isinstance(results, TableResults):
        return TableFolder(path=path, results=results, privacy=privacy, settings=settings)
    if isinstance(results, ComparisonResults):
        return ComparisonFolder(
            path=path, results=results, privacy=privacy, settings=settings, tables=read_tables(path)
        )
    # No pickle: a result folder may come from somebody else.
    with np.load(path / "unmixing.npz", allow_pickle=False) as arrays:
        eigenvalues = np.asarray(arrays["eigenvalues"], dtype=np.float64)
    beside, spatial = path / SURROGATE_FILE, path / SPATIAL_TABLE
    return MapFolder(
        path=path,
        results=results,
        privacy=privacy,
        settings=settings,
        components=files.read_rows(path / "components.tsv", Component),
        spatial=files.read_rows(spatial, Component) if spatial.is_file() else (),
        rounds=files.read_rows(path / "rounds.tsv", Round),
        eigenvalues=eigenvalues,
        surrogate=files.read_record(beside, SurrogateFigures) if beside.is_file() else None,
    )
