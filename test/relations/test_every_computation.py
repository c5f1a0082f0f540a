"""Relations 1, 2, 4, 5, 9, 12 and 13 of every computation: two whole runs are compared.

Four sites whose people have planted maps, or are rows of a table of two views.  All noise follows
from a seed, so no run differs from the last.  Comparisons of all kinds are in test_comparison.py.
"""

import functools
import shutil
import warnings
from argparse import Namespace
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

import cape
import separations
from cape.algorithms.scores import match_maps
from cape.cli import main
from cape.computations import load, names
from cape.data.space import grid_of, mask_space
from cape.errors import ConfigError
from cape.lab.synthetic.generators import two_views
from cape.lab.synthetic.resting import two_sided_study
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import ContrastOutcome, IcaOutcome, Outcome
from cape.report.comparison import comparison_of
from cape.report.consortium import components_of
from cape.settings.config import Config
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.flare import RUN, Calls, contents
from support.simulation import simulate

D, R, S = 40, 4, 4
RNG = np.random.default_rng(5)
MAPS = RNG.uniform(1, 3, (D, R)) * ((np.arange(D) % R)[:, None] == np.arange(R))
TEMPLATES = MAPS + 0.5 * RNG.standard_normal((D, R))
TABLES = ("capecca", "capepca", "dpdispca")
LINEAR = ("capecca", "capemean", "capepca", "papermean")  # the error is that of the noise
PRIVATE = [name for name in names() if load(name).guarantee == "dp"]
# DP-djICA cannot be without noise.
quiet = pytest.mark.parametrize("name", [name for name in names() if name != "dpdjica"])

People = dict[str, dict[str, np.ndarray]]


@functools.cache
def people(name: str, n: int, first: int = 0) -> People:
    """Return (features, T) of n people at each site; from another `first` on, of other people."""
    made: People = {}
    for s in range(S):
        if name in TABLES:
            rows = two_views(s, n_records=first + n, n_x=6, n_y=6, correlations=(0.8, 0.5)).records
            X = [*rows[first:, :, None].astype(np.float32)]
        elif name == "capecontrast":
            X = helper.subjects(first + n, seed=s)[first:]
        else:
            X = []
            for m in range(first, first + n):
                rng = np.random.default_rng([s, m])
                X.append(MAPS @ rng.laplace(size=(R, 60)) + 0.5 * rng.standard_normal((D, 60)))
        made[f"site{s}"] = {f"sub-{first + m:04d}": one for m, one in enumerate(X)}
    return made


class Source(helper.ArraySource):
    """People of a site under names of their own."""

    def __init__(self, given: Mapping[str, np.ndarray], space: FeatureSpace) -> None:
        super().__init__([*given.values()], space)
        self._names = [*given]

    def reduced(self, n_basis: int):
        for label, (_, X) in zip(self._names, super().reduced(n_basis), strict=True):
            yield label, X


def run(name: str, sites: People, epsilon: float | None = None, **changed: object) -> Outcome:
    D = len(next(iter(next(iter(sites.values())).values())))
    asked = {
        "n_features": D, "n_components": R, "n_local": R, "min_timepoints": 1 if name in TABLES
        else 30, "accept_low_quality": True, "epsilon": epsilon or 100.0,
        "private": epsilon is not None, "n_rounds": 40, "n_looks": 3, "test": "each",
        "batch": "full", **changed,
    }  # fmt: skip
    known = load(name).config.__dataclass_fields__
    asked = {key: value for key, value in asked.items() if key in known}
    if name not in PRIVATE:
        del asked["private"]
    arrays = {site: [*table.values()] for site, table in sites.items()}
    link = helper.Consortium(name, arrays, **asked)
    if name != "capecontrast":
        space = FeatureSpace.of_matrix(D)
        space = space.with_templates(TEMPLATES) if name == "capedualreg" else space
        for site, table in sites.items():
            link.parties[site].source = Source(table, space)
    outcome = link.play().outcome
    assert outcome is not None
    return outcome


def answer(outcome: Outcome) -> np.ndarray:
    """Return the numbers that a reader takes from a result, without signs that mean nothing."""
    if isinstance(outcome, ContrastOutcome):
        rows = comparison_of(outcome).effects
        return np.array([x for row in rows for x in (row.estimate, row.se)], dtype=float)
    if isinstance(outcome, IcaOutcome):
        return outcome.A
    columns = {
        table.name: np.array([row[1:] for row in table.rows], dtype=object)
        for table in outcome.tables
    }
    if "directions" in columns:
        V = columns["directions"].astype(float)
        return V @ V.T
    if "columns_x" in columns:  # the second half after mean and sd: loadings
        tables = [columns[f"columns_{view}"][:, 2:].astype(float) for view in "xy"]
        loadings = np.vstack([table[:, table.shape[1] // 2 :] for table in tables])
        return loadings @ loadings.T
    return columns["mean"][:, 0].astype(float)


def error(outcome: Outcome, best: Outcome) -> float:
    """Return the distance from the planted maps, or from the result without noise."""
    if isinstance(outcome, IcaOutcome):
        return float(1 - match_maps(outcome.A, MAPS).mean)
    one, other = answer(outcome), answer(best)
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


# -- 1, 2: units and constants ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PRIVATE if "ica" in name] + ["capedualreg"])
def test_1_2_maps_know_no_unit_of_people_or_sites_and_no_mean(name) -> None:
    """Each site in a unit of its own, as files are read by default; noise knows the data."""
    times = {"local0": 1000.0, "local1": 0.001, "local2": 1.0}
    arrays = {site: [X.T for X in each] for site, each in helper.datasets().items()}
    moved = {
        site: [times[site] * (X + 100.0 * m) for m, X in enumerate(each)]
        for site, each in arrays.items()
    }
    settings = helper.settings_of(name, **helper.SHORTER.get(name, {}), private=False)
    settings = {k: v for k, v in settings.items() if k not in ("epsilon", "standardize")}
    space = helper.templated() if name == "capedualreg" else FeatureSpace.of_matrix(12)
    one, other = (
        cape.Consortium(sites, space=space).run(computation=name, settings=settings, seed=3).maps
        for sites in (arrays, moved)
    )
    np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3)  # float32


# -- 4, 5: order and names -------------------------------------------------------------------------

OTHERS = (
    "Klinik f\u00fcr Kinder", "\u533b\u9662", "\u0645\u0633\u062a\u0634\u0641\u0649", "x" * 100,
)  # fmt: skip


@quiet
def test_4_5_order_and_names_change_nothing(name) -> None:
    """Without noise, which follows from names."""
    sites = people(name, 6)
    changed: People = {}
    for k, table in reversed([*enumerate(sites.values())]):
        if name == "capecontrast":  # its people have names and groups by their place
            changed[OTHERS[k]] = table
            continue
        renamed = {f"P {chr(0x4E00 + m)}": X for m, X in enumerate(table.values())}
        changed[OTHERS[k]] = dict(reversed(renamed.items()))
    few = {"n_rounds": 3, "n_looks": 1}
    one, other = (answer(run(name, each, **few)) for each in (sites, changed))
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


# -- 9: roads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_9_flare_s_rounds_and_the_command_give_the_bytes_of_memory(name, tmp_path, capsys) -> None:
    """Documents and processes are in test/protocol/test_conformance.py."""
    data = helper.write_data(tmp_path / "data", computation=name)
    settings = helper.settings_of(name, computation=name, **helper.SHORTER.get(name, {}))
    settings |= {"n_sites": 3, "site_names": "local0,local1,local2"}
    if name == "djica":  # a simulation fills it in, so that no digest would be equal
        settings["n_features"] = helper.N_FEATURES
    words = [f"--set={key}={value}" for key, value in settings.items()]
    policy = SitePolicy.of_simulation(private_results=True, simulation_seed=3)
    calls = Calls(data, tmp_path / "flare", policy)
    with helper.without_pages():
        simulate(data, out=tmp_path / "memory", settings=settings, seed=3, policy=policy)
        typed = ["simulate", str(data), "--out", str(tmp_path / "typed"), "--seed", "3", *words]
        assert main(typed) == 0, capsys.readouterr().err
        assert calls.play(settings).ended
        expected, found = (contents(tmp_path / k / "consortium") for k in ("memory", "typed"))
        rounds = calls.scored()
    assert len(expected) > 4
    assert found == expected
    assert rounds == expected
    for site in calls.own:
        private = calls.work / site / RUN / "output" / "private"
        assert contents(private) == contents(tmp_path / "memory" / site / "private")


@quiet
def test_9_arrays_in_python_give_the_numbers_of_a_folder_or_are_refused(name, tmp_path) -> None:
    """A comparison of arrays was an error of Python; of arrays without templates another number of
    them was asked for; a budget promised both."""
    arrays = {site: [X.T for X in each] for site, each in helper.datasets().items()}
    given = {**helper.settings_of(name), **helper.SHORTER.get(name, {})}
    del given["epsilon"]
    if name in ("capecontrast", "capedualreg"):
        for road in ("run", "budget"):
            with pytest.raises(ConfigError, match="E284"):
                getattr(cape.Consortium(arrays), road)(
                    epsilon=9.0, computation=name, settings=given
                )
    if name == "capecontrast":
        return
    if name in PRIVATE:
        given = helper.settings_of(name, private=False, **helper.SHORTER.get(name, {}))
        del given["epsilon"]
    data = helper.write_data(tmp_path, arrays, computation=name)
    more = {"space": helper.templated()} if name == "capedualreg" else {}
    found = (
        cape.Consortium(sites, **named).run(computation=name, settings=given, seed=3)
        for sites, named in (({site: data / site for site in arrays}, {}), (arrays, more))
    )
    one, other = (answer(result.outcome) for result in found)
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)


# -- 12: noise to zero -----------------------------------------------------------------------------

# People a site; of the papers' joint ICA no maps come out at any epsilon here.
ENOUGH = dict.fromkeys(TABLES, 250) | {
    "capemean": 15,
    "papermean": 15,
    "capegica": 8,
    "capedualreg": 8,
    "capedjica": 15,
}


@pytest.mark.parametrize("name", ENOUGH)
def test_12_quality_rises_with_epsilon_and_never_falls(name) -> None:
    """A hundredth of maps is that of the choice of rotation; tables come four times nearer."""
    sites = people(name, ENOUGH[name])
    found = [run(name, sites, epsilon) for epsilon in (5.0, 20.0, 100.0, None)]
    errors = [error(one, found[-1]) for one in found]
    assert all(later < earlier + 0.01 for earlier, later in pairwise(errors))
    assert errors[2] < errors[0] * (0.25 if name in LINEAR else 0.8), errors


@pytest.mark.long
def test_12_what_a_page_of_brains_claims_at_one_epsilon_it_claims_at_a_larger_one() -> None:
    """More networks are surely there, rightly each time; without noise other halves show them."""
    space = mask_space(Config.from_input({"private": False, "mask": "MNI152-10mm"}))
    study, claimed, quality = two_sided_study(grid_of(space), 8, seed=5), [], []
    size = Namespace(subjects=24, sites=4, g=1.0)  # epsilon is said below
    for epsilon in (5.0, 20.0, 100.0, None):
        outcome = separations.run(
            "capegica", space, lambda m: cleaned(study.subject(m, 80)), size, 1,
            mask="MNI152-10mm", n_components=8, epsilon=epsilon or 1.0,
            private=epsilon is not None,
        )  # fmt: skip
        words = [row.found_again or "" for row in components_of(outcome)]
        sure = [word.startswith(("yes", "in halves")) for word in words]
        maps = outcome.A - outcome.A.mean(axis=0)
        truth = study.maps - study.maps.mean(axis=0)
        r = (maps / np.linalg.norm(maps, axis=0)).T @ (truth / np.linalg.norm(truth, axis=0))
        assert (np.abs(r).max(axis=1)[sure] > 0.5).all()
        claimed.append(sum(sure))
        quality.append(match_maps(outcome.A, study.maps).mean)
    assert claimed == sorted(claimed)
    assert quality == sorted(quality)
    assert (claimed[0], claimed[-1]) == (0, 8)


def cleaned(X: np.ndarray) -> np.ndarray:
    """Standardise voxels in time and take the mean signal out, as a site does."""
    X = X - X.mean(axis=1, keepdims=True, dtype=float)
    X /= X.std(axis=1, keepdims=True)
    mean = X.mean(axis=0)
    return X - np.outer(X @ mean / (mean @ mean), mean)


# -- 13: more people, and people twice -------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PRIVATE if name != "capecontrast"])
def test_13_of_twice_the_people_every_release_has_half_the_noise(name) -> None:
    """In its mean over people; integers round it.  A comparison also divides its budget anew."""
    few = {"n_rounds": 3, "n_looks": 1, "n_basis": 12}
    stds = []
    for n in (10, 20):
        found = run(name, people(name, n), 50.0, **few)
        M = found.roster.n_subjects
        stds.append({(e.phase, e.round, e.field): e.noise_std(S, M) for e in found.ledger.events})
    assert stds[0].keys() == stds[1].keys()
    for release, std in stds[0].items():
        assert stds[1][release] == pytest.approx(std / 2, rel=1e-3), release


@pytest.mark.parametrize("name", names())
def test_13_people_twice_are_told_where_labels_or_files_show_it(name, tmp_path) -> None:
    """The same files at one site count once; labels that recur at several sites are told."""
    open_ = {"private": False} if name in PRIVATE else {}
    settings = helper.settings_of(name, computation=name, **open_, **helper.SHORTER.get(name, {}))

    def told(kind: str) -> str:
        data = tmp_path / kind
        for s in range(3):
            label = "sub-" if kind == "labels" else f"sub-{s}x"
            arrays = helper.subjects(4, seed=s)
            helper.write_data(data, {f"site{s}": arrays}, computation=name)
            for m, file in enumerate(sorted((data / f"site{s}").glob("sub-*.npy"))):
                file.rename(file.with_name(f"{label}{m:02d}.npy"))
                if kind == "files" and s == 1:
                    shutil.copy(file.with_name(f"{label}{m:02d}.npy"),
                                file.with_name(f"{label}9{m}.npy"))  # fmt: skip
            if name == "capecontrast":
                table = data / f"site{s}" / "participants.tsv"
                table.write_text(helper.people_table(arrays, label))
        with warnings.catch_warnings(record=True) as seen, helper.without_pages():
            warnings.simplefilter("always")
            simulate(data, out=tmp_path / f"{kind}-out", settings=settings, seed=3)
        return " ".join(str(one.message) for one in seen)

    plain = told("plain")
    assert "recur" not in plain
    assert "people count" not in plain
    assert "4 labels recur at several of the sites site0, site1, site2" in told("labels")
    if name != "capecontrast":  # two people may well have the same cells
        assert "4 of 8 people count (4: the same data are listed twice" in told("files")
