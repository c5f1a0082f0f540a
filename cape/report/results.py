"""The files of the consortium as typed records, fields in the order of the files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.bagging import ORDERS
from cape.algorithms.estimators import Array
from cape.counting import CountedPeople, number_of
from cape.delimited import split_lines
from cape.forecast.rule import ComponentKind
from cape.frozen import dataclass
from cape.report import files
from cape.report.comparison import GroupComparison
from cape.report.comparison_words import sentences_of
from cape.report.maps import Component
from cape.report.privacy_json import RELATION, PrivacyStatement

# The spatial set of a temporal run, columns as in components.tsv
SPATIAL_TABLE: Final = "spatial_components.tsv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Fields of results.json of every run; epsilon and mu as in `privacy_json.HeadlineFigures`."""

    schema: str = "cape-results-1"
    status: str
    ended: str  # the status in words; with a verdict, how many components were confirmed
    reason: str
    n_sites: int
    n_subjects: int
    min_survivors: int
    survivors: tuple[str, ...]  # whose data are in the last sum
    n_features: int
    n_basis: int
    feature_space: str
    feature_space_digest: str
    grid: tuple[int, ...]  # empty without a grid, as is the affine
    affine: tuple[float, ...]
    template_space: str  # such as MNI152NLin2009cAsym; empty if unknown
    epsilon: float | None
    epsilon_planned: float | None
    epsilon_spent: float | None
    epsilon_unspent: float | None
    delta: float
    mu: float | None
    mu_spent: float | None
    mu_unspent: float | None
    # A short word for programs; privacy.json has a sentence.
    unit: str = "subject"
    relation: str = RELATION
    # Whether the guarantee holds: it does not without noise or with a seed.
    private: bool
    seeded: bool
    simulation: bool = False
    # Of a simulation, whose user has the data of all sites, if somebody does not count; in a real
    # run each site alone knows
    counted: CountedPeople | None = None
    # Data are known to be synthetic only by a planted truth beside the sites.
    synthetic: bool = False
    computation: str
    version: str
    run: str
    config_digest: str
    fingerprint: str
    sites: Mapping[str, int]
    warnings: tuple[str, ...]
    # When (day in UTC) and with which versions the results were written
    date: str
    software: Mapping[str, str]

    @property
    def departed(self) -> tuple[str, ...]:
        return tuple(site for site in self.sites if site not in self.survivors)

    @property
    def who_counts(self) -> str:
        """How many people count, of how many where that is known to differ."""
        return (
            f"{self.counted.counted} of {self.n_subjects}" if self.counted else f"{self.n_subjects}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseBand:
    """Whether components.tsv has noise levels, else why not; their margins in a test."""

    shown: bool
    why_not: str
    margin_expected_r: float
    margin_band: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSource:
    """Networks the maps were compared with: name, labels, how to read them (or why none)."""

    template: str | None
    labels: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialFit:
    """Whether spatial components are sparser than those of equally smooth noise (kurtosis).

    None where the left-right test decides: kurtosis does not tell coarse brain maps from noise.
    """

    converged: bool
    kurtosis: float | None = None
    surrogate: float | None = None
    surrogate_std: float | None = None
    fits: bool | None = None
    recipe: bool = False  # whether the recipe for brains was used
    n_basis: int = 0  # d of its own kernel basis; 0: the basis of the run
    maps: int  # number of maps
    stability: tuple[float, ...] | None = None  # of each map, as in the table


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftRightFigures:
    """The left-right test: z, the statistic (-1 to 1), and its mean and sd in smooth noise."""

    z: float
    statistic: float
    null: float
    null_std: float
    verdict: str  # {"brain", "unclear", "nothing"}
    mirrored: bool  # whether the two sides were averaged

    @property
    def z_text(self) -> str:
        """Return z with one decimal, which never lies on the other side of a limit than z."""
        text = f"{self.z:z.1f}"
        return next(
            (f"just below {limit}" for limit in (2, 4) if self.z < limit <= float(text)), text
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimFigures:
    """Number of claimed networks by word, and how alike the release says people are."""

    # Mirror images do not count; a pair that may be one network or two counts once.

    yes: int
    likely: int
    uncertain: int
    sharp: int  # of these, likely to have |r| > .7 with a network of other people
    images: int  # maps that are the mirror image of another map's network
    untold_pairs: int  # mirror images of each other that may be one network or two
    few: int = 0  # maps of one to three regions, which are not counted (`maps.of_few_regions`)
    q: float  # share of the common signal that is the same on both sides
    cohort: str  # what such a q meant in cohorts that are known
    # Networks of other people among the maps: the sum of their probabilities, which a forecast
    # gives before the run; 0 in results of earlier versions
    expected: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HalfFigures:
    """Number of maps that other halves of these people would show again, in a run without noise."""

    in_halves: int
    maybe: int
    few: int = 0  # found again, or maybe, but of one to three regions and so not counted


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateRow:
    """One template: correlations, and how far its deviation exceeds the noise."""

    r_template: float
    r_without_data: float
    r_template_without_data: float
    strength: float
    kept: float


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictFigures:
    """The curvature test of the rounds (`algorithms.verdict`)."""

    confirmed: int  # components that the answers confirm
    spatial_start: bool  # whether rounds began at the spatial components
    curvature: float
    z: float  # curvature over its standard error; N(0, 1) if the answers are noise only
    component_error: float  # standard error of the curvature of a component


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFigures:
    """The model of a run, and the figures of its additional sets of maps."""

    kind: ComponentKind
    spatial: SpatialFit | None = None
    left_right: LeftRightFigures | None = None  # of brains, before any mirroring
    claims: ClaimFigures | None = None  # of brains, where the left-right test is clear
    halves: HalfFigures | None = None  # the same of a run without noise
    template: tuple[TemplateRow, ...] | None = None

    @property
    def of_images(self) -> bool:
        """Whether spatial maps were made by the recipe for brains."""
        return self.kind == "spatial" or (self.spatial is not None and self.spatial.recipe)

    @property
    def counts(self) -> bool:
        """Whether the maps of the run are counted by what is claimed of them."""
        return self.kind == "spatial" and (self.claims or self.halves) is not None

    @property
    def found_free(self) -> bool:
        """Whether the free spatial set exceeds smooth noise; only then its maps get names."""
        sparse = self.spatial is not None and bool(self.spatial.fits)
        return sparse or (self.left_right is not None and self.left_right.verdict != "nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapResults(Results):
    """results.json of a run whose result is maps."""

    rounds: int
    rounds_planned: int
    n_components: int
    # Agreement with planted maps, where a simulation has them
    q_ngi: float | None = None
    map_correlation: float | None = None
    stability: float | None  # None: not assessed
    verdict: VerdictFigures | None  # None: not judged
    noise_edge: float | None
    gap_ratio: float | None
    rank_status: str
    # Effective size G of the run, and the G needed for "yes"; None without noise
    g_eff: float | None
    g_needed: float | None
    forecast: str | None  # answer of `cape budget` to this plan; None without noise
    suggested_n_components: int | None
    noise_band: NoiseBand
    labels: LabelSource
    separation: ModelFigures

    @property
    def kind(self) -> ComponentKind:
        return self.separation.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFile:
    """File, title and explanation of a released table."""

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

    comparison: GroupComparison


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """The content of settings.json: all settings, defaults included, and their digest."""

    settings: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One row of rounds.tsv: a released round; None: not known."""

    index: int
    phase: str
    round: int
    statistic_norm: float | None
    expected_noise_norm: float | None
    step_norm: float | None
    stability: float | None
    mu_so_far: float | None
    epsilon_so_far: float | None


# -- in a sentence ---------------------------------------------------------------------------------


def sentence(results: Results) -> str:
    """Return the result in a sentence; without networks, also the reason and the next step."""
    if isinstance(results, TableResults):
        n = len(results.tables)
        return f"{number_of(n, 'table')} {'was' if n == 1 else 'were'} released."
    if isinstance(results, ComparisonResults):
        if not results.comparison.effects:
            return f"There is no answer: {results.reason}"
        return " ".join(sentences_of(results.comparison))
    if not isinstance(results, MapResults):
        raise TypeError(f"no sentence for {type(results).__name__}")
    if results.verdict is not None:
        n, total = results.verdict.confirmed, results.n_components
        return f"{n} of {total} components {'is' if n == 1 else 'are'} confirmed."
    if results.status == "nothing_found":
        return f"No networks were found: {_why(results)}. {next_step(results)}"
    if results.status == "unclear":
        n = results.n_components
        return f"It is not clear whether these {n} maps are networks: {_why(results)}."
    model, total = results.separation, results.n_components
    if model.kind == "spatial" and (claims := model.claims) is not None:
        # Images do not count; a pair that may be one network counts once (`algorithms.claims`).
        said = _counted(claims.yes, claims.likely, total, "a network", "networks")
        if claims.yes < total and claims.expected:
            n = round(claims.expected)
            said = f"{said[:-1]}: about {n} {'is' if n == 1 else 'are'} expected to be."
        return f"{said}{_few(claims.few)}"
    if model.kind == "spatial" and (halves := model.halves) is not None:
        again = "found again in other halves of these people"
        said = _counted(halves.in_halves, halves.maybe, total, again, again)
        return f"{said}{_few(halves.few)}"
    return f"{total} maps were released; nothing tells whether they are networks."


def _few(n: int) -> str:
    if not n:
        return ""
    return f" {n} {'is' if n == 1 else 'are'} of one to three regions, which is no network."


def _counted(n: int, more: int, total: int, one: str, several: str) -> str:
    """Say of how many maps something is sure, and of how many more it may be true."""
    if n == total:
        return f"All {total} maps are {several}."
    words = f"maps are {several}" if n > 1 else f"maps is {one}" if n else f"maps is surely {one}"
    first = f"{n or 'None'} of {total} {words}"
    return f"{first}, {more} {'more ' if n else ''}may be." if more else f"{first}."


def _why(results: MapResults) -> str:
    sides = results.separation.left_right
    if sides is None:
        return results.reason.rstrip(".")
    if sides.verdict == "unclear":
        return f"the left-right test gives {sides.z_text}, between noise (below 2) and networks (4)"
    return f"the left-right test gives {sides.z_text}, no more than smooth noise (below 2)"


def order_line(results: MapResults) -> str:
    """Return which number of components halves of the people suggest; empty: none is known."""
    if results.separation.halves is None or results.suggested_n_components is None:
        return ""
    return (
        f"Suggested number of components: {results.suggested_n_components} (here "
        f"{results.n_components}), the smallest of {ORDERS[0]} to {ORDERS[-1]} at which as many "
        "maps, or one less, are found again in other halves of these people as at any."
    )


def next_step(results: MapResults) -> str:
    """Return the next step after a run without networks, by its size and the needed size."""
    size, needed = results.g_eff, results.g_needed
    if size is not None and needed is not None and size < needed:
        return (
            f"The run was too small (effective size {size:.0f}, needed {needed:.0f}): ask cape "
            "budget what more people or a larger epsilon would do."
        )
    return "Look at the data first: cape validate at every site."


# -- reading -------------------------------------------------------------------------------------


def read_results(folder: Path) -> MapResults | TableResults | ComparisonResults:
    path = folder / "results.json"
    # The fields tell the kind, not the name of the computation.
    fields = files.read_json(path)
    if "tables" in fields:
        return files.read_record(path, TableResults)
    if "comparison" in fields:
        return files.read_record(path, ComparisonResults)
    return files.read_record(path, MapResults)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Folder:
    path: Path
    privacy: PrivacyStatement
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFolder(_Folder):
    """The result folder of a run whose result is tables."""

    results: TableResults

    def table(self, name: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        content = (self.path / name).read_bytes()
        header, *rows = (line.cells() for line in split_lines(content, ",", comments=False))
        return header, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonFolder(_Folder):
    """The result folder of a comparison of groups."""

    results: ComparisonResults


@dataclass(frozen=True, kw_only=True, slots=True)
class MapFolder(_Folder):
    """The result folder of a run whose result is maps, without the maps themselves."""

    results: MapResults
    components: tuple[Component, ...]
    spatial: tuple[Component, ...]  # the spatial set of a temporal run
    rounds: tuple[Round, ...]
    eigenvalues: Array


def read_folder(path: Path) -> MapFolder | TableFolder | ComparisonFolder:
    """Return the content of a result folder; FileNotFoundError names a missing file."""
    results = read_results(path)
    common: dict[str, Any] = {
        "path": path,
        "privacy": files.read_record(path / "privacy.json", PrivacyStatement),
        "settings": files.read_record(path / "settings.json", RunSettings).settings,
    }
    if isinstance(results, TableResults):
        return TableFolder(**common, results=results)
    if isinstance(results, ComparisonResults):
        return ComparisonFolder(**common, results=results)
    # Without pickle: a result folder may come from another person.
    with np.load(path / "unmixing.npz", allow_pickle=False) as arrays:
        eigenvalues = np.asarray(arrays["eigenvalues"], dtype=np.float64)
    spatial = path / SPATIAL_TABLE
    return MapFolder(
        **common,
        results=results,
        components=files.read_rows(path / "components.tsv", Component),
        spatial=files.read_rows(spatial, Component) if spatial.is_file() else (),
        rounds=files.read_rows(path / "rounds.tsv", Round),
        eigenvalues=eigenvalues,
    )
