"""All sites on this computer, through the code of a real run; a seed gives the same maps."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shlex
import shutil
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.scores import isi, match_maps
from cape.computations import configured
from cape.counting import CountedPeople, counted_together
from cape.data.folders import site_folders
from cape.data.space import ATLAS_FILES
from cape.data.templates import file_of_maps, maps_with_names
from cape.engines.coinstac.site import is_closed, leave_run
from cape.errors import (
    CapeError,
    CapeWarning,
    ConfigError,
    ConsortiumError,
    LabelsWarning,
    NoiseWarning,
    PrivacyBudgetError,
    warn_caller,
)
from cape.planning.consortium_folder import merged, proposed, read_file, settings_beside
from cape.planning.judge import Judged, at_hand, judge, judge_config, why_refused
from cape.planning.public_maps import asking_of_maps, of_maps
from cape.report import add_score, draw_site
from cape.report.files import read_record
from cape.report.network_maps import Brought
from cape.report.private_folder import SiteFacts
from cape.settings.config import ALONE, RESERVED, Config
from cape.settings.own_words import POLICY_FILE
from cape.simulation.going_on import goes_on, note_begin, read_state, seed_of_stopped, write_state
from cape.simulation.run_loop import RunOptions, RunSetup, read_setup, was_stopped
from cape.simulation.ways import CONTAINER_LOGS, FindWay, Play, find_way, notices
from cape.site.files import folder_lock, why_and_where
from cape.site.ledger_file import own_ledger
from cape.site.places import IN_PLACE, STATE, WORK, SitePlaces
from cape.site.policy import NO_LEDGER, SitePolicy, load_policy
from cape.space.feature_space import FeatureSpace

if TYPE_CHECKING:
    from cape.data.people import PeopleList

# Settings that count the sites of a consortium, or name them
OF_OTHERS = ("n_sites", "site_names", "min_sites", "min_survivors", "assumed_colluders")
# TOML, the format of a site's policy file, has no larger integers.
MAX_SEED = 2**63 - 1

# Files that identify an earlier result
RESULT_FILES = ("results.json", "cape-site.json", "private", "site-error.txt", "site-notice.txt")


def simulate(directory: Path, options: RunOptions, find_way: FindWay = find_way) -> Path:
    """Run a consortium that lies in one folder and return the folder of its common results.

    `find_way` maps ``through`` to a way.
    """
    seed, maps, out = options.seed, options.maps, options.out.resolve()
    check_seed(seed)
    sites = site_folders(directory)
    way = find_way(options.through)
    chosen = _chosen(directory, options.settings, maps, options.settings_file)
    check_places(sites, out)
    if not options.replace:
        _check_no_result(out)
        _check_not_closed(out / WORK, sites)
    chosen |= layout_of(sites, chosen)
    computation, config = configured(chosen)
    # Comparisons without a guarantee always have a seed, which marks them as simulations.
    if seed is None and computation.simulation_only:
        # Nobody can type a drawn seed again: a run that was stopped goes on with its own.
        before = None if options.replace else seed_of_stopped(out / WORK)
        seed = secrets.randbelow(2**31) if before is None else before
    limit = options.policy
    if limit is None:
        # One person has data and noise here, so the limits of a policy would not protect.
        limit = SitePolicy.of_simulation(private_results=True)
    limit = dataclasses.replace(limit, simulation_seed=-1 if seed is None else seed)
    # Containers do not mount it, so charges would be lost.
    if limit.ledger_file != NO_LEDGER and not way.sees_ledgers:
        problem = "a container does not see the ledger_file of the policy"
        raise ConfigError("E012", problem=problem, do="use another --through.")
    if options.drops and not way.drops_sites:
        problem = "in an engine no site falls silent by itself"
        raise ConfigError("E012", problem=problem, do="try drop-outs with another --through.")
    # Checked before reading data, which takes minutes.
    judge_config(computation, config, n_sites=len(sites))
    lists = _lists(sites, config)
    # The levels of people decide on a comparison: its tables are read first.  A site that lists
    # nobody is told why when it is read.
    n_people = [len(people.listed) for people in lists.values()]
    known = sum(n_people) if config.question is None and all(n_people) else None
    judged = judge_config(computation, config, n_sites=len(sites), n_subjects=known).accepted()
    warn_of_noise(judged)
    setup = RunSetup(
        directory=str(directory.resolve()),
        through=options.through,
        settings=chosen,
        policy=limit,
        drops=tuple(options.drops),
        image=options.image,
        memory=options.memory,
        # Only the file, because its folder may have a site's private files.
        maps="" if maps is None else str((file_of_maps(maps) or maps).resolve()),
    )
    return _play(setup, out, options, find_way)


def rerun(finished: Path, options: RunOptions, find_way: FindWay = find_way) -> Path:
    """Repeat the finished run of a folder from its setup file, with new noise if it had any.

    ConfigError E264: no setup file; E016: `out` is not empty or not another folder.
    """
    setup = read_setup(finished)
    out = options.out.resolve()
    check_places(site_folders(_data_of(setup)), out)
    _check_no_result(out)
    return _play(setup, out, options, find_way)


def may_go_on(out: Path) -> bool:
    """Whether the folder holds a run that was stopped and that the same command goes on with."""
    return goes_on(out.resolve() / WORK)


def _data_of(setup: RunSetup) -> Path:
    directory = Path(setup.directory)
    if not directory.is_dir():
        problem, do = "the folder with its data is not there", "put it back, or start a new run."
        raise ConfigError("E264", problem=problem, do=do, detail=str(directory))
    return directory


def _play(setup: RunSetup, out: Path, options: RunOptions, find_way: FindWay) -> Path:
    directory, way, work = Path(setup.directory), find_way(setup.through), out / WORK
    sites, new = site_folders(directory), not out.exists()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        problem, do = "the folder cannot be made", "choose another --out."
        raise ConfigError("E016", problem=problem, do=do, detail=why_and_where(err)) from err
    with _stopped_by_sigterm(), folder_lock(work, "this results folder", patience=0.0):
        # Under the lock: what lies here is of a simulation that was stopped or killed.
        state = None if options.replace else read_state(work, setup, sites)
        there = any(path.is_dir() for path in (work / "remote" / "transfer", out / "consortium"))
        if state is not None and IN_PLACE in state and not there:
            state = None  # somebody moved its results away
        if state is None:
            _leave_run(work, sites)
            empty(work)
            note_begin(work, setup, sites)
        try:
            told = None if state is None else state.get(IN_PLACE)
            if told is None:
                play = Play(setup=setup, sites=sites, work=work, options=options, state=state)
                way.play(play)
                told = notices(play)
                _score(setup, work / "remote" / "transfer", _counted(work, sites))
                for site in list(sites)[: None if options.all_pages else 1]:
                    draw_site(work / site / "output")
                # From here on files are moved: nothing can be played again.
                write_state(work, {IN_PLACE: told})
            setup = dataclasses.replace(setup, notices={s: tuple(told[s]) for s in told})
            _collect(work, out, list(sites))
            setup.write(out)
            empty(work)
        except BaseException as err:  # passed on
            _leave_run(work, sites)
            _keep_errors(work, out)
            if not was_stopped(err) or not goes_on(work):
                shutil.rmtree(work, ignore_errors=True)
                if new:
                    with contextlib.suppress(OSError):  # it holds a site's reason
                        out.rmdir()
            raise
        shutil.rmtree(work, ignore_errors=True)
    return out / "consortium"


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, of a cluster or of ``timeout``, end a run as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # as shells report it

    # Only the main thread may set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _leave_run(work: Path, sites: Mapping[str, Path]) -> None:
    """Free what a stopped run holds in ledgers of its sites; what it charged stays charged.

    A run that goes on takes its place again.
    """
    for site, output in _outputs(work, sites):
        leave_run(site, sites[site], output, SitePlaces())


def _check_not_closed(work: Path, sites: Mapping[str, Path]) -> None:
    """Raise PrivacyBudgetError (E237) if people closed the run that would go on: nobody is read."""
    for site, output in _outputs(work, sites):
        if is_closed(site, sites[site], output, SitePlaces()):
            do = "to begin a new run, which charges anew: cape simulate --replace, or another --out"
            raise PrivacyBudgetError("E237", site=site, detail=do)


def _outputs(work: Path, sites: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield each site with its output folder, if that holds the journal of a run."""
    for site in sites:
        # One level deeper in FLARE, whose sites keep a folder per run
        for journal in (*(work / site).glob("output/.cape"), *(work / site).glob("*/output/.cape")):
            yield site, journal.parent


def _counted(work: Path, sites: Iterable[str]) -> CountedPeople | None:
    """Return how many people count; None if all do, or a site wrote no private results."""
    paths = [work / site / "output" / "private" / "site.json" for site in sites]
    if not all(path.is_file() for path in paths):
        return None
    each = [read_record(path, SiteFacts).counted for path in paths]
    counted = counted_together(one for one in each if one is not None)
    return None if counted.all else counted


def _brought(setup: RunSetup) -> Brought | None:
    """Return the maps of a comparison, or the first site's atlas if a table names its regions."""
    if proposed(setup.settings) == "capecontrast":
        if not setup.maps:
            return None
        path, labels = maps_with_names(Path(setup.maps))
        return Brought(path=path, labels=labels)
    if setup.settings.get("feature_space") != "atlas":
        return None
    site = next(iter(site_folders(Path(setup.directory)).values()))
    names = filter(None, (str(setup.settings.get("atlas") or ""), *ATLAS_FILES))
    for name in names:
        if (site / name).is_file():
            path, labels = maps_with_names(site / name)
            return Brought(path=path, labels=labels) if labels else None
    return None


def _score(setup: RunSetup, consortium: Path, counted: CountedPeople | None) -> None:
    truth = Path(setup.directory) / "truth.npz"
    q_ngi, correlation = compare_with_truth(truth, consortium / "unmixing.npz")
    add_score(
        consortium,
        q_ngi=q_ngi,
        map_correlation=correlation,
        counted=counted,
        synthetic=truth.is_file(),  # `cape synth` plants it; people's own files have none
        charged=setup.policy.ledger_file not in ("", NO_LEDGER),
        maps=_brought(setup),
    )


def policy_of_all(path: Path) -> SitePolicy:
    """Return the policy in a file as that of every site of a simulation, with its ledger's path.

    ConfigError E268 for a file that cannot be used.
    """
    ledger, policy = own_ledger(policy_path=path)
    # All sites of a simulation share this file and the ledger beside it.  Without a named ledger
    # none is kept, because the sites' working folders do not stay.
    if ledger is None:
        return dataclasses.replace(policy, ledger_file=NO_LEDGER, max_total=())
    return dataclasses.replace(policy, ledger_file=str(ledger.resolve()))


def refused_by_policies(
    directory: Path,
    settings: Mapping[str, object],
    maps: Path | None = None,
    settings_file: Path | None = None,
) -> tuple[str, ...]:
    """Return which sites would refuse this run and why.

    The policy of a site is the file in its folder, else the shipped one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself warns
        chosen = _chosen(directory, settings, maps, settings_file)
    sites, refusing = site_folders(directory), dict[str, list[str]]()
    judged = judge(chosen, n_sites=len(sites))
    if not judged.config.private:
        return ()  # every page says that the run protects nobody
    for site, folder in sites.items():
        own = folder / POLICY_FILE
        whose = "by its own site-policy.toml" if own.is_file() else "without a policy of its own"
        try:
            policy = load_policy(own) if own.is_file() else SitePolicy()
            why = why_refused(policy, judged.computation, judged.config, len(sites))
        except ConfigError as err:  # the run itself refuses it
            why = err.public
        if why:
            refusing.setdefault(f"{whose}: {why}", []).append(site)
    return tuple(f"{', '.join(names)}, {why}" for why, names in refusing.items())


def _lists(sites: Mapping[str, Path], config: Config) -> dict[str, PeopleList]:
    """Return the people of each site; DataError if a run is there in several versions.

    A warning says how many labels several sites have.
    """
    from cape.data.issues import Findings
    from cape.data.people import labels_that_recur, read_people

    lists = {}
    for site, path in sites.items():
        findings = Findings(site, strict=True)
        lists[site] = read_people(path, config, findings)
        # In a real run these people count as zeros; here all files are at hand.  Other faults end
        # the run itself, which tells them to each site.
        if lists[site].doubled:
            findings.raise_if_blocked()
    if recurring := labels_that_recur({site: people.stated for site, people in lists.items()}):
        warn_caller(recurring, LabelsWarning)
    return lists


def warn_of_noise(judged: Judged) -> None:
    """Warn of low quality that the settings accept."""
    if judged.low_quality is not None:
        reason = str(judged.low_quality.fields["problem"]).removeprefix("No: ")
        warn_caller(f"too few people for this budget: {reason}.", NoiseWarning)


def _chosen(
    directory: Path, settings: Mapping[str, object], maps: Path | None, file: Path | None
) -> dict[str, object]:
    sites = site_folders(directory)
    in_file = _settings_of(directory) if file is None else read_file(file)
    settings = settings if maps is None else asking_of_maps(in_file, settings)
    chosen = merged(in_file, settings)
    chosen["computation"] = proposed(chosen)  # in a real run the owner must name it
    if maps is not None:
        chosen |= of_maps(maps, chosen)
    if file is None and settings_beside(directory) is None:
        _check_enough(chosen)
    if len(sites) == 1 and "min_sites" not in chosen:
        warn_caller(ALONE, CapeWarning)
    chosen = at_hand(chosen, len(sites))
    # In a real run the owner counts and names the sites.
    if str(chosen.setdefault("n_sites", len(sites))) == str(len(sites)):
        chosen.setdefault("site_names", ",".join(sites))
    return chosen


def _settings_of(directory: Path) -> dict[str, object]:
    """Return the settings in or beside the folder, which `cape validate` reads as well.

    Those beside it are of several sites: what they say of other sites does not hold for one alone.
    """
    path = settings_beside(directory)
    chosen = read_file(path)
    if path is not None and path.parent.resolve() != directory.resolve():
        return {name: value for name, value in chosen.items() if name not in OF_OTHERS}
    return chosen


def layout_of(sites: Mapping[str, Path], chosen: Mapping[str, object]) -> dict[str, object]:
    """Return the owner's settings on array files; {} if already set, or without such files.

    ConsortiumError E144 or E250 if sites differ.
    """
    if str(chosen.get("feature_space", "matrix")) != "matrix":
        return {}
    from cape.data.discovery import header_of

    try:
        _, config = configured(chosen)
        if config.feature_space != "matrix" or config.declared_features:
            return {}
        found = {site: header_of(path, config) for site, path in sites.items()}
    except CapeError:  # the run itself raises it
        return {}
    # `join` reads and compares the headers of tables of records.
    sizes = {site: len(header.values) for site, header in found.items() if header is not None}
    if not sizes:
        return {}
    _check_equal("E144", {site: str(n) for site, n in sizes.items()})
    named = {site: header.columns for site, header in found.items() if header and header.columns}
    # Names may be long and many: compare digests, as in `join`.
    digests = {s: FeatureSpace.of_matrix(len(x), (), x).digest for s, x in named.items()}
    _check_equal("E250", digests)
    said: dict[str, object] = {"n_features": next(iter(sizes.values()))}
    names = next(iter(named.values()), ())
    # Not every column name of a header is valid in the setting.
    if names and len(set(names)) == len(names) and not any("," in n or not n for n in names):
        said["columns"] = ",".join(names)
    return said


def _check_equal(code: str, got: Mapping[str, str]) -> None:
    if len(set(got.values())) > 1:
        each = ", ".join(f"{site} has {value}" for site, value in got.items())
        raise ConsortiumError(code, sites=each)


def _check_enough(chosen: Mapping[str, object]) -> None:
    """Raise E013, with what to type, if settings.toml is missing and a setting was not given."""
    try:
        configured(chosen)
    except ConfigError as err:
        if err.code == "CAPE-E013":
            do = "no settings.toml is in the folder or beside it: write one with cape init FOLDER."
            raise ConfigError("E013", setting=err.fields["setting"], do=do) from err


def check_seed(seed: int | None) -> None:
    # In a policy -1 means no seed, and its file cannot hold larger ones.
    if seed is not None and not (type(seed) is int and 0 <= seed <= MAX_SEED):
        allowed = "a whole number, 0 to 2^63 - 1"
        do = "choose another one, or none for noise that counts."
        raise ConfigError("E011", setting="seed", got=seed, allowed=allowed, do=do)


def compare_with_truth(truth: Path, unmixing: Path) -> tuple[float | None, float | None]:
    """Return ISI of the gain matrix and mean matched |r| of the maps; None without truth or maps.

    Files hold ``A`` (D, R) planted; ``W_total`` (k, D) and ``A`` (D, k) estimated.
    """
    if not (truth.is_file() and unmixing.is_file()):
        return None, None
    with np.load(truth, allow_pickle=False) as stored:
        planted = stored["A"].astype(np.float64)
    with np.load(unmixing, allow_pickle=False) as stored:
        W_total, A = stored["W_total"], stored["A"]
    return nearness(A, W_total, planted) if len(planted) == len(A) else (None, None)


def nearness(maps: Array, unmixing: Array, planted: Array) -> tuple[float | None, float]:
    """Return ISI of the gain matrix, None if it is not square, and mean matched |r| of the maps."""
    gain = unmixing @ planted
    q = float(isi(gain)) if gain.shape[0] == gain.shape[1] else None
    return q, float(match_maps(maps, planted).mean)


def empty(work: Path) -> None:
    # Its state first: without the rest nothing goes on.  Not the folder itself, which is locked;
    # a link is removed, its target is not.
    (work / STATE).unlink(missing_ok=True)
    for path in work.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _check_no_result(out: Path) -> None:
    """Raise ConfigError for a finished run in `out`: its budget figures are still needed.

    Not while a run that was stopped lies there: its results are in place but for the last file, or
    it was begun with ``--replace``.
    """
    if (out / "consortium" / "privacy.json").is_file() and not goes_on(out / WORK):
        problem = f"{out} holds a finished run, and its privacy.json says what was spent"
        do = "choose another --out, or give it up with cape simulate --replace."
        raise ConfigError("E016", problem=problem, do=do)


def check_places(sites: Mapping[str, Path], out: Path) -> None:
    """Raise ConfigError if `out` overlaps data or other files than an earlier result."""

    def refuse(problem: str, do: str = "choose another --out.") -> ConfigError:
        return ConfigError("E016", problem=problem, do=do)

    for name in (*RESERVED, CONTAINER_LOGS):
        if name in sites:
            raise refuse(f"a site cannot be called '{name}': {sites[name]}", "rename its folder.")
    for target in (out / WORK, out / "consortium", *(out / site for site in sites)):
        for place in sites.values():
            if target == place or target in place.parents or place in target.parents:
                apart = shlex.quote(str(place.with_name(f"{place.name}-results")))
                problem = f"results in {target} would lie over the data in {place}"
                raise refuse(problem, f"choose a folder beside them: --out {apart}")
        ours = target.name == WORK or any((target / mark).exists() for mark in RESULT_FILES)
        if target.is_dir() and any(target.iterdir()) and not ours:
            raise refuse(f"{target} holds something that is no earlier result of cape")


def _collect(work: Path, out: Path, sites: Sequence[str]) -> None:
    # At the end, so that an error leaves an earlier result intact; the common results last, because
    # a folder that has them holds a finished run.
    for site in sites:
        _replace(work, work / site / "output", out / site)
    _replace(work, work / "remote" / "transfer", out / "consortium")
    for path in out.glob("*/site-error.txt"):  # of an earlier stop or run
        path.unlink()
        with contextlib.suppress(OSError):  # the folder has other files
            path.parent.rmdir()


def _replace(work: Path, new: Path, old: Path) -> None:
    shutil.rmtree(new / ".cape", ignore_errors=True)
    if not new.exists():
        return
    if old.exists():
        # Not deleted where it lies: a killed process would leave a part without its tables.
        replaced = work / "replaced"
        replaced.mkdir(exist_ok=True)
        shutil.rmtree(replaced / old.name, ignore_errors=True)
        old.rename(replaced / old.name)
    shutil.move(new, old)


def _keep_errors(work: Path, out: Path) -> None:
    for path in work.glob("*/output/site-error.txt"):
        site = out / path.parent.parent.name
        site.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, site / "site-error.txt")
