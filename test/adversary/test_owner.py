"""An owner who asks: what any number of runs that never reach a release tell about people's data.

Every attack goes through the border function that the engine calls.  A site is shown two worlds,
which have the same names and nothing else in common; whatever it sends back (answer, error, size)
must be the same in both, for every value of every setting that reaches a check.  So the owner
learns 0 bits, however he chooses the next value.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from cape.computations import load
from cape.data import pipeline, reading, tables
from cape.data.pipeline import load_site
from cape.data.space import MASKS
from cape.engines.coinstac import site as border
from cape.engines.coinstac.computation import run
from cape.errors import CapeError, DataError, PrivacyBudgetError, StoppedError
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import Cost
from cape.protocol import secure_sum, wire
from cape.settings.config import UNCHECKED, Config
from cape.site import files
from cape.site.access import AccessRecords
from cape.site.ledger_file import LifetimeLedgerFile, read_ledger
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy
from support import consortium as helper
from support import surfaces
from support.simulation import simulate

pytestmark = pytest.mark.usefixtures("no_pages")

D, PEOPLE = 12, 8
SHIPPED = (
    'ledger_file = "all-runs.jsonl"\nmax_total = [[1.0, 1e-5]]\nmin_subjects = 3\n'
    "allow_local_noise = true\n"
)
LEDGER = SHIPPED + "stop_if_most_fail = false\n"
MATRIX = {**helper.settings_of("capedjica"), "epsilon": 1.0, "n_features": D, "n_sites": 3}


def series(m: int, n_times: int, *, rank: int = D) -> np.ndarray:
    rng = np.random.default_rng(m)
    return rng.standard_normal((D, rank)) @ rng.laplace(size=(rank, n_times))


def write_people(folder: Path, arrays: list[np.ndarray], trs: list[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    for m, X in enumerate(arrays):
        np.save(folder / f"sub-{m:02d}.npy", X)
    rows = [f"sub-{m:02d}.npy,sub-{m:02d},{tr}" for m, tr in enumerate(trs or ["2"] * len(arrays))]
    (folder / "manifest.csv").write_text("\n".join(["file,participant_id,tr", *rows]) + "\n")
    return folder


def spoiled(folder: Path) -> None:
    """Break the files of most people, each in another way; their names stay."""
    names = sorted(folder.glob("sub-*.npy"))
    names[0].write_bytes(b"")
    names[1].write_bytes(names[1].read_bytes()[:300])
    np.save(names[2], series(2, 70).astype(np.complex64))
    np.save(names[3], np.full((D, 80), np.nan))
    np.save(names[4], series(4, 80)[1:])
    np.save(names[5], series(5, 80).T)
    names[6].write_bytes(b"version https://git-lfs.github.com/spec/v1\n")


class Owner:
    """Runs that end with `join`, as one owner may start any number of them."""

    def __init__(self, work: Path, site: Path, policy: str = LEDGER, owner: str = "ann") -> None:
        self.work, self.site, self.owner, self.calls = work, site, owner, 0
        work.mkdir(parents=True, exist_ok=True)
        self.policy = work / "site-policy.toml"
        if not self.policy.exists():
            self.policy.write_text(policy)

    def ask(self, **settings: object) -> str:
        """Return all that leaves the site for one run, but for the nonce and keys it draws."""
        self.calls += 1
        places = {f"{name}Directory": str(self.work / str(self.calls) / name)
                  for name in ("output", "cache", "transfer")}  # fmt: skip
        state = {"baseDirectory": str(self.site), "clientId": "local1", "iteration": 1,
                 "owner": self.owner, **places}  # fmt: skip
        asked = {key: value for key, value in {**MATRIX, **settings}.items() if value is not None}
        document = {"input": asked, "cache": {}, "state": state}
        try:
            answer = run("local", document, SitePlaces(policy=self.policy, home=self.work / "home"))
        except CapeError as err:
            return err.public
        sent = [path.name for path in Path(places["transferDirectory"]).glob("*")]
        card = answer["output"]
        # The owner's own settings and their digest: a search would take its question for an answer.
        del card["config"], card["body"]["settings"]
        # 128 random bits of the site's own, as long in every run.
        nonce = card["body"].pop("nonce")
        assert len(nonce) == 32
        # Of its random part of the graph, drawn as the nonce is; only where sites may drop out.
        commitment = card["body"].pop("commitment", "")
        assert len(commitment) == (64 if asked.get("aggregation") == "secagg" else 0)
        return wire.dumps([card, sent]).decode()

    @property
    def charges(self) -> int:
        ledgers = (self.work / "all-runs.jsonl", self.work / "home" / "ledger.jsonl")
        return sum(path.read_text().count('"charge"') for path in ledgers if path.exists())


@pytest.fixture
def worlds(tmp_path) -> list[Path]:
    lengths = [61, 64, 67, 71, 77, 83, 90, 99]
    calm = write_people(tmp_path / "calm" / "local1", [series(m, 120) for m in range(PEOPLE)])
    short = [series(m, n, rank=D if m % 2 else 4) for m, n in enumerate(lengths)]
    mixed = write_people(tmp_path / "mixed" / "local1", short, ["2", "0.8", "", "3"] * 2)
    broken = write_people(tmp_path / "broken" / "local1", [series(m, 80) for m in range(PEOPLE)])
    spoiled(broken)
    return [calm, mixed, broken]


def test_a_binary_search_for_the_shortest_series_reads_nothing(worlds, tmp_path) -> None:
    """24 calls once read the five shortest series of a site, with a ledger and 0 charges."""
    seen = []
    for world in worlds:
        owner = Owner(tmp_path / f"asks {world.parent.name}", world)
        first = owner.ask(min_timepoints=5)
        found = []
        while owner.calls < 24:
            low, high = 5, 130
            while high - low > 1 and owner.calls < 24:
                middle = (low + high) // 2
                if owner.ask(min_timepoints=middle) == first:
                    low = middle
                else:
                    high = middle
            found.append(low)
        assert owner.charges == 0
        seen.append((first, found))
    # Nobody is missing from any answer, so every search runs to its upper end.
    assert json.loads(seen[0][0])[0]["body"]["n_subjects"] == PEOPLE
    assert all(each == seen[0] for each in seen)
    assert seen[0][1][:3] == [129] * 3


# Every setting that reaches a check of content, with values on both sides of every threshold.
CHECKS: dict[str, list[dict[str, object]]] = {
    "min_timepoints": [{"min_timepoints": n} for n in (5, 65, 80, 100, 121, 10**6)],
    "n_components": [{"n_components": n, "min_timepoints": 60} for n in (2, 4, 5, 12)],
    "max_timepoints": [{"max_timepoints": n} for n in (40, 66, 70)],
    "tr": [{"tr": tr, "tr_tolerance": 0.01} for tr in (0.0, 0.8, 2.0, 3.0, 20.0)],
    "tr_tolerance": [{"tr": 2.0, "tr_tolerance": t} for t in (0.0, 1.0, 1.2, 100.0)],
    "high_pass": [{"high_pass": f} for f in (0.01, 0.2, 5.0)],
    "low_pass": [{"low_pass": f} for f in (0.01, 0.1)],
    "drop_first_volumes": [{"drop_first_volumes": n} for n in (0, 31, 66, 1000)],
    "detrend": [{"detrend": how} for how in ("none", "linear", "quadratic")],
    "standardize": [{"standardize": how} for how in ("variance", "floored", "demean")],
    "confounds": [{"confounds": "motion6"}, {"confounds": "csf,age"}],
    "confound_strategy": [{"confound_strategy": how} for how in ("motion", "motion,scrub")],
    "fd_threshold": [{"fd_threshold": mm} for mm in (0.2, 5.0)],
    "dvars_threshold": [{"dvars_threshold": limit} for limit in (1.0, 9.0)],
    "max_mean_fd": [{"max_mean_fd": mm} for mm in (0.1, 5.0)],
    "min_minutes": [{"min_minutes": least, "tr": 2.0} for least in (0.5, 2.5, 60.0)],
    "variable": [{"variable": "age"}],
    "orientation": [{"orientation": "time_by_feature"}],
    "columns": [{"columns": ",".join("abcdefghijkl"[:n])} for n in (3, 12)],
    "n_features": [{"n_features": n} for n in (2, 11, 12, 80, 120)],
    "image_shape": [{"image_shape": "3,4", "n_features": None}, {"image_shape": "10,8"}],
    "basis": [{"basis": "dct", "image_shape": "3,4", "n_basis": 9}, {"basis": "kernel"}],
    "max_features": [{"max_features": n} for n in (2, 11, 12)],
    "noise": [{"noise": "local"}],
    "aggregation": [{"aggregation": "secagg", "min_survivors": 3}],
    "capegica": [{**helper.settings_of("capegica"), "computation": "capegica"}],
    "capemean": [{**helper.settings_of("capemean"), "computation": "capemean",
                  "min_timepoints": n} for n in (3, 70)],
    "capepca": [{**helper.settings_of("capepca"), "computation": "capepca", "min_timepoints": n,
                 "n_directions": k} for n, k in ((1, 2), (70, 12))],
}  # fmt: skip
# Settings that decide which images are refused: whose header or name states which space.
OF_IMAGES: dict[str, list[dict[str, object]]] = {
    "space": [{"space": space} for space in ("", "MNI152", "MNI152NLin6Asym", "Talairach")],
    "resample": [
        {"resample": how, "space": space}
        for how in ("never", "within_space", "to_mask") for space in ("", "Talairach")
    ],
}  # fmt: skip
# Settings that no check of content reads: budget, parties, carriers, mathematics, the mask's file.
UNREAD = {
    "epsilon", "delta", "assumed_colluders", "min_survivors", "key_trust",
    "min_sites", "accept_low_quality", "feature_space", "mask", "mask_hash", "atlas", "n_basis",
    "bids_filter", "bids_exclude", "smoothing_fwhm", "global_signal",
}  # fmt: skip


def of_capedjica(asked: dict[str, object]) -> dict[str, object]:
    """Settings of another computation replace those of the joint ICA, which it does not know."""
    if "computation" not in asked:
        return asked
    own = {"n_components", "n_rounds", "n_looks", "standardize"}
    return {**dict.fromkeys(own, None), **asked, "epsilon": 1.0}


@pytest.mark.parametrize("name", CHECKS)
def test_no_setting_asks_a_site_about_the_content_of_anybody(name, worlds, tmp_path) -> None:
    cards = 0
    for asked in CHECKS[name]:
        answers = {
            Owner(tmp_path / f"{world.parent.name} {asked}", world).ask(**of_capedjica(asked))
            for world in worlds
        }
        assert len(answers) == 1, (asked, answers)
        cards += answers.pop().startswith("[{")
    assert cards  # a site that always refuses would be silent, too


def write_images(folder: Path, codes: list[int], offset: float = 0.0) -> Path:
    """Images whose headers state a space each: 3 Talairach, 4 MNI152, 1 none."""
    folder.mkdir(parents=True)
    mask: Any = nib.load(MASKS / "MNI152-10mm.nii.gz")
    affine = mask.affine.copy()
    affine[:3, 3] += offset  # mm: on another grid
    for m, code in enumerate(codes):
        values = np.random.default_rng(m).standard_normal((*mask.shape, 24)).astype(np.float32)
        image = nib.Nifti1Image(values, affine)
        image.set_sform(affine, code=code)
        image.set_qform(affine, code=code)
        image.header.set_zooms((10.0, 10.0, 10.0, 2.0))
        image.header.set_xyzt_units("mm", "sec")
        nib.save(image, folder / f"sub-{m:02d}.nii")
    return folder


ASKED_OF_IMAGES = {
    "feature_space": "mask", "mask": "MNI152-10mm", "n_features": None, "min_timepoints": 20,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_IMAGES)
def test_no_setting_asks_a_site_whose_images_are_of_which_space(name, tmp_path) -> None:
    worlds = [
        write_images(tmp_path / "one" / "local1", [4] * 5),
        write_images(tmp_path / "mixed" / "local1", [4, 3, 1, 4, 3]),
        write_images(tmp_path / "moved" / "local1", [1, 4, 4, 3, 4], offset=3.0),
    ]
    for asked in OF_IMAGES[name]:
        answers = {
            Owner(tmp_path / f"{world.parent.name} {asked}", world).ask(**ASKED_OF_IMAGES, **asked)
            for world in worlds
        }
        assert len(answers) == 1, (asked, answers)
        assert json.loads(answers.pop())[0]["body"]["n_subjects"] == 5


def test_an_image_of_another_space_than_is_asked_is_the_zero_vector(tmp_path) -> None:
    site = write_images(tmp_path / "local1", [4, 3, 1, 4, 3])
    passed = {}
    for space in ("MNI152", "Talairach"):
        asked = {**MATRIX, **ASKED_OF_IMAGES, "n_features": 0, "space": space}
        config = load("capedjica").config(**{k: v for k, v in asked.items() if v is not None})
        _, reduced = load_site(site, {}, config, site="local1")
        passed[space] = [Y.shape[1] > 0 for _, Y in reduced]
    # Whose header states nothing is on the mask's grid, and taken at its word.
    assert passed["MNI152"] == [True, False, True, True, False]
    assert passed["Talairach"] == [False, True, True, False, True]


def test_every_setting_of_the_data_is_played_or_reaches_no_check() -> None:
    config = load("capedjica").config
    common = {
        spec.name for spec in config.__dataclass_fields__.values()
        if spec.metadata.get("group") == "Data"
    }  # fmt: skip
    played = set(CHECKS) | set(OF_IMAGES)
    assert common <= played | UNREAD, common - played - UNREAD


def write_tables(folder: Path, arrays: list[np.ndarray], headers: list[str]) -> Path:
    """One CSV a person, time by feature; a header of letters, such as "abc"."""
    folder.mkdir(parents=True)
    for m, (X, names) in enumerate(zip(arrays, headers, strict=True)):
        lines = [",".join(names), *(",".join(map(repr, row)) for row in X.T.tolist())]
        (folder / f"sub-{m:02d}.csv").write_text("\n".join(lines) + "\n")
    return folder


ALPHABET = "abcdefghijklmnop"
# Votes that one person decided: who has how many features and time points, and which header.
LAYOUTS: dict[str, list[list[tuple[int, int, str]]]] = {
    "headers": [
        [(12, 80, name) for name in headers]
        for headers in ("aaabb", "aabbb", "bbbbb", "aaaaa")
    ],
    "features": [
        [(n, 80, "a") for n in sizes]
        for sizes in ((12, 12, 13, 13, 13), (12, 12, 12, 13, 13), (13,) * 5, (11,) * 5)
    ],
    "lengths": [
        [(12, 50, "a")] * 2 + [(13, 50, "a"), (13, n, "a"), (12, n, "a")] for n in (50, 51)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_file_of_one_person_says_what_the_features_are(name, tmp_path) -> None:
    """Votes once said it: one person moved D, the digest of names, and who else counts."""
    asked = {"orientation": "time_by_feature", "min_timepoints": 5}
    columns = {"n_features": None, "columns": ",".join(ALPHABET[:12])}
    every = ({"n_features": 12}, {"n_features": None}, {"max_features": 12}, columns)
    for k, said in enumerate(every):
        answers, counts = set(), []
        for w, people in enumerate(LAYOUTS[name]):
            arrays = [np.random.default_rng(m).standard_normal((n, T))
                      for m, (n, T, _) in enumerate(people)]  # fmt: skip
            headers = [ALPHABET[: n - 1] + ("p" if h == "b" else ALPHABET[n - 1])
                       for n, _, h in people]  # fmt: skip
            site = write_tables(tmp_path / f"{k} {w}" / "local1", arrays, headers)
            answers.add(Owner(tmp_path / f"owner {k} {w}", site).ask(**{**asked, **said}))
            if "E013" in min(answers):
                continue
            given = {n: v for n, v in {**MATRIX, **asked, **said}.items() if v is not None}
            config = load("capedjica").config(**given)
            _, reduced = load_site(site, {}, config, site="local1", stop_if_most_fail=False)
            counts.append([Y.shape[1] > 0 for _, Y in reduced])
            # Who counts follows from each person's own file alone.
            right = [n == 12 and (h == "a" or "columns" not in said) for n, _, h in people]
            assert counts[-1] == right
        assert len(answers) == 1, answers
        answer = answers.pop()
        if said == {"n_features": None}:
            assert answer.startswith("CAPE-E013 setting 'n_features' is required; so that no")
        else:
            assert json.loads(answer)[0]["body"]["n_subjects"] == 5


def test_headers_that_differ_are_told_to_the_site_alone(tmp_path) -> None:
    X = [series(m, 40)[:3] for m in range(4)]
    site = write_tables(tmp_path / "local1", X, ["abc", "abc", "abc", "abx"])
    asked = {**MATRIX, "n_features": 3, "orientation": "time_by_feature"}
    data, _ = load_site(site, {}, load("capedjica").config(**asked), site="local1")
    (told,) = (f for f in data.findings if f.code == "CAPE-W144")
    assert "sub-03.csv: column 3 is 'x'. Expected 'c' as in sub-00.csv." in told.private
    assert (told.public, data.failed) == ("", ())
    data, _ = load_site(
        site, {}, load("capedjica").config(**{**asked, "columns": "a,b,c"}), site="local1"
    )
    assert data.failed == ("sub-03",)


def test_a_table_of_records_whose_header_is_not_the_owners_is_refused_by_its_header(tmp_path):
    site = tmp_path / "local1"
    site.mkdir()
    (site / "records.csv").write_text("who,a,b\n" + "".join(f"s{m},{m},1\n" for m in range(5)))
    owner = Owner(tmp_path / "owner", site)
    asked = {**helper.settings_of("capepca"), "computation": "capepca", "n_features": None}
    assert owner.ask(**of_capedjica({**asked, "columns": "a,c"})).startswith("CAPE-E144 ")
    assert owner.ask(**of_capedjica({**asked, "columns": "a, b"})).startswith("[{")


def test_a_row_of_a_table_of_records_is_asked_nothing(tmp_path) -> None:
    answers = set()
    ends = ("1\u2028s6", "1\u0085s6", "1\x0cs6", "1\x1es6", "9" * 2_000_000, '"1', "\0")
    cells = ["1.5", "", "NA", "many", "1e99", "2,3", *ends]
    for k, cell in enumerate([*(cell.encode() for cell in cells), b"1\xff", b"\xff\xfe", b"\xe2"]):
        site = tmp_path / f"site {k}"
        site.mkdir()
        rows = [f"s{m},{m}.25,{-m}".encode() for m in range(5)]
        table = b"\n".join([b"who,a,b", *rows, b"s5," + cell + b",1", b"s7,1,2"]) + b"\n"
        (site / "records.csv").write_bytes(table)
        owner = Owner(tmp_path / f"owner {k}", site)
        answers.add(owner.ask(**of_capedjica({**helper.settings_of("capecca"), "computation":
                                              "capecca", "n_pairs": 1, "n_features": None,
                                              })))  # fmt: skip
    assert len(answers) == 1
    assert '"n_subjects":7' in answers.pop()


def test_a_row_that_cannot_be_decoded_is_the_zero_vector_of_its_own_person(tmp_path) -> None:
    (tmp_path / "records.csv").write_bytes(b"who,a,b\r\ns0,1,2\rs1,3\xff,4\ns2,5\xe2\x80\xa8,6\n")
    config = Config(epsilon=1.0, delta=1e-5, feature_space="matrix")
    data, reduced = load_site(tmp_path, {}, config, site="local1", stop_if_most_fail=False)
    assert data.listed == ("s0", "s1", "s2")
    problems = [f.private for f in data.findings if "UTF-8" in f.private]
    assert [text[:9] for text in problems] == ["CAPE-W138"]
    assert "line 3 's1,3\\xff,4'" in problems[0]
    assert {label: Y.shape[1] for label, Y in reduced}["s1"] == 0


def test_the_name_of_a_person_whose_row_cannot_be_read_is_never_its_values(tmp_path) -> None:
    rows = ('"s0,0.123,4', "s1;0.123;4", '"s2,0.123,"4,5', '"Doe, Jane",1,2', "s4,0.123",
            "s5,0.123," + "9" * 2_000_000, '"s6",0.123,4,5')  # fmt: skip
    (tmp_path / "records.csv").write_text("\n".join(["who,a,b", *rows]) + "\n")
    table = tables.read_records(tmp_path / "records.csv")
    assert table.labels == ("s0", "line 3 of records.csv", "s2", "Doe, Jane", "s4", "s5", "s6")
    # A quote that never ends takes no cell of its row.
    assert set(table.problems) == {1, 2, 4, 5, 6}


ASKED_OF_FOLDERS = {"feature_space": "mask", "mask": "MNI152-10mm", "n_features": None}


def write_names(site: Path, runs: dict[str, list[str]]) -> Path:
    """A BIDS folder of names alone."""
    for person, names in runs.items():
        func = site / f"sub-{person}" / "func"
        func.mkdir(parents=True)
        for name in names:
            (func / f"sub-{person}_{name}_bold.nii.gz").write_bytes(b"none")
    return site


def test_a_filter_of_bids_names_does_not_ask_who_has_which_run(tmp_path) -> None:
    """Neither how many, nor whether anybody, nor in how many versions."""
    rest, pain = "task-rest_desc-preproc", "task-pain_desc-preproc"
    coarse = [f"task-rest_space-{space}_desc-preproc" for space in ("MNI152Lin", "fsnative")]
    worlds = [
        write_names(tmp_path / "all" / "local1", {f"{m}": [rest, pain] for m in range(5)}),
        write_names(
            tmp_path / "some" / "local1", {f"{m}": [rest, pain][: 1 + m % 2] for m in range(5)}
        ),
        write_names(tmp_path / "none" / "local1", {f"{m}": [rest] for m in range(5)}),
        write_names(tmp_path / "twice" / "local1", {f"{m}": coarse for m in range(5)}),
    ]
    for asked in ({"bids_filter": "task-rest"}, {"bids_filter": "task-pain"},
                  {"bids_filter": "ses-2_task-pain"}, {"bids_filter": "auto"},
                  {"bids_filter": "task-rest", "bids_exclude": "task-rest"}):  # fmt: skip
        answers = {
            Owner(tmp_path / f"{world.parent.name} {asked}", world)
            .ask(**ASKED_OF_FOLDERS, **asked) for world in worlds
        }  # fmt: skip
        assert len(answers) == 1, (asked, answers)
        assert json.loads(answers.pop())[0]["body"]["n_subjects"] == 5


def test_no_setting_names_a_person(tmp_path) -> None:
    """Whether a site has sub-100307 is not the owner's to ask."""
    site = write_names(tmp_path / "local1", {f"{m}": ["task-rest"] for m in range(5)})
    owner = Owner(tmp_path / "owner", site)
    for name in ("bids_filter", "bids_exclude"):
        told = {owner.ask(**ASKED_OF_FOLDERS, **{name: f"sub-{who}_task-rest"}) for who in (3, 7)}
        assert {text.replace("sub-7", "sub-3") for text in told} == {
            owner.ask(**ASKED_OF_FOLDERS, **{name: "sub-3_task-rest"})
        }
        assert all(text.startswith("CAPE-E011") for text in told)


def test_a_file_that_breaks_the_program_tells_nobody(worlds, tmp_path, monkeypatch) -> None:
    before = Owner(tmp_path / "before", worlds[0]).ask()
    real = reading.read_matrix

    def breaks(run: Any, *given: Any) -> Any:
        if run.name.startswith("sub-03"):
            raise MemoryError("a bomb")
        return real(run, *given)

    monkeypatch.setattr(reading, "read_matrix", breaks)
    assert Owner(tmp_path / "after", worlds[0]).ask() == before


def write_series(folder: Path, *, seed: int, columns: Any = None) -> Path:
    """Series of parcels of five people, beside the owner's structure and spheres."""
    surfaces.write_owner_files(folder, surfaces.parcels(2), 2)
    for m in range(5):
        values = 100 + np.random.default_rng((seed, m)).standard_normal((24, 40))
        surfaces.write_cifti(folder / f"sub-{m}_bold.ptseries.nii", values, surfaces.parcels(2))
    return folder


ASKED_OF_PARCELS = {"feature_space": "parcels", "n_features": 24, "min_timepoints": 20}


def test_no_file_of_a_study_of_parcels_is_asked_what_it_holds(tmp_path) -> None:
    calm = write_series(tmp_path / "calm" / "local1", seed=1)
    broken = write_series(tmp_path / "broken" / "local1", seed=2)
    names = sorted(broken.glob("sub-*"))
    names[0].write_bytes(b"")
    names[1].write_bytes(names[1].read_bytes()[:700])
    surfaces.write_cifti(names[2], np.full((20, 40), np.nan), surfaces.parcels(2, 10))
    names[3].write_bytes(names[3].read_bytes().replace(b"L_00", b"X_00"))
    surfaces.write_cifti(names[4], series(4, 30), surfaces.parcels(2, 6), unit="HERTZ")
    for asked in ({}, {"tr": 2.0}, {"min_minutes": 1.2}, {"n_features": 23}, {"n_features": 20}):
        answers = {
            Owner(tmp_path / f"{world.parent.name} {asked}", world)
            .ask(**{**ASKED_OF_PARCELS, **asked}) for world in (calm, broken)
        }  # fmt: skip
        assert len(answers) == 1, (asked, answers)


def test_a_sphere_that_names_a_persons_file_as_its_points_is_not_read(tmp_path) -> None:
    """Its digest would leave in `join`: bytes of anybody, at any place, for nothing."""
    # One vertex will do, which lies on a sphere whatever it says.
    told = set()
    for seed in (1, 2):
        site = write_series(tmp_path / str(seed) / "local1", seed=seed)
        person = site / "sub-3_bold.ptseries.nii"
        place = person.stat().st_size - 162 * 3 * 4
        surfaces.write_owner_files(site, one_vertex(), 2)
        sphere = site / "sphere.L.surf.gii"
        for name in (person.name, person):
            text = sphere.read_text()
            for attribute, value in (("Encoding", "ExternalFileBinary"),
                                     ("ExternalFileName", name),
                                     ("ExternalFileOffset", place)):  # fmt: skip
                text = re.sub(f'{attribute}="[^"]*"', f'{attribute}="{value}"', text, count=1)
            sphere.write_text(text)
            owner = Owner(tmp_path / f"owner {seed} {len(str(name))}", site)
            told.add(owner.ask(**{**ASKED_OF_PARCELS, "n_features": 1}))
    assert len(told) == 1


def one_vertex() -> Any:
    """A structure of one parcel of one vertex of the left hemisphere."""
    columns = surfaces.parcels(2)[:1]
    columns.vertices[0] = {surfaces.SIDES[0]: columns.vertices[0][surfaces.SIDES[0]][:1]}
    return columns


def test_an_atlas_cannot_be_the_image_of_a_person(worlds, tmp_path) -> None:
    told = Owner(tmp_path / "owner", worlds[0]).ask(
        feature_space="atlas", atlas="sub-03.npy", n_features=None
    )
    assert told.startswith("CAPE-E011 atlas=sub-03.npy: allowed a name that begins with atlas;")


# -- one person, one contribution ------------------------------------------------------------------


def test_who_is_a_copy_is_asked_last_so_one_person_moves_one_contribution(tmp_path) -> None:
    """A copy under an odd header once left the site, and its original with it."""
    # The sum of Y'Y of unit norm moves by sqrt 2 at most if one person is replaced, and moved by 2.
    X = [series(m, 40)[:3] for m in range(4)]
    normal, odd = ["abc"] * 4, ["abx", *["abc"] * 3]
    pairs = {"copy": ([X[1], *X[1:]], odd), "other": ([-2.0 * X[1], *X[1:]], normal)}
    config = Config(epsilon=1.0, delta=1e-5, feature_space="matrix", min_timepoints=5,
                    columns="a,b,c", orientation="time_by_feature",
                    standardize="demean")  # fmt: skip
    sums = {}
    for name, (arrays, headers) in pairs.items():
        site = write_tables(tmp_path / name, arrays, headers)
        data, reduced = load_site(site, {}, config, site="local1")
        moments = [Y @ Y.T for _, Y in reduced]
        sums[name] = sum(A / max(1e-9, np.linalg.norm(A)) for A in moments)
        assert data.failed == (("sub-00",) if name == "copy" else ())
    assert np.linalg.norm(sums["copy"] - sums["other"]) <= np.sqrt(2) + 1e-6


# -- who stops nevertheless ------------------------------------------------------------------------


def test_a_list_with_a_wrong_name_locks_nobody_out(worlds, tmp_path) -> None:
    """What names alone decide is no question about data: an honest owner may mistype them."""
    owner = Owner(tmp_path / "owner", worlds[0])
    manifest = worlds[0] / "manifest.csv"
    right = manifest.read_text()
    for _ in range(4):
        manifest.write_text(right.replace("sub-03.npy", "sub-3.npy"))
        assert owner.ask().startswith("CAPE-E101 ")
    manifest.write_text(right)
    assert owner.ask().startswith("[{")


MISTYPED: dict[str, tuple[str, dict[str, str], str]] = {
    "a column": ("capecontrast", {"variables": "dxx a/b, age 18:90", "formula": "dxx + age",
                                  "public": "", "test": "each"}, "CAPE-E139 "),
    "an outcome": ("capecontrast", {"outcomes": "volum -2:2, score -2:2"}, "CAPE-E139 "),
    "a level": ("capecontrast", {"variables": "dx control/pateint, age 18:90"}, "[{"),
    "maps": ("capedualreg", {}, "CAPE-E280 "),
}  # fmt: skip


@pytest.mark.parametrize("wrong", MISTYPED)
def test_a_question_that_fails_before_anybody_is_read_locks_nobody_out(tmp_path, wrong) -> None:
    """Three mistakes of typing shut an owner out; in COINSTAC, which names no owner, everybody."""
    name, chosen, said = MISTYPED[wrong]
    (site, *_) = sorted(helper.write_data(tmp_path / "data", computation=name).iterdir())
    maps = (site / "templates.npy").rename(tmp_path / "templates.npy")
    owner = Owner(tmp_path / "owner", site, LEDGER + 'public_counts = ["dx"]\nmin_group = 1\n')
    right = {**dict.fromkeys(MATRIX), **helper.settings_of(name, epsilon=1.0, n_sites=3)}
    right["computation"] = name
    for _ in range(4):
        assert owner.ask(**{**right, **chosen}).startswith(said)
    maps.rename(site / "templates.npy")
    assert owner.ask(**right).startswith("[{")


@pytest.mark.parametrize("end", ["too large", "out of memory"])
def test_a_table_of_records_that_ends_a_run_is_a_question_that_counts(tmp_path, monkeypatch, end):
    """One person's row may be what makes the table too much; a list of names is none."""
    (tmp_path / "site").mkdir()
    rows = [f"s{m},{m}.25,{-m}" for m in range(7)]
    (tmp_path / "site" / "records.csv").write_text("\n".join(["who,a,b", *rows]) + "\n")

    def breaks(*given: Any, **named: Any) -> Any:
        raise MemoryError

    if end == "too large":
        monkeypatch.setattr(tables, "MAX_LIST_BYTES", 50)
    else:
        monkeypatch.setattr(tables, "table_lines", breaks)
    owner = Owner(tmp_path / "owner", tmp_path / "site", LEDGER + "max_refusals = 2\n")
    settings = {**helper.settings_of("capecca"), "computation": "capecca", "n_pairs": 1}
    asked = of_capedjica({**settings, "n_features": None})

    def ask() -> str:
        try:
            return owner.ask(**asked)
        except MemoryError:
            return "stopped"

    told = [ask() for _ in range(3)]
    assert not told[0].startswith(("[{", "CAPE-E239"))
    assert told[1] == told[0]
    assert told[2].startswith("CAPE-E239 ")


def test_a_site_that_lets_content_stop_a_run_tells_one_sentence_and_not_often(worlds, tmp_path):
    policy = LEDGER + "stop_for_data = true\nmax_refusals = 2\n"
    owner = Owner(tmp_path / "owner", worlds[1], policy)
    told = [owner.ask(min_timepoints=n) for n in (70, 75, 5, 90)]
    assert told[0] == told[1]
    assert told[0].startswith("CAPE-E100 The data of site local1 did not pass its own checks;")
    # The third answer would be a card: nobody asks a site any more after two refusals.
    assert told[2] == told[3]
    assert told[2].startswith("CAPE-E239 ")
    other = Owner(tmp_path / "owner", worlds[1], policy, owner="bob")
    other.calls = 100
    assert other.ask(min_timepoints=5).startswith("[{")
    assert other.ask(min_timepoints=70).startswith("CAPE-E100 ")


def test_a_site_most_of_whose_people_fail_tells_one_sentence_and_not_often(worlds, tmp_path):
    """By the shipped policy; one person more or less who fails tells nothing."""
    owner = Owner(tmp_path / "owner", worlds[0], "max_refusals = 2\n" + SHIPPED)
    told = [owner.ask(min_timepoints=n) for n in (121, 10**6, 5)]
    assert told[0] == told[1]
    assert told[0].startswith("CAPE-E100 The data of site local1 did not pass its own checks;")
    assert told[2].startswith("CAPE-E239 ")
    assert owner.charges == 0
    asked = []
    for short in (1, 2):
        lengths = [120] * (PEOPLE - short) + [60] * short
        people = [series(m, n) for m, n in enumerate(lengths)]
        site = write_people(tmp_path / f"{short}" / "local1", people)
        asked.append(Owner(tmp_path / f"of {short}", site, SHIPPED).ask(min_timepoints=100))
    assert asked[0] == asked[1]
    assert asked[0].startswith("[{")


def walk(ask: Callable[[float], str], start: float, steps: tuple[float, ...]) -> list[str]:
    """Go on from `start` until somebody stops it, then in finer steps: the answers."""
    told, limit = [ask(start)], start
    for step in steps:
        while len(told) < 60:
            told.append(ask(limit + step))
            if not told[-1].startswith("[{"):
                break
            limit += step
    return told


def bits(told: list[str]) -> int:
    """How many answers say something of the data."""
    return sum(not text.startswith("CAPE-E239") for text in told)


MEDIAN = [61, 64, 70, 137, 150, 163, 180]  # volumes


@pytest.mark.parametrize("owner", ["ann", ""])
def test_a_walk_to_the_median_person_ends_after_three_answers_under_the_shipped_policy(
    owner, tmp_path
) -> None:
    """12 runs that ended after `join` once read exactly 137 volumes: 0 charges, 2 refusals."""
    people = [series(m, n) for m, n in enumerate(MEDIAN)]
    site = write_people(tmp_path / "local1", people)
    asks = Owner(tmp_path / "owner", site, "", owner=owner)  # no line: as it is shipped
    told = walk(lambda n: asks.ask(min_timepoints=int(n)), 100, (20, 1))
    assert bits(told) == SitePolicy().max_refusals == 3
    assert told[-1].startswith("CAPE-E239 ")
    # By other settings, another computation, or again in the same words: not one bit more.
    for other in (
        {"n_components": 2}, {"tr": 2.0, "tr_tolerance": 0.0}, {"drop_first_volumes": 30},
        {**helper.settings_of("capemean"), "computation": "capemean", "min_timepoints": 137},
    ):  # fmt: skip
        assert asks.ask(**of_capedjica(other)).startswith("CAPE-E239 ")
    assert asks.charges == 0


def test_a_walk_of_a_columns_range_ends_after_three_answers_under_the_shipped_policy(tmp_path):
    """31 runs that ended after `join` once put the median IQ of a site into 94.65 to 94.8."""
    rng = np.random.default_rng(3)
    site = tmp_path / "local1"
    site.mkdir()
    rows = [
        f"sub-{m:02d}\t{('control', 'SZ')[m % 2]}\t{iq:.1f}"
        for m, iq in enumerate(rng.normal(100, 15, 15))
    ]
    (site / "participants.tsv").write_text("\n".join(["participant_id\tdx\tiq", *rows]) + "\n")
    asks = Owner(tmp_path / "owner", site, "")
    settings = {"computation": "capecontrast", "variables": "dx control/SZ", "formula": "dx",
                "ask": "dx", "epsilon": 1.0, "delta": 1e-5, "n_sites": 4}  # fmt: skip
    nothing = dict.fromkeys(MATRIX)

    def ask(fall: float) -> str:
        return asks.ask(**nothing | settings | {"outcomes": f"iq 0:{200 - fall:g}"})

    told = walk(ask, 0, (50, 10, 1))
    assert bits(told) == 3
    assert told[-1].startswith("CAPE-E239 ")
    assert asks.charges == 0


@pytest.mark.parametrize(
    "line", ["max_total = [[0.5, 1e-5]]", "min_subjects = 9\nshare_policy_numbers = true"]
)
def test_a_refusal_after_the_check_says_that_most_pass_and_counts(line, worlds, tmp_path) -> None:
    """Too few people, or a total that is spent, come after the check: else passes were free."""
    owner = Owner(tmp_path / "owner", worlds[0], f"{line}\n")
    told = [owner.ask(min_timepoints=n) for n in (100, 101, 102, 103, 121)]
    assert [text[:9] for text in told] == [told[0][:9]] * 3 + ["CAPE-E239"] * 2
    assert told[0].startswith(("CAPE-E260", "CAPE-E154"))


def test_a_wait_behind_own_runs_says_that_most_pass_and_counts(worlds, tmp_path) -> None:
    """A wait for own open runs alone counts for nothing itself; whoever fails gets E100 instead."""
    owner = Owner(tmp_path / "owner", worlds[0], "")
    assert owner.ask(min_timepoints=100, epsilon=8.0).startswith("[{")
    path = owner.work / "home" / "ledger.jsonl"
    (begun,) = read_ledger(path).runs
    held = Cost.of_mu(gdp_mu(epsilon=8.0, delta=1e-5))
    assert LifetimeLedgerFile(path=path, site="local1").hold(begun.run, held).word == "in"
    told = [owner.ask(min_timepoints=n, epsilon=8.0)[:9] for n in (101, 102, 103, 104)]
    assert told == ["CAPE-E236"] * 2 + ["CAPE-E239"] * 2


def test_a_consortium_that_sets_up_may_try_the_same_settings_as_often_as_it_likes(worlds, tmp_path):
    """Another site failed, its budget was refused, a site was added: nothing is asked anew."""
    asks = Owner(tmp_path / "owner", worlds[0], "")
    for n_sites in (3, 4, 5, 6, 7):
        for epsilon in (1.0, 2.0):
            assert asks.ask(n_sites=n_sites, epsilon=epsilon, min_timepoints=50).startswith("[{")
    assert asks.charges == 0


def test_a_question_counts_no_more_once_a_run_has_paid_for_it(tmp_path) -> None:
    """It counts from the answer to `join` on until the first charge, across processes."""
    engine = OfOwner.run(tmp_path, "one").until("mean")
    other = OfOwner.run(tmp_path, "two")
    other.input["min_timepoints"] = 11
    with pytest.raises(PrivacyBudgetError, match="E239 Site local0 begins no run"):
        other.ask("local0")
    engine.ask("local0")
    other.ask("local0")


@pytest.mark.parametrize("name", ["capedjica", "capecontrast", "capegica"])
def test_no_check_of_data_reads_a_setting_that_is_no_part_of_the_question(
    name, tmp_path, monkeypatch
) -> None:
    """Else an owner could ask something else in the words of the same question."""
    config_type = load(name).config
    if name == "capecontrast":
        base = tmp_path / "local1"
        base.mkdir()
        rows = [f"sub-{m:02d}\t{('control', 'SZ')[m % 2]}\t{90 + m}" for m in range(15)]
        text = "\n".join(["participant_id\tdx\tiq", *rows])
        (base / "participants.tsv").write_text(text + "\n")
        given = {"epsilon": 1.0, "delta": 1e-5, "n_sites": 4, "variables": "dx control/SZ",
                 "formula": "dx", "ask": "dx", "outcomes": "iq 0:200"}  # fmt: skip
    else:
        base = write_people(tmp_path / "local1", [series(m, 120) for m in range(PEOPLE)])
        given = {**helper.settings_of(name), "n_features": D, "epsilon": 1.0, "n_sites": 3}
        given.pop("computation", None)
    config = config_type.from_input(given)
    digest = config.checks_digest(name)
    read: set[str] = set()
    real = object.__getattribute__

    def watched(self: Any, asked: str) -> Any:
        # Caches compare all settings, and no check does.
        if sys._getframe(1).f_code.co_name not in ("hashed", "equal"):
            read.add(asked)
        return real(self, asked)

    with monkeypatch.context() as patch:
        patch.setattr(config_type, "__getattribute__", watched, raising=False)
        load_site(base, {}, config, site="local1")
    assert len(read) > 5
    assert read & UNCHECKED == set()
    assert replace(config, epsilon=2.0).checks_digest(name) == digest
    assert replace(config, min_timepoints=7).checks_digest(name) != digest


def spend(owner: Owner, epsilon: float) -> None:
    """Charge the one run that was begun there, as its releases would."""
    file = LifetimeLedgerFile(path=owner.work / "all-runs.jsonl", site="local1")
    (begun,) = read_ledger(file.path).runs
    cost = Cost.of_mu(gdp_mu(epsilon=epsilon, delta=begun.delta))
    release = {"phase": "pca", "round": 1, "field": "total", "mu2": str(cost)}
    assert file.charge(begun.run, release, cost).word == "in"


@pytest.mark.parametrize("named", [False, True])
def test_the_total_of_all_runs_tells_who_was_in_them_and_not_often(worlds, tmp_path, named) -> None:
    """Before any release, by an epsilon that the owner chose; with `dataset_id` 0 bits."""
    # Then every run under that name counts, whoever is listed today.
    policy = LEDGER + ('dataset_id = "cohort"\n' if named else "")
    others = write_people(
        tmp_path / "others" / "local1", [series(50 + m, 120) for m in range(PEOPLE)]
    )
    for path in sorted(others.glob("sub-*.npy")):
        path.rename(path.with_name(f"sub-other{path.name[4:]}"))
    (others / "manifest.csv").unlink()
    told = []
    for site in (worlds[0], others):
        work = tmp_path / f"owner {site.parent.name}"
        first = Owner(work, worlds[0], policy, owner="bob")
        assert first.ask(epsilon=0.8).startswith("[{")
        spend(first, 0.8)
        owner = Owner(work, site, policy, owner="ann")
        owner.calls = 100
        cards = [owner.ask(epsilon=epsilon).startswith("[{") for epsilon in (0.1, 0.9, 0.7, 0.6)]
        told.append((*cards, owner.ask(epsilon=0.1).startswith("[{")))
        assert read_ledger(work / "all-runs.jsonl").runs[-1].charges == ()
    # Who was in that run leaves room for .1, not for .6; three refusals, and no answer more.
    spent = (True, False, False, False, False)
    assert told == [spent, spent if named else (True,) * 5]


class Killed(BaseException):
    """As a SIGKILL: nothing that catches errors sees it."""


def full(*given: Any, **more: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "end", [Killed(), OSError(errno.ENOSPC, "full"), KeyError("ours")], ids=repr
)
def test_every_end_of_a_run_that_looked_at_data_counts_until_it_is_answered(end, worlds, tmp_path):
    """Also of a process that can write nothing any more; one run counts once."""
    owner = Owner(tmp_path / "owner", worlds[0], LEDGER + "max_refusals = 2\n")

    def ends(call: int, **asked: object) -> None:
        owner.calls = call  # the output folder of that run
        with pytest.MonkeyPatch.context() as patch:

            def load(*given: object, before_reading: Any, **more: object) -> None:
                before_reading(SimpleNamespace(listed=()))
                for name in ("write", "fsync", "replace", "mkdir"):
                    patch.setattr(os, name, full)
                raise end

            patch.setattr(pipeline, "load_site", load)
            with contextlib.suppress(Killed, KeyError):
                assert owner.ask(**asked).startswith("CAPE-E261 ")

    def asks(call: int, **asked: object) -> str:
        owner.calls = call
        return owner.ask(**asked)

    for _ in range(3):  # the same exchange, asked again
        ends(1, min_timepoints=5)
    assert asks(2).startswith("[{")
    with pytest.MonkeyPatch.context() as patch:  # nor does it count less by ending earlier
        patch.setattr(pipeline, "load_site", full)
        assert asks(1, min_timepoints=5).startswith("CAPE-E261 ")
    ends(3, min_timepoints=6)
    assert asks(4).startswith("CAPE-E239 ")
    # There is room again: what is answered after all told no more than another run does.
    assert asks(1, min_timepoints=5).startswith("[{")
    assert asks(4).startswith("[{")
    # In whatever folder: an engine may never ask the same one again.
    ends(5, min_timepoints=7)
    assert asks(6).startswith("CAPE-E239 ")
    owner.policy.write_text(LEDGER + "max_refusals = 9\n")
    for call, least in ((7, 6), (8, 7)):
        assert asks(call, min_timepoints=least).startswith("[{")
    assert list((owner.work / "all-runs.jsonl.unanswered").iterdir()) == []


def test_runs_side_by_side_are_counted_before_they_read(worlds, tmp_path, monkeypatch) -> None:
    """Each begun while the one before it reads: none of them has ended yet."""
    owner = Owner(tmp_path / "owner", worlds[0], LEDGER + "max_refusals = 2\n")
    real, told = load_site, []

    def load(*given: Any, **more: Any) -> Any:
        if owner.calls < 4:
            told.append(owner.ask())
        return real(*given, **more)

    monkeypatch.setattr(pipeline, "load_site", load)
    assert owner.ask().startswith("[{")
    # The third found two that were reading; these two have answered.
    assert [text[:9] for text in told] == ["CAPE-E239", '[{"body":']
    # The site reads why, and what to do: nobody is at fault.
    (error,) = owner.work.glob("*/output/site-error.txt")
    text = error.read_text()
    assert text.count("(under way)") == 2, text
    assert f"--file {owner.work / 'all-runs.jsonl'}" in text
    assert "all-runs" not in told[0]
    owner.calls = 4
    assert owner.ask().startswith("[{")


def test_what_depends_on_nobodys_data_is_not_counted(worlds, tmp_path, monkeypatch) -> None:
    owner = Owner(tmp_path / "owner", worlds[0], LEDGER + "max_refusals = 1\n")
    assert owner.ask(epsilon=9.0).startswith("CAPE-E260 ")
    assert owner.ask(n_sites=None).startswith("CAPE-E013 ")
    text = owner.policy.read_text()
    strict = text.replace("min_subjects = 3", "min_subjects = 9")
    # Too few names on the list, whether or not the site says which limit that is.
    for policy, code in ((strict, "E153"), (strict + "share_policy_numbers = true\n", "E260")):
        owner.policy.write_text(policy)
        assert owner.ask().startswith(f"CAPE-{code} ")
        assert list((owner.work / "all-runs.jsonl.unanswered").iterdir()) == []
    owner.policy.write_text(text)
    monkeypatch.setattr(files, "LOCK_PATIENCE", 0.0)
    with files.appending(owner.work / "all-runs.jsonl", "another process"):
        assert owner.ask().startswith("CAPE-E263 ")
    assert owner.ask().startswith("[{")


class OfOwner(helper.Engine):
    """An engine whose sites keep one ledger over all runs in its folder."""

    @classmethod
    def run(cls, folder: Path, run: str) -> OfOwner:
        data = folder / "data"
        if not data.exists():
            helper.write_data(data)
        settings = helper.settings_of("capemean", computation="capemean", n_sites=3)
        engine = cls(folder / run, data, settings)
        for site in engine.sites:
            ledger = str(folder / f"{site}.jsonl")
            engine.allow(site, SitePolicy.of_simulation(ledger_file=ledger, max_refusals=1))
        return engine


@pytest.mark.parametrize("phase", ["mean", "histogram"])
@pytest.mark.parametrize(
    "end",
    [MemoryError(), Killed(), DataError("E161", site="local0")],
    ids=["memory", "kill", "E161"],
)
def test_a_run_that_ends_at_a_release_counts_and_its_secrets_are_gone(
    phase, end, tmp_path, monkeypatch
) -> None:
    """Memory that a release needs depends on the owner's settings and on who is how long."""
    engine = OfOwner.run(tmp_path, "one").until(phase)

    def ends(*given: object) -> None:
        raise end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure_sum, "clipped_sum", ends)
        with pytest.raises(type(end)):
            engine.ask("local0")
    # Who was killed may be asked again, from the same secrets; all others have ended here.
    assert bool(list(engine.journal("local0").glob("vault-*"))) is isinstance(end, Killed)
    other = OfOwner.run(tmp_path, "two")
    with pytest.raises(PrivacyBudgetError, match="E239 Site local0 begins no run"):
        other.ask("local0")
    other.ask("local1")
    if isinstance(end, Killed):
        engine.ask("local0")
        other.ask("local0")


def test_an_answer_that_finds_no_room_counts_until_it_is_sent(tmp_path) -> None:
    """It was stored, but the files beside it are part of it, and a site's data fill its disk."""
    engine = OfOwner.run(tmp_path, "one").until("mean")
    other = OfOwner.run(tmp_path, "two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(border.documents, "offload", full)
        with pytest.raises(StoppedError, match="E261"):
            engine.ask("local0")
    with pytest.raises(PrivacyBudgetError, match="E239"):
        other.ask("local0")
    engine.ask("local0")
    other.ask("local0")


def test_the_end_of_a_finished_run_asked_again_is_not_counted(tmp_path, monkeypatch) -> None:
    """Its list of files is gone: it looks at nothing, and waits for no other run."""
    engine = OfOwner.run(tmp_path, "one")
    policy = SitePolicy.of_simulation(
        ledger_file=str(tmp_path / "ledger.jsonl"), max_refusals=1, private_results=True
    )
    engine.allow("local0", policy)
    engine.until("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(border.documents, "offload", full)
        with pytest.raises(StoppedError, match="E261"):
            engine.ask("local0")
    marks = tmp_path / "ledger.jsonl.unanswered"
    (mark,) = marks.iterdir()
    (marks / f"{mark.name[:32]}-other").touch()  # another run of this owner, under way
    real, looks = AccessRecords.record, []

    def record(self: AccessRecords, *given: Any, **more: Any) -> bool:
        looks.append(given)
        return real(self, *given, **more)

    monkeypatch.setattr(AccessRecords, "record", record)
    first = engine.ask("local0")
    assert engine.ask("local0") == first
    assert not looks
    # The end that found no room is answered.
    assert [path.name[33:] for path in marks.iterdir()] == ["other"]


# -- adaptive settings over many runs --------------------------------------------------------------


def test_who_fails_is_charged_so_thresholds_that_wander_over_runs_pay(tmp_path) -> None:
    """A run whose threshold only tells whether one person passes costs that person its budget."""
    data = helper.write_data(tmp_path / "data")
    short = data / "local0" / "sub-00.npy"
    np.save(short, np.load(short)[:, :33])
    policy = SitePolicy.of_simulation(
        ledger_file=str(tmp_path / "ledger.jsonl"), max_total=((110.0, 1e-5),)
    )
    settings = {**helper.settings_of("capemean"), "computation": "capemean"}
    simulate(data, out=tmp_path / "a", settings=settings | {"min_timepoints": 34}, policy=policy)
    # Only somebody who counted in the first run could be over the total now.
    for site in ("local0", "local1", "local2"):
        for path in (data / site).iterdir():
            if path != short:
                path.write_bytes(b"" if site != "local0" else path.read_bytes())
    alone = {"min_timepoints": 30, "min_sites": 1, "noise": "local"}
    one = tmp_path / "one" / "local0"
    one.mkdir(parents=True)
    np.save(one / short.name, np.load(short))
    with pytest.raises(CapeError, match="E154"):
        simulate(tmp_path / "one", out=tmp_path / "b", settings=settings | alone, policy=policy)
    # A simulation asks nobody else's site: it is not counted among the runs of an owner.
    assert not (tmp_path / "ledger.jsonl.unanswered").exists()


# -- the zero vector, at the door ------------------------------------------------------------------

COMPUTATIONS = {
    "temporal": {"computation": "capedjica"},
    "paperdjica": {"computation": "paperdjica"},
    "infomax": {"computation": "paperdjica", "pca": "projector", "whitening": "log-euclidean"},
    "capegica": {"computation": "capegica"},
    "capedualreg": {"computation": "capedualreg"},
    "capemean": {"computation": "capemean"},
    "capecca": {"computation": "capecca"},
    "capepca": {"computation": "capepca"},
    "dpdispca": {"computation": "dpdispca"},
}


@pytest.fixture
def sums(monkeypatch) -> Iterator[list[tuple[str, int, np.ndarray]]]:
    """Of every site's release: phase, people without a time point, and the sum before noise."""
    seen: list[tuple[str, int, np.ndarray]] = []
    real = secure_sum.clipped_sum

    def watched(stacks: Any, query: Any, event: Any) -> np.ndarray:
        parts = list(stacks)
        nobody = sum(len(part) for part in parts if part.shape[2] == 0)
        total = real(iter(parts), query, event)
        seen.append((event.phase, nobody, total / event.gamma))
        return total

    monkeypatch.setattr(secure_sum, "clipped_sum", watched)
    return seen


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_who_fails_is_the_zero_vector_of_every_release(name, tmp_path, sums) -> None:
    asked = COMPUTATIONS[name]
    settings = {**helper.settings_of(asked["computation"]), **asked, "private": False}
    data = helper.write_data(tmp_path / "data")
    victim = data / "local1" / "sub-01.npy"
    policy = SitePolicy.of_simulation(stop_if_most_fail=False)
    found = {}
    for what, change in (
        ("short", lambda: np.save(victim, np.load(victim)[:, :8])),
        ("empty", lambda: victim.write_bytes(b"")),
        ("gone", victim.unlink),
        ("all", lambda: [np.save(path, np.ones((12, 8))) for path in data.glob("local1/sub-*")]),
    ):
        change()
        sums.clear()
        simulate(data, out=tmp_path / what, settings=settings, policy=policy, seed=1)
        found[what] = list(sums)
    assert len(found["short"]) >= 3
    # Whatever is wrong with a file, every bit of every sum is the same: nobody's.
    for one, other in zip(found["short"], found["empty"], strict=True):
        assert one[:2] == other[:2]
        np.testing.assert_array_equal(one[2], other[2])
    # At local1 one of four, at every release; and the sum is that of the other three.
    assert [nobody for _, nobody, _ in found["short"]] == [0, 1, 0] * (len(found["short"]) // 3)
    np.testing.assert_allclose(found["short"][1][2], found["gone"][1][2], atol=1e-6)
    # Where nobody passes the site adds nothing to any sum, and the run goes on.
    assert [nobody for _, nobody, _ in found["all"]] == [0, 3, 0] * (len(found["all"]) // 3)
    assert not any(np.any(total) for _, nobody, total in found["all"] if nobody)
    assert any(np.any(total) for _, nobody, total in found["all"] if not nobody)


def test_a_site_of_which_nobody_passes_is_told_at_once_and_nobody_else_is(tmp_path) -> None:
    """In a file of its own, from `join` on; the same bytes leave it as if all had passed."""
    left = {}
    for broken in (False, True):
        data = helper.write_data(tmp_path / f"data {broken}")
        for path in data.glob("local1/sub-*") if broken else ():
            np.save(path, np.ones((12, 8)))
        settings = helper.settings_of("capemean", computation="capemean")
        quiet = replace(helper.POLICY, stop_if_most_fail=False)
        engine = helper.Engine(tmp_path / f"work {broken}", data, settings, policy=quiet)
        engine.exchange()
        left[broken] = wire.dumps(engine.input)
        engine.play()
        for site in engine.sites:
            notice = engine.work / site / "output" / "site-notice.txt"
            assert notice.exists() is (broken and site == "local1")
    said = tmp_path / "work True" / "local1" / "output" / "site-notice.txt"
    assert said.stat().st_mode & 0o777 == 0o600
    text = said.read_text()
    assert "NOBODY of site local1 takes part: all 4 people that it lists fail" in text
    assert "stop_for_data = true" in text
    assert "sub-00" in text  # who, and why
    assert left[True] == left[False]


@pytest.mark.parametrize("name", ["djica", "dpdjica"])
def test_the_papers_computations_do_not_see_what_is_wrong_with_a_file(name, tmp_path) -> None:
    settings = {**helper.settings_of(name), "computation": name, "private": False}
    data = helper.write_data(tmp_path / "data")
    victim = data / "local1" / "sub-01.npy"
    policy = SitePolicy.of_simulation(stop_if_most_fail=False)
    results = []
    for what in (b"", b"no array"):
        victim.write_bytes(what)
        out = simulate(data, out=tmp_path / f"out {len(what)}", settings=settings, policy=policy,
                       seed=1)  # fmt: skip
        with np.load(out / "unmixing.npz") as stored:
            results.append({key: stored[key].tobytes() for key in stored.files})
    assert results[0] == results[1]
