"""One plan is judged alike wherever it is made: nine roads, bad plans, equal codes, nothing sent.

Twelve people at four sites whose maps are asked at epsilon 50, or 400 whose groups are compared at
epsilon 4: both are good plans of which each bad one changes a line.  A road that cannot have a
fault is named in the plan, with the reason.
"""

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape
from cape.cli import main
from cape.engines.neuroflame import author_files
from cape.errors import CapeError, CapeWarning
from cape.settings.documents import toml_text
from support import consortium as helper

SITES = ("north", "south", "east", "west")
D = 20
MAPS: dict[str, Any] = {
    "computation": "capegica", "feature_space": "matrix", "n_features": D, "n_components": 3,
    "orientation": "feature_by_time", "min_timepoints": 30, "epsilon": 50.0, "delta": 1e-5,
    "n_sites": 4,
}  # fmt: skip
GROUPS: dict[str, Any] = {
    "computation": "capecontrast", "variables": "dx control/patient, age 18:90",
    "formula": "dx + age", "outcomes": "volume 2:8", "public": "dx", "epsilon": 4.0, "delta": 1e-5,
    "n_sites": 4,
}  # fmt: skip
PEOPLE = {"maps": 12, "groups": 400}
# What the shipped policy of a site says of both: it allows no epsilon of 50, and no counts
TOLD = {"CAPE-E260", "CAPE-E168"}

WITH_DATA = ("validate", "simulate", "Python", "COINSTAC")
WITHOUT_DATA = ("budget", "settings", "flare job", "NeuroFLAME")
ROADS = ("init", *WITHOUT_DATA, *WITH_DATA)
# Why a road has no fault of its own of any kind but these
INIT = {"bids_filter", "bids_exclude"}  # init proposes all else itself


@dataclass(frozen=True)
class Plan:
    """A good plan with a line changed (None: left out), and the code with which it is refused."""

    of: str  # maps or groups
    changed: Mapping[str, Any]
    code: str
    without: Mapping[str, str] = field(default_factory=dict)  # roads that cannot have it, and why

    @property
    def settings(self) -> dict[str, Any]:
        good = MAPS if self.of == "maps" else GROUPS
        settings = {**good, **self.changed}
        return {name: value for name, value in settings.items() if value is not None}


NO_BUDGET = {"validate": "data are checked before there is a budget"}
AN_OPTION = {"budget": "its option has a value", "Python": "its argument has a value"}
AT_HAND = {"budget": "is told the sites", "simulate": "counts folders", "Python": "counts sites"}
NO_SITES = dict.fromkeys(
    ("settings", "flare job", "NeuroFLAME"), "no site is at hand: the first exchange refuses"
)
NO_DROPS = {"COINSTAC": "has no drop-outs, nor its form an input for them"}
ONLY_FLARE = {road: "FLARE's rule for names" for road in ROADS if road != "flare job"}
NO_FOLDER = dict.fromkeys(WITHOUT_DATA, "has no folder of a site")
ARRAYS = {"Python": "takes arrays, which have templates or none"}


def maps(code: str, without: Mapping[str, str] | None = None, **changed: Any) -> Plan:
    return Plan("maps", changed, code, without or {})


def groups(code: str, without: Mapping[str, str] | None = None, **changed: Any) -> Plan:
    return Plan("groups", changed, code, without or {})


SECAGG = {"aggregation": "secagg"}
PLANS: dict[str, Plan] = {
    # types, names and ranges of settings
    "epsilon is a word": maps("E011", epsilon="three"),
    "epsilon below 0": maps("E011", epsilon=-1),
    "epsilon is no number": maps("E011", epsilon="nan"),
    "no epsilon": maps("E013", NO_BUDGET, epsilon=None),
    "no delta": maps("E013", NO_BUDGET | AN_OPTION, delta=None),
    "delta 0": maps("E011", delta=0.0),
    "delta 2": maps("E011", delta=2.0),
    "a setting misspelt": maps("E010", n_component=3),
    "a computation misspelt": maps("E010", computation="capegca"),
    "a setting of another computation": maps("E010", n_rounds=3),
    "private is perhaps": maps("E011", private="perhaps"),
    "a kind of data that is none": maps("E011", feature_space="brain"),
    "a mask that is none": maps("E011", mask="MNI152-5mm"),
    "a person's image for a mask": maps("E011", mask="sub-01_mask.nii.gz"),
    "filters that cross": maps("E011", high_pass=0.1, low_pass=0.01),
    "columns twice": maps("E011", columns="a,a"),
    "columns and features differ": maps("E012", columns="a,b,c"),
    "images by a pattern that is none": maps("E011", bids_filter="task rest"),
    "a person left out by the owner": maps("E011", bids_exclude="sub-01"),
    "pairs of labels that are none": maps("E011", label_pairs="1-1"),
    # what numbers allow
    "one component": maps("E011", n_components=1),
    "more components than people": maps("E130", n_components=13),
    "more components than directions": maps(
        "E149", n_basis=2, basis="kernel", image_shape="4,5"
    ),
    "more features than allowed": maps("E145", max_features=5),
    "shorter people than components": maps("E011", min_timepoints=4),
    "delta for fewer people": maps("E011", delta=0.09),
    "delta for fewer people of groups": groups("E011", delta=0.01),
    "an epsilon that finds noise": maps("E150", epsilon=1.0),
    "an epsilon that finds no difference": groups("E150", epsilon=0.2),
    # who takes part
    "nobody says how many sites": maps("E013", AT_HAND, n_sites=None),
    "a number of sites that is a word": maps("E011", n_sites="four"),
    "two sites": maps("E152", n_sites=2),
    "another number of sites": groups("E152", NO_SITES, n_sites=5),
    "names that are not enough": maps("E012", site_names="north,south,east"),
    "a name twice": maps("E011", site_names="north,south,east,north"),
    "a name that FLARE cannot have": groups(
        "E312", ONLY_FLARE, site_names="north,south,east,Köln"
    ),
    "a name like an option": groups("E312", ONLY_FLARE, site_names="-north,south,east,west"),
    "a name too long for FLARE": groups(
        "E312", ONLY_FLARE, site_names=f"{'n' * 65},south,east,west"
    ),
    "all collude": maps("E152", assumed_colluders=4),
    "one site with the noise of all": maps("E012", min_sites=1),
    "more survivors than sites": maps("E152", **SECAGG, min_survivors=5),
    "survivors who collude": maps("E152", **SECAGG, assumed_colluders=3),
    "drop-outs that cannot be": maps("E152", NO_DROPS, **SECAGG, min_survivors=2),
    "drop-outs of three": groups("E152", NO_DROPS, **SECAGG, n_sites=3),
    "drop-outs of a comparison": groups("E011", **SECAGG),
    # questions
    "no outcomes": groups("E013", outcomes=""),
    "no columns": groups("E013", variables=""),
    "a formula that is none": groups("E011", formula="dx +"),
    "a formula of other columns": groups("E011", formula="dx + weight"),
    "a term that is not in the formula": groups("E011", ask="age:dx"),
    "semicolons": groups("E011", outcomes="volume 2:8; other 2:8"),
    "columns with =": groups("E011", variables="dx=control/patient, age 18:90"),
    "a decimal comma": groups("E011", outcomes="volume 2,5:8,5"),
    "one level": groups("E011", variables="dx control, age 18:90"),
    "a range turned around": groups("E011", variables="dx control/patient, age 90:18"),
    "a unit that is nothing": groups("E011", outcomes="volume 0:5e-324"),
    "a unit that is too much": groups("E011", outcomes="volume -1e308:1e308"),
    "the logarithm of 0": groups("E011", outcomes="log(volume) 0:5"),
    "counts of a range": groups("E011", public="age"),
    "a pattern of protected groups": groups(
        "E011", public="", test="pattern", outcomes="volume 2:8, other 2:8"
    ),
    "sites like four": groups("E011", site_effects="random"),
    # the sites' own
    "no templates": maps("E280", NO_FOLDER | ARRAYS, computation="capedualreg"),
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four sites with three people each, and four with a table of a hundred."""
    base = tmp_path_factory.mktemp("roads")
    rng = np.random.default_rng(3)
    for site in SITES:
        for of in PEOPLE:
            (base / of / site).mkdir(parents=True)
        for m in range(3):
            np.save(base / "maps" / site / f"sub-{m:02d}.npy", rng.laplace(size=(D, 40)))
        rows = [
            f"sub-{site}{m:03d}\t{('patient', 'control')[m % 2]}\t{rng.uniform(20, 80):.1f}\t"
            f"{rng.normal(5, 1):.3f}"
            for m in range(100)
        ]
        table = "\n".join(["participant_id\tdx\tage\tvolume", *rows]) + "\n"
        (base / "groups" / site / "participants.tsv").write_text(table)
    return {of: base / of for of in PEOPLE}


def _by_command(words: list[str], capsys: pytest.CaptureFixture[str], *, good: bool) -> str:
    code = main(words)
    said = capsys.readouterr()
    # A budget explains low quality in its verdict.
    explained = words[0] == "budget" and "CAPE-E150" in said.out
    assert (code == 0) == (good or explained) or words[0] == "validate", (words, said)
    return said.err + said.out


def _raised(run: Callable[[], object]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapeWarning)
        try:
            run()
        except CapeError as err:
            return f"{err}{err.detail}"
    return ""


def heard(
    road: str,
    plan: Plan,
    folder: Path,
    out: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    good: bool = False,
) -> set[str]:
    """Return the codes that a road says of a plan, which leaves nothing unless it is good."""
    typed = partial(_by_command, capsys=capsys, good=good)
    out.mkdir(parents=True)
    settings, n = plan.settings, str(PEOPLE[plan.of])
    file = out / "settings.toml"
    file.write_text(toml_text(settings), encoding="utf-8")
    asked = ["--settings", str(file), "--subjects", n]
    if road == "init":
        options = {"bids_filter": "--filter", "bids_exclude": "--exclude"}
        words = [word for name in plan.changed for word in (options[name], plan.changed[name])]
        said = typed(["init", str(folder), "--out", str(out / "new"), *words])
    elif road == "budget":
        said = typed(["budget", *asked, "--sites", "4"])
    elif road == "settings":
        said = typed(["settings", str(file), "--subjects", n])
        # The owner's form in COINSTAC's application, too
        form = out / "form.json"
        form.write_text(json.dumps({name: {"value": one} for name, one in settings.items()}))
        said += typed(["settings", str(form), "--subjects", n])
    elif road == "flare job":
        said = typed(["flare", "job", str(out / "job"), *asked])
        assert (out / "job").exists() == good
    elif road == "NeuroFLAME":
        for mark in author_files.CHECKOUT_FILES:
            (out / mark).parent.mkdir(parents=True, exist_ok=True)
            (out / mark).write_text("")
        said = typed(["neuroflame", str(out), *asked])
        assert (out / author_files.PARAMETERS).exists() == good
    elif road == "validate":
        words = ["validate", str(folder), "--settings", str(file), "--fast"]
        said = typed(words)
    elif road == "simulate":
        said = _raised(lambda: cape.simulate(folder, out=out / "run", settings=settings))
        assert not (out / "run" / "consortium").exists()
    elif road == "Python":
        said = _raised(lambda: _in_python(folder, settings))
    else:
        said = _first_exchange(folder, out, settings)
    return set(re.findall(r"CAPE-E\d+", said))


def _in_python(folder: Path, settings: dict[str, Any]) -> object:
    named = {name: value for name, value in settings.items() if name != "computation"}
    if settings["computation"] == "capecontrast":
        asked = {name: named.pop(name) for name in ("formula", "variables", "outcomes")}
        tables = {site: _columns(folder / site / "participants.tsv") for site in SITES}
        return cape.compare_groups(tables, **asked, settings=named)
    people = {site: [np.load(p).T for p in sorted((folder / site).iterdir())] for site in SITES}
    return cape.Consortium(people).run(computation=settings["computation"], settings=named)


def _columns(table: Path) -> dict[str, list[str]]:
    header, *rows = (line.split("\t") for line in table.read_text().splitlines())
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _first_exchange(folder: Path, out: Path, settings: dict[str, Any]) -> str:
    engine = helper.Engine(out / "engine", folder, {"n_sites": 0, **settings})
    said = _raised(engine.exchange)
    assert not list((out / "engine").glob("*/output/.cape/*/ledger*"))
    return said


def _roads(plan: Plan) -> list[str]:
    roads = [road for road in ROADS if road not in plan.without]
    return roads if set(plan.changed) <= INIT else roads[1:]


def test_there_are_forty_bad_plans() -> None:
    assert len(PLANS) >= 40
    assert all(set(plan.without) < set(ROADS) for plan in PLANS.values())


@pytest.mark.parametrize("name", PLANS)
def test_a_bad_plan_is_refused_alike_on_every_road(
    name: str, study: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of FLARE was written of plans that its server refused when everybody had joined."""
    plan = PLANS[name]
    found = {
        road: heard(road, plan, study[plan.of], tmp_path / road, capsys) - TOLD
        for road in _roads(plan)
    }
    assert found == {road: {f"CAPE-{plan.code}"} for road in found}


@pytest.mark.parametrize("agreed", [False, True])
def test_two_sites_are_a_plan_where_its_settings_say_so_and_on_every_road(
    agreed: bool, study: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`budget` answered "Yes" and `promise` filled in a form where `flare job` refused."""
    folder, file = tmp_path / "two", tmp_path / "settings.toml"
    for site in SITES[:2]:
        shutil.copytree(study["maps"] / site, folder / site)
    settings = {**MAPS, "n_sites": 2, "accept_low_quality": True} | (
        {"min_sites": 2} if agreed else {}
    )
    file.write_text(toml_text(settings), encoding="utf-8")
    of_file, n = ["--settings", str(file)], ["--subjects", "6"]
    typed = {
        "budget": ["budget", *of_file, *n],
        "promise": ["promise", *of_file],
        "settings": ["settings", str(file), *n],
        "flare job": ["flare", "job", str(tmp_path / "job"), *of_file, *n],
    }
    said = {road: _by_command(words, capsys, good=agreed) for road, words in typed.items()}
    people = {site: [np.load(p).T for p in sorted((folder / site).iterdir())] for site in SITES[:2]}
    given = {name: value for name, value in settings.items() if name != "computation"}
    runs: dict[str, Callable[[], object]] = {
        "simulate": lambda: cape.simulate(folder, out=tmp_path / "run", settings=settings),
        "Python": lambda: cape.Consortium(people).run(computation="capegica", settings=given),
    }
    said |= {road: _raised(run) for road, run in runs.items()}
    found = {road: set(re.findall(r"CAPE-E\d+", text)) - TOLD for road, text in said.items()}
    assert found == {road: set() if agreed else {"CAPE-E152"} for road in found}


@pytest.mark.parametrize(("of", "code"), [("maps", "CAPE-E260"), ("groups", "CAPE-E168")])
def test_what_sites_without_a_policy_would_refuse_is_told_wherever_a_plan_is_made(
    of: str, code: str, study: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both plans are good; the sites' own policies decide, so only `validate` is not ready."""
    plan = Plan(of, {}, code)
    for road in (*WITHOUT_DATA, "validate"):
        assert heard(road, plan, study[of], tmp_path / road, capsys, good=True) == {code}, road
    words = ["simulate", str(study[of]), "--out", str(tmp_path / "run"), "--quiet"]
    words += [word for pair in plan.settings.items() for word in ("--set", "{}={}".format(*pair))]
    assert main(words) == 0
    assert code in capsys.readouterr().err


def test_a_run_without_noise_and_every_limit_that_it_passes_are_told(
    study: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was said of private=false, and the counts of a column hid an epsilon of 20."""
    told = {
        "open": ({"private": False}, {"CAPE-E260", "CAPE-E168"}),
        "large": ({"epsilon": 20.0}, {"CAPE-E260", "CAPE-E168"}),
    }
    for name, (changed, codes) in told.items():
        for road in (*WITHOUT_DATA, "validate"):
            plan = Plan("groups", changed, "")
            said = heard(road, plan, study["groups"], tmp_path / name / road, capsys, good=True)
            assert said == codes, (name, road)
