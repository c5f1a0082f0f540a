"""The Python interface: a consortium in this process, simulations of folders, budgets.

The caller sees all data: the figures state what the results would reveal to others.  Noise comes
from the operating system; with a seed the result is labelled not private.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array
from cape.algorithms.spatial import kurtosis
from cape.computations import load
from cape.computations.ica.settings import N_COMPONENTS
from cape.counting import CountedPeople, counted_together, number_of
from cape.data.folders import names_below, space_for
from cape.data.issues import Findings
from cape.data.matrices import column_of_time
from cape.data.people import labels_that_recur
from cape.data.runs import SiteRun
from cape.data.space import mask_space
from cape.errors import (
    CapeError,
    CapeWarning,
    ConfigError,
    LabelsWarning,
    PrivacyWarning,
    SubjectsWarning,
    warn_caller,
)
from cape.forecast.comparison import USUAL_SHARE
from cape.forecast.one_release import room_for
from cape.frozen import dataclass
from cape.planning import budget as planning
from cape.planning.budget import PlannedRun
from cape.planning.comparison_budget import PlannedComparison
from cape.planning.consortium_folder import has_settings, proposed
from cape.planning.judge import at_hand, judge_config
from cape.planning.validate import own_store
from cape.privacy.accounting import display_epsilon
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import RoundRecord
from cape.protocol.outcome import IcaOutcome, Outcome, component_names
from cape.python.people import (
    HOW_READ,
    TRANSPOSE,
    Given,
    by_site,
    check_apart,
    features_of,
    in_python_words,
    is_folder,
    joined_settings,
    pandas_for,
    people_in,
    privacy_given,
    same_names,
    several,
    with_names,
)
from cape.report import privacy_json, write_results
from cape.settings.config import ALONE, PRODUCT, Config
from cape.settings.option import out_of_range
from cape.settings.question import MAX_OUTCOMES
from cape.settings.resolved import resolve
from cape.settings.wings import LABORATORY, require
from cape.settings.words import parse_columns
from cape.simulation import simulate as simulation
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import OnProgress, OnSubject, RunOptions, run_to_end
from cape.simulation.simulate import nearness
from cape.simulation.ways import WAYS, Way
from cape.site.places import POLICY_VARIABLE, SitePlaces
from cape.site.policy import NO_LEDGER, SitePolicy
from cape.site.site_data import ArraySource, FileSource
from cape.space.feature_space import FEATURE


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Result:
    """The released results of a finished run; none describes a single subject.

    `maps`, `unmixing` and their figures are None for computations whose results are tables.

    Attributes
    ----------
    maps, spatial_maps : array (n_features, n_components)
        z-scores of the common maps, in final order and sign, and of the spatial components of the
        same subspace; the second is None in a template run.
    unmixing : array (n_components, n_features)
        ``X @ unmixing.T`` are the time courses of a person X (n_timepoints, n_features).
    confirmed : tuple of bool, whether its time courses confirm each map; None if not tested
    status, reason : str
        converged, unconfirmed, not_separated, max_rounds, not_judged, released, budget_exhausted,
        closed, yielded or diverged; and why.
    stability : float
        Agreement of the directions with those some rounds before, at most 1; 0 if not assessed.
    private, epsilon, delta
        Total per person, against the aggregator with the assumed colluders.  Without noise or with
        a seed nothing is guaranteed: private is False, epsilon None.
    counted : CountedPeople
        People who count (``counted``) of those given (``listed``), and ``why`` not the others.
    q_ngi, map_correlation : float
        Recovery error and mean |r| with the true maps; None without true maps.
    trace, warnings, outcome
        Rounds, texts, and all other results: settings, ledger, roster, matrices.

    Examples
    --------
    >>> result = cape.Consortium(sites).run(epsilon=100.0, settings=settings)
    >>> result.maps.shape, result.private, round(result.epsilon)
    ((12, 3), True, 100)
    """

    maps: Array | None
    unmixing: Array | None
    spatial_maps: Array | None
    confirmed: tuple[bool, ...] | None
    status: str
    reason: str
    stability: float
    private: bool
    epsilon: float | None
    delta: float
    trace: tuple[RoundRecord, ...]
    warnings: tuple[str, ...]
    counted: CountedPeople
    q_ngi: float | None
    map_correlation: float | None
    outcome: Outcome = field(repr=False)

    def __repr__(self) -> str:
        privacy = "NOT PRIVATE"
        if self.private:
            privacy = f"epsilon {display_epsilon(self.epsilon)}, delta {self.delta:g}"
        content = "tables" if self.maps is None else f"{self.maps.shape[1]} maps"
        people = f"{self.counted.counted} of {number_of(self.counted.listed, 'person')}"
        parts = (self.outcome.computation, content, people, self.outcome.ended, privacy)
        return f"<Result {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        from cape.python.notebook import result_html

        return result_html(self.outcome, self.plot, self.counted)

    def write(self, folder: str | Path, *, replace: bool = False) -> Path:
        """Write all files of the consortium and the report.

        ConfigError CAPE-E016: the folder holds results, and `replace` does not give them up.

        Parameters
        ----------
        folder : path, created if missing
        replace : bool; write over the results that are there

        Returns
        -------
        Path of index.html
        """
        folder = Path(folder)
        if (folder / "privacy.json").exists() and not replace:
            problem = f"{folder} holds a finished run, and its privacy.json says what was spent"
            do = "choose another folder, or give it up with replace=True."
            raise ConfigError("E016", problem=problem, do=do)
        write_results(folder, self.outcome, counted=None if self.counted.all else self.counted)
        return folder / "index.html"

    def to_dataframe(self) -> Any:
        """Return the maps as a pandas DataFrame: one row per feature, one column per component.

        The index has the names of the features, or their numbers from 1.  For computations with
        tables, return the first table.  ConfigError CAPE-E015: pandas is not installed.
        """
        pd = pandas_for("to_dataframe")
        if self.maps is not None:
            features = self.outcome.columns or range(1, len(self.maps) + 1)
            index = pd.Index(features, name=FEATURE)
            names = list(component_names(self.maps.shape[1]))
            return pd.DataFrame(self.maps, index=index, columns=names)
        if not self.outcome.tables:
            return pd.DataFrame()
        table = self.outcome.tables[0]
        return pd.DataFrame(list(table.rows), columns=list(table.header))

    def plot(self) -> Any:
        """Return a matplotlib Figure of all maps, in z: squares, glass brains or strips.

        ConfigError CAPE-E015: matplotlib is not installed; CAPE-E284: there are no maps.
        """
        from cape.report.brain import maps_figure
        from cape.report.plots import has_matplotlib

        if self.maps is None:
            problem = f"a result of {self.outcome.computation} has tables and no maps"
            raise ConfigError("E284", problem=problem, do="use to_dataframe().")
        if not has_matplotlib():
            do = "install the extra: pip install 'coinstac-cape[notebook]'."
            raise ConfigError("E015", what="plot", package="matplotlib", do=do)
        return maps_figure(self.maps, self.outcome.space)


USUAL_DELTA = 1e-5
# Excess kurtosis from which the spatial maps of a matrix are sparse: at the median over the maps,
# sparse ones of planted matrices had .7 to 8, dense ones -1.
SPARSE = 0.5
FITS_BETTER = (
    "the time courses separate nothing here, and the maps are sparse: computation='capegica' fits "
    "such data better"
)


def _is_sparse(outcome: Outcome, settings: Mapping[str, object]) -> bool:
    """Whether spatial ICA fits the matrix of a temporal run that did not converge."""
    if not isinstance(outcome, IcaOutcome) or outcome.kind != "temporal" or outcome.spatial is None:
        return False
    if outcome.space.kind != "matrix" or outcome.status == "converged":
        return False
    sparse = float(np.median(kurtosis(outcome.spatial.A))) > SPARSE
    return sparse and has_settings("capegica", settings)


def _result(outcome: Outcome, truth: Array | None, counted: CountedPeople) -> Result:
    figures = privacy_json.figures(outcome)
    ica = outcome if isinstance(outcome, IcaOutcome) else None
    q, correlation = None, None
    if truth is not None and ica is not None:
        q, correlation = nearness(ica.A, ica.W_total, truth)
    spatial = None if ica is None else ica.spatial
    return Result(
        maps=None if ica is None else z_scores(ica.A),
        unmixing=None if ica is None else ica.W_total,
        spatial_maps=None if spatial is None else z_scores(spatial.A),
        confirmed=None
        if ica is None or ica.verdict is None
        else tuple(word == "confirmed" for word in ica.verdict.components),
        status=outcome.status,
        reason=outcome.reason,
        stability=0.0 if ica is None else ica.stability,
        private=outcome.label == "dp",
        epsilon=figures.epsilon,
        delta=figures.delta,
        trace=outcome.trace,
        warnings=outcome.warnings,
        counted=counted,
        q_ngi=q,
        map_correlation=correlation,
        outcome=outcome,
    )


def _tell_of_time(entries: Iterable[Given]) -> None:
    """Warn of a column that only rises in everybody who has names of columns."""
    named = [one for one in entries if one.columns and not isinstance(one.data, SiteRun)]
    rises = {column_of_time(one.columns, np.asarray(one.data).T) for one in named}
    if len(rises) == 1 and (name := rises.pop()):
        told = f"column '{name}' only rises in everybody, as time does, and counts as a feature: "
        warn_caller(f"{told}leave it out (df.drop(columns='{name}'))", CapeWarning)


def _tell_of_empty(arrays: Sequence[Array], columns: Sequence[str]) -> None:
    """Warn of a column that has no value in some people; ConfigError CAPE-E284: in anybody."""
    lacking = np.array([np.isnan(X).all(axis=0) for X in arrays])
    empty = lacking[~lacking.all(axis=1)].sum(axis=0)  # of who has nothing at all others tell
    if not empty.any():
        return
    k = int(np.argmax(empty))
    name, others = columns[k] if columns else f"{k + 1}", int((empty > 0).sum()) - 1
    lacks = f"column '{name}'{f' and {others} more have' if others else ' has'} no value in "
    lacks += f"{empty[k]} of {number_of(len(arrays), 'person')}"
    do = "leave it out in all, or leave out who lacks it."
    if empty[k] == len(arrays):
        raise ConfigError("E284", problem=lacks, do=do)
    warn_caller(f"{lacks}: {do}", SubjectsWarning)


class Consortium:
    """Sites whose people are arrays (n_timepoints, n_features) in this process, or files.

    Rows are time points, columns are features, and runs are concatenated.  `JointICA` passes files
    and folders of sites, which cape's own reader reads in the space of the settings.

    Parameters
    ----------
    sites : mapping or list
        For each site its folder, or a list: arrays, one a person, or names of array files (.npy,
        .npz, .mat, .csv, .tsv, .1D), which say who is who as in a folder.
        A list of people is one site, a list of such lists one site each.
    space : FeatureSpace, optional
        ``FeatureSpace.of_matrix(D, (rows, columns))`` for images, ``.of_labels("mask", ...)`` for
        voxels; plain columns without it.
    truth : array (n_features, n_components), optional
        True maps for comparison.
    settings : mapping, optional
        Of every run; ``variable`` and ``orientation`` say how array files of lists are read.

    Raises
    ------
    ConfigError
        CAPE-E284: no people, other arrays or names of columns, features by time.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> maps = rng.standard_normal((3, 12))
    >>> people = [rng.laplace(size=(60, 3)) @ maps for _ in range(9)]
    >>> consortium = cape.Consortium({"a": people[:3], "b": people[3:6], "c": people[6:]})
    >>> settings = {"n_components": 3, "n_rounds": 3, "min_timepoints": 40}
    >>> consortium.run(epsilon=100.0, settings=settings).unmixing.shape
    (3, 12)
    """

    def __init__(
        self,
        sites: Mapping[str, Sequence[Any] | Path] | Sequence[Any],
        *,
        space: FeatureSpace | None = None,
        truth: Array | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._sites: dict[str, tuple[Given, ...] | Path] = {}
        self._settings = joined_settings(settings)
        named = []
        for site, people in by_site(sites, None).items():
            if is_folder(people):
                self._sites[site] = Path(people)
                continue
            given = tuple(with_names(person, self._settings) for person in several(people))
            self._sites[site] = given
            named += [(f"person {m} of {site}", one.columns) for m, one in enumerate(given, 1)]
        self._columns = same_names(named)
        check_apart({s: x for s, x in self._sites.items() if not isinstance(x, Path)})
        _tell_of_time(self._all())
        self._truth, self.space = truth, space
        flat = space is not None and space.kind == "matrix" and space.shape
        if space is not None and flat and math.prod(flat) != space.n_features:
            problem = f"space= of {space.n_features} features in an image of {flat}"
            raise ConfigError("E284", problem=problem, do="count the pixels again.")
        self.config: Config  # of the last run
        if not self._sites or any(x == () for x in self._sites.values()):
            raise ConfigError("E284", problem="a site without subjects", do="leave it out.")
        # Runs of the reader are features by time, as are the papers' matrices.
        data = [one.data for one in self._all()]
        arrays = [X for X in data if not isinstance(X, SiteRun)]
        arrays += [X.values.T for X in data if isinstance(X, SiteRun) and X.values is not None]
        self._longest = 0  # in time points; the reader judges files
        if not arrays:
            return
        n_features = features_of(arrays, 0 if space is None else space.n_features)
        if truth is not None and len(truth) != n_features:
            if all(len(X) == len(truth) for X in arrays):
                features_of(arrays, len(truth))  # it is the people who are features by time
            problem = f"truth= of shape {np.shape(truth)} for {n_features} features"
            raise ConfigError("E284", problem=problem, do="give (n_features, n_components).")
        self.space = (
            FeatureSpace.of_matrix(n_features, (), self._columns) if space is None else space
        )
        self._longest = max(map(len, arrays))
        _tell_of_empty(arrays, self._columns)

    def __repr__(self) -> str:
        def size(given: tuple[Given, ...] | Path) -> str:
            if isinstance(given, Path):
                return "a folder"
            is_file = any(one.file for one in given)
            return number_of(len(given), "file" if is_file else "person")

        sites = (f"{site}: {size(given)}" for site, given in self._sites.items())
        return f"<Consortium of {', '.join(sites)}>"

    def _all(self) -> Iterator[Given]:
        return (X for x in self._sites.values() if not isinstance(x, Path) for X in x)

    @property
    def n_subjects(self) -> int:
        """Number of people, not counting sites given as folders."""
        config = Config.from_input({"private": False, "feature_space": "matrix"})
        lists = {site: x for site, x in self._sites.items() if not isinstance(x, Path)}
        return sum(
            len(people_in(site, x, config, Findings(site)).people) for site, x in lists.items()
        )

    @in_python_words
    def run(
        self,
        *,
        epsilon: float | None = None,
        delta: float = USUAL_DELTA,
        private: bool | None = None,
        computation: str | None = None,
        settings: Mapping[str, object] | None = None,
        seed: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Result:
        """Run the whole protocol: keys, masks, exact noise, ledger.

        Parameters
        ----------
        epsilon, delta : float
            Total privacy loss per person; ``epsilon=None``: from `settings`.  There is no default.
        private : bool, optional; ``False``: a run without noise, which is not private
        computation : str, optional
            None: capegica for images and parcels, capedjica for matrices and for its own settings.
            Without noise a warning says if capegica fits a matrix better.
        settings : mapping, optional; those of docs/config.md
        seed : int, optional; 0 to 2^63 - 1: the result is then not private
        on_progress : callable, optional; called after every exchange, such as `cape.ProgressBar`

        Returns
        -------
        Result

        Raises
        ------
        ConfigError
            CAPE-E012: epsilon with ``private=False``; CAPE-E013: no epsilon; CAPE-E150: the
            results would be noise, and the settings do not accept_low_quality; CAPE-E284: so few
            time points that the arrays are transposed.
        DataError
            At a site, no person passed the checks; excluded people raise a `SubjectsWarning`.
        """
        simulation.check_seed(seed)
        _check_progress(on_progress)
        # The caller has all data: without a policy that is named no limit would protect them.
        named = _policy_named()
        policy = named or SitePolicy.of_simulation()
        settings = self._joined(settings)
        given = privacy_given(epsilon, private, settings)
        settings = joined_settings(
            settings, **given, delta=_not_usual(delta), computation=computation
        )
        asked = settings.pop("computation", None)
        values: dict[str, object] = {
            "n_sites": len(self._sites),
            "delta": delta,
            **self._shape(),
            **at_hand(settings, len(self._sites)),
        }
        computation = str(asked or "") or proposed(
            {**settings, "feature_space": values.get("feature_space", "mask")}
        )
        if folders := self._folders():
            values |= simulation.layout_of(folders, {"computation": computation, **values})
        table = load(computation)
        if table.simulation_only and seed is None:
            problem = f"{computation} protects nobody and runs with a seed only"
            raise ConfigError("E284", problem=problem, do="give seed=.")
        values |= self._components(computation, values)
        # Defaults of this method are dropped if the computation lacks the setting.
        options = {option.name for option in dataclasses.fields(table.config)}
        used = {n: v for n, v in values.items() if n in options or n in settings}
        config = table.config.from_input(used)
        self._check_length(config.min_timepoints)
        if len(self._sites) == 1 and "min_sites" not in settings:
            warn_caller(ALONE, CapeWarning)
        _tell_of_seed(seed, config.private)
        plan = partial(judge_config, table, config, n_sites=len(self._sites), space=self.space)
        plan()  # what needs no data
        sources = {s: self._source(s, x, config, policy) for s, x in self._sites.items()}
        if recurring := labels_that_recur({s: source.stated for s, source in sources.items()}):
            warn_caller(recurring, LabelsWarning)
        # First: every other figure speaks of all people who are listed.
        counted = counted_together(source.counted for source in sources.values())
        if not counted.all:
            warn_caller(counted.sentence, SubjectsWarning)
        for source in sources.values():
            if notice := source.notice:
                warn_caller(notice, SubjectsWarning)
        # Of a comparison the levels of people decide, which `join` knows.
        judged = plan(n_subjects=counted.listed if config.question is None else None).accepted()
        if not counted.all:
            # A run counts the people who are listed; its results are worth those who count.
            with suppress(CapeError):
                judged = plan(n_subjects=counted.counted)
        simulation.warn_of_noise(judged)
        # A seed in the policy marks the result as a simulation.
        policy = dataclasses.replace(policy, simulation_seed=-1 if seed is None else seed)
        folders = {} if named is None else folders  # their own policies may only forbid
        transport = MemoryTransport(table, config, sources, policy, None, folders=folders)
        try:
            run_to_end(transport, on_progress)
        except BaseException:  # passed on
            transport.leave()
            raise
        if transport.outcome is None:
            raise TypeError("the run ended without an outcome")
        self.config = config
        if not asked and not config.private and _is_sparse(transport.outcome, settings):
            warn_caller(FITS_BETTER, CapeWarning)
        return _result(transport.outcome, self._truth, counted)

    @in_python_words
    def budget(
        self,
        *,
        epsilon: float,
        delta: float = USUAL_DELTA,
        components: int = 0,
        computation: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> PlannedRun | PlannedComparison:
        """Return what a run on the people who count would cost and whether it will work.

        The data are read and checked, as before a run (DataError); nothing is released.

        Parameters
        ----------
        epsilon, delta, components, computation, settings : as for `cape.budget`

        Returns
        -------
        PlannedRun or PlannedComparison
        """
        given = joined_settings(self._joined(settings), epsilon=epsilon, computation=computation)
        given = joined_settings(given, delta=_not_usual(delta), n_components=components or None)
        values: dict[str, object] = {"delta": delta, **self._shape(), **given}
        name = proposed(values)
        values.pop("computation", None)
        if folders := self._folders():
            values |= simulation.layout_of(folders, {"computation": name, **values})
        values |= self._components(name, values)
        config = load(name).config.from_input(values)
        counted = counted_together(
            self._source(site, people, config).counted for site, people in self._sites.items()
        )
        return budget(
            subjects=counted.counted,
            sites=len(self._sites),
            epsilon=epsilon,
            computation=name,
            settings=values,
        )

    def _joined(self, settings: Mapping[str, object] | None) -> dict[str, object]:
        """Return the settings of a run; ConfigError CAPE-E012 if they contradict what was read."""
        asked = joined_settings(settings)
        if "n_features" in asked and self.space is not None:
            joined_settings(asked, n_features=self.space.n_features)
        for name in HOW_READ if any(one.file for one in self._all()) else ():
            if name in asked and asked[name] != self._settings.get(name):
                problem = f"{name} = {asked[name]}, and the files of the lists are read already"
                do = f"give it where they are: Consortium(sites, settings={{'{name}': ...}})."
                raise ConfigError("E012", problem=problem, do=do)
        return {**self._settings, **asked}

    def _components(self, computation: str, values: Mapping[str, object]) -> dict[str, object]:
        """Return R of a temporal run where nobody gave it: what people and features allow."""
        if computation != PRODUCT or values.get("n_components") or self.space is None:
            return {}
        people = len(self._sites) * N_COMPONENTS if self._folders() else self.n_subjects
        return {"n_components": max(2, min(N_COMPONENTS, people, room_for(self.space.n_features)))}

    def _source(
        self,
        site: str,
        people: Sequence[Given] | Path,
        config: Config,
        policy: SitePolicy | None = None,
    ) -> ArraySource | FileSource:
        if not isinstance(people, Path):
            self._check_arrays(config)
            findings = Findings(site)
            listed = people_in(site, people, config, findings)
            space = self.space or mask_space(config)
            return ArraySource.of(listed.people, space, config, findings, stated=listed.stated)
        limits = policy or SitePolicy.of_simulation()
        return FileSource(
            people,
            {},
            config,
            site,
            stop_if_most_fail=limits.stop_if_most_fail,
            min_group=limits.min_group,
        )

    def _check_arrays(self, config: Config) -> None:
        """ConfigError CAPE-E284: the computation asks for more than arrays of people hold."""
        if config.question is not None:
            problem = "people are compared by a table, and arrays have none"
            raise ConfigError("E284", problem=problem, do="call cape.compare_groups.")
        if resolve(config).templates and not (self.space and self.space.n_templates):
            problem = "arrays have no templates"
            do = "give folders, or space=cape.FeatureSpace.of_matrix(n).with_templates(maps)."
            raise ConfigError("E284", problem=problem, do=do)

    def _check_length(self, min_timepoints: int) -> None:
        """ConfigError CAPE-E284: all arrays have too few rows, but enough columns."""
        if self.space is not None and 0 < self._longest < min_timepoints <= self.space.n_features:
            problem = f"at most {self._longest} time points (rows) of {self.space.n_features} "
            problem += f"features (columns), and min_timepoints = {min_timepoints}"
            do = f"transpose what is features by time ({TRANSPOSE}), or lower min_timepoints."
            raise ConfigError("E284", problem=problem, do=do)

    def _folders(self) -> dict[str, Path]:
        return {site: people for site, people in self._sites.items() if isinstance(people, Path)}

    def _shape(self) -> dict[str, object]:
        if self.space is None:
            names = (name for folder in self._folders().values() for name in names_below(folder))
            kind = space_for(list(names))
            # Rows are time points, as everywhere in Python.
            return (
                {} if kind == "mask" else {"feature_space": kind, "orientation": "time_by_feature"}
            )
        said: dict[str, object] = {"feature_space": self.space.kind}
        # The caller's own mask, not one of the package.
        if self.space.kind == "mask":
            said["mask"] = "file"
        elif self.space.kind == "matrix" and self.space.shape:
            said["image_shape"] = ",".join(map(str, self.space.shape))
        elif self.space.kind == "matrix":
            said["n_features"] = self.space.n_features
            columns = ",".join(self._columns)
            # Not every column name is valid in the setting.
            if all(self._columns) and len(set(parse_columns(columns))) == self.space.n_features:
                said["columns"] = columns
        return said


@in_python_words
def simulate(
    directory: str | Path,
    *,
    out: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    private: bool | None = None,
    settings: Mapping[str, object] | None = None,
    settings_file: str | Path | None = None,
    through: str = "memory",
    seed: int | None = None,
    drops: Sequence[str] = (),
    policy: SitePolicy | None = None,
    image: str = "",
    memory: str = "",
    maps: str | Path | None = None,
    replace: bool = False,
    all_pages: bool = False,
    on_progress: OnProgress | None = None,
    on_subject: OnSubject | None = None,
) -> Path:
    """Run a consortium that lies in one folder and return the folder of its common results.

    Parameters
    ----------
    directory : path; one folder per site, and ``settings.toml``, which `settings` override
    out : path; receives ``consortium/`` and a folder per site
    epsilon, delta, private, settings, seed, on_progress : as for `Consortium.run`
    settings_file : path, optional; in place of that ``settings.toml``
    through : str; memory, wire, process; with the laboratory docker, coinstac and nvflare too
    drops : sequence of str; sites that drop out: ``site@phase:round``
    policy : SitePolicy, optional; of every site; None: that of CAPE_SITE_POLICY, or no limits
    image, memory : str; the image of docker and coinstac, and the memory of a container
    maps : path, optional
        Results of a finished run, or a file of public templates (capecontrast, capedualreg).
    replace : bool
        Begin anew where a run has ended, or was stopped; else a stopped one goes on, but through an
        engine or containers.
    all_pages : bool; draw the page of every site, not of the first alone
    on_subject : callable, optional; called after every person read

    Returns
    -------
    Path

    Raises
    ------
    ConfigError
        CAPE-E013: no epsilon, CAPE-E016: a run has ended in `out`, CAPE-E150: noise.
    DataError
        The data of a site did not pass a check.

    Examples
    --------
    >>> cape.simulate("study", out="out", private=False)
    PosixPath('.../out/consortium')
    """
    _check_progress(on_progress)
    if not Path(directory).is_dir():
        problem = f"no folder {directory}"
        raise ConfigError("E284", problem=problem, do="give the folder of a site or of several.")
    if maps is not None and not Path(maps).exists():
        problem = f"no file {maps} of maps"
        raise ConfigError("E284", problem=problem, do="give a file, or the folder of a result.")
    values = joined_settings(settings, **privacy_given(epsilon, private, settings), delta=delta)
    _tell_of_seed(seed, values.get("private", "epsilon" in values))
    options = RunOptions(
        out=Path(out),
        through=through,
        settings=values,
        settings_file=None if settings_file is None else Path(settings_file),
        seed=seed,
        drops=drops,
        policy=policy or _policy_named(),
        image=image,
        memory=memory,
        maps=None if maps is None else Path(maps),
        replace=replace,
        store=_store_folder(),
        all_pages=all_pages,
        on_progress=on_progress,
        on_subject=on_subject,
    )
    return simulation.simulate(Path(directory), options, _find_way)


@in_python_words
def rerun(
    finished: str | Path,
    *,
    out: str | Path,
    on_progress: OnProgress | None = None,
    on_subject: OnSubject | None = None,
) -> Path:
    """Repeat a finished run into another folder, and return the folder of the results.

    Parameters
    ----------
    finished, out : path; that of `cape.simulate`, and another
    on_progress, on_subject : as for `cape.simulate`

    Returns
    -------
    Path

    Raises
    ------
    ConfigError
        CAPE-E264: no finished run, CAPE-E016: `out` is not empty.

    Examples
    --------
    >>> cape.rerun("finished", out="again")
    PosixPath('.../again/consortium')
    """
    options = RunOptions(
        out=Path(out),
        replace=False,
        store=_store_folder(),
        on_progress=on_progress,
        on_subject=on_subject,
    )
    return simulation.rerun(Path(finished), options, _find_way)


def _policy_named() -> SitePolicy | None:
    """Return the policy that CAPE_SITE_POLICY names, which a warning tells; None without one."""
    path = SitePlaces.from_environment(os.environ).policy
    if path is None:
        return None
    policy = simulation.policy_of_all(path)
    charged = f"the ledger {policy.ledger_file} charges this run"
    if policy.ledger_file == NO_LEDGER:
        charged = "nothing is charged: it names no ledger_file"
    told = f"{POLICY_VARIABLE} names the policy {path}: its limits hold; {charged}"
    warn_caller(told, CapeWarning)
    return policy


def _store_folder() -> Path | None:
    store = own_store(SitePlaces.from_environment(os.environ))
    return None if store is None else store.folder


def _check_progress(on_progress: object) -> None:
    if on_progress is not None and not callable(on_progress):
        problem = f"on_progress={on_progress!r}, which cannot be called"
        raise ConfigError("E284", problem=problem, do="give cape.ProgressBar().")


def _tell_of_seed(seed: int | None, private: object) -> None:
    if seed is not None and private:
        text = "with a seed anybody can draw the noise again: NOT PRIVATE"
        warn_caller(text, PrivacyWarning)


def _not_usual(delta: float) -> float | None:
    """Return a delta that is an argument; None where it may be the usual one of nobody."""
    return None if delta == USUAL_DELTA else delta


def _find_way(through: str) -> Way:
    if through in WAYS:
        return WAYS[through]
    require(LABORATORY, f"through={through}")
    from cape.lab.engines.ways import find_any_way

    return find_any_way(through)


@in_python_words
def budget(
    *,
    subjects: int,
    sites: int,
    epsilon: float,
    delta: float = USUAL_DELTA,
    components: int = 0,
    computation: str = "",
    features: int = 0,
    outcomes: int | None = None,
    share: float = USUAL_SHARE,
    settings: Mapping[str, object] | None = None,
) -> PlannedRun | PlannedComparison:
    """Return what a planned run would cost and whether it will work; touches no data.

    Parameters
    ----------
    subjects, sites : int; total numbers
    epsilon, delta, settings : as for `Consortium.run`
    components : int; number of maps; 0: as many as the data would allow
    computation : str; empty: capegica for images, capedjica for tables
    features : int; number of columns of tables (arrays); 0: images of brains
    outcomes, share
        capecontrast: number of differences that are tested, and share of a site's people in the
        second of two levels, 0 to 1.

    Returns
    -------
    PlannedRun or PlannedComparison
        ``.advice.answer`` is "yes", "perhaps" or "no"; ``.advice.changes`` lists changes that
        would help; ``.curve`` has other budgets, ``.epsilon`` the figure of every viewer,
        ``.usable`` whether a run starts.
        capecontrast: ``.terms`` has for every asked term the standard error of a difference and
        the smallest one found with power .8; ``.answer`` is a sentence, ``.verdict`` a word.

    Raises
    ------
    ConfigError
        CAPE-E011: a number out of its range; CAPE-E012: arguments that contradict each other.

    Examples
    --------
    >>> cape.budget(subjects=256, sites=4, epsilon=1.0)
    <PlannedRun 256 people at 4 sites, 12 components of images, epsilon 1: perhaps>
    """
    counts: dict[str, object] = {"subjects": subjects, "sites": sites}
    counts |= {"features": features} if features else {}
    for name, number in counts.items():
        if not isinstance(number, int | np.integer) or number < 1:
            raise out_of_range(name, number, "a whole number, 1 or more", "count.")
    whole = isinstance(outcomes, int | np.integer)
    if outcomes is not None and not (whole and 1 <= outcomes <= MAX_OUTCOMES):
        allowed = f"how many are tested, a whole number, 1 to {MAX_OUTCOMES}"
        do = "count them; their columns go into settings={'outcomes': 'hippocampus 2500:5500'}."
        raise out_of_range("outcomes", outcomes, allowed, do)
    if outcomes is not None:
        computation = computation or "capecontrast"
    values = joined_settings(
        settings, epsilon=epsilon, delta=_not_usual(delta), computation=computation
    )
    values = {"delta": delta, **joined_settings(values, n_components=components or None)}
    if features:
        values = joined_settings(values, feature_space="matrix", n_features=features)
        is_counted = components or values.get("n_components") or outcomes is not None
        if not is_counted:  # as a run would take them
            values["n_components"] = max(2, min(N_COMPONENTS, room_for(features)))
    if outcomes is not None and values["computation"] != "capecontrast":
        problem = f"outcomes= belongs to capecontrast, not to {values['computation']}"
        raise ConfigError("E012", problem=problem, do="drop one of them.")
    if components and values.get("computation") == "capecontrast":
        problem = "components= is a number of maps, and capecontrast has none"
        raise ConfigError("E012", problem=problem, do="drop one of them.")
    return planning.any_budget_of(
        values, n_sites=sites, n_subjects=subjects, n_outcomes=outcomes, share=share
    )
