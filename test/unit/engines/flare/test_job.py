"""A job of FLARE holds no code, and what each party keeps for itself stands in its own file."""

import dataclasses
import importlib.util
import json
import math

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.computations import configured
from cape.engines.flare import site_file
from cape.engines.flare.job import JobPlan, maps_in, read_job, write_job
from cape.engines.flare.site_file import AggregatorFile, SiteFile
from cape.errors import ConfigError
from cape.planning.judge import judge
from cape.settings.documents import not_default, toml_text
from support import consortium as helper
from support.federation import ROOT
from support.flare import RUN, contents

SETTINGS = {"epsilon": 8.0, "delta": 1e-5, "n_components": 5, "n_sites": 200}
LOSSY = {**SETTINGS, "aggregation": "secagg", "min_survivors": 150, "assumed_colluders": 5}
KIT = {
    "class_allow_list": ["nvflare.app_common.X"],
    "allow_log_streaming": True,
    "snapshot_persistor": {"args": {"storage": {"args": {"root_dir": "/tmp/nvflare/snapshots"}}}},
    "components": [{"id": "job_manager", "args": {"uri_root": "/tmp/nvflare/jobs"}}],
}


def plan(**changed) -> JobPlan:
    return JobPlan(**{"run": RUN, "settings": SETTINGS, **changed})


def test_a_job_is_three_json_files_that_name_classes_and_hold_the_settings(tmp_path):
    write_job(tmp_path, plan(least=150, settings=LOSSY))
    files = {name: json.loads(text) for name, text in contents(tmp_path).items()}
    assert sorted(files) == [
        "app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json",
    ]  # fmt: skip
    server = files["app/config/config_fed_server.json"]
    assert server["components"][0]["args"]["settings"] == {"config_type": "dict", **LOSSY}
    controller = server["workflows"][0]["args"]
    # One thread for each site that may be asked at the same time, and time for all to begin.
    assert controller["max_call_threads"] == 200
    assert controller["sync_task_timeout"] == 1000
    assert files["meta.json"]["min_clients"] == 150
    paths = set(site_file.SITE_CLASSES) | set(site_file.SERVER_CLASSES)
    assert {path for path in _paths(list(files.values()))} == paths


def test_a_job_of_a_comparison_carries_the_public_maps_and_their_names(tmp_path, capsys):
    """The page of FLARE's consortium had no pictures, nor did the owner's settings the names."""
    labels = np.arange(8, dtype=np.int16).reshape(2, 2, 2)
    nib.save(nib.Nifti1Image(labels, np.eye(4)), tmp_path / "mine.nii.gz")
    rows = "".join(f"{n}\tRegion{n}\n" for n in range(1, 8))
    (tmp_path / "mine.tsv").write_text(f"index\tname\n{rows}")
    given = {"epsilon": 8.0, "delta": 1e-5, "n_sites": 4, "outcomes": "fnc",
             "variables": "dx control/SZ", "formula": "dx", "accept_low_quality": True}  # fmt: skip
    (tmp_path / "settings.toml").write_text(toml_text(given | {"computation": "capecontrast"}))
    words = ["flare", "job", "--subjects", "400", "--settings", str(tmp_path / "settings.toml")]
    words += ["--maps", str(tmp_path / "mine.nii.gz")]
    assert main([*words, str(tmp_path / "job")]) == 0
    config_folder = tmp_path / "job" / "app" / "config"
    assert (config_folder / "public_maps.tsv").read_text().endswith(rows)
    assert maps_in(config_folder).read_bytes() == (tmp_path / "mine.nii.gz").read_bytes()
    found = read_job(tmp_path / "job")
    assert found.settings["networks"].startswith("Region1, Region2")
    # A run that goes on shows them too.
    again = tmp_path / "again (2)"
    assert main(["flare", "job", "--resume", str(tmp_path / "job"), str(again)]) == 0
    assert f"-j '{again}' --startup-kit" in capsys.readouterr().out  # as a shell takes it
    assert contents(again) == contents(tmp_path / "job")
    assert maps_in(tmp_path / "job") is None
    assert main([*words[:4], str(tmp_path / "no"), *words[-2:], "--set", "epsilon=8"]) == 2
    assert "regresses on no maps" in capsys.readouterr().err


def _paths(node):
    if isinstance(node, dict):
        yield from ([node["path"]] if "path" in node else [])
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _paths(item)


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": {**SETTINGS, "mask_hash": "{ROOT}"}},
        {"settings": {**SETTINGS, "mask_hash": "@x"}},
        {"settings": {**SETTINGS, "mask_hash": "${x}"}},
        {"settings": {**SETTINGS, "n_component": 5}},
        {"least": 201},
        {"least": 2},  # all of them must answer
        {"settings": LOSSY, "least": 149},
        {"settings": {**SETTINGS, "n_sites": 0}},
    ],
)
def test_a_job_that_flare_would_change_or_nobody_could_run_is_not_written(tmp_path, wrong):
    with pytest.raises(ConfigError):
        write_job(tmp_path, plan(**wrong))
    assert contents(tmp_path) == {}


def test_a_job_is_read_again_to_go_on_with_its_run(tmp_path):
    named = {**SETTINGS, "n_sites": 4, "site_names": "a,b,c,d", "aggregation": "secagg"}
    whole = plan(settings=named, least=4, patience=7.0, join_patience=9.0)
    write_job(tmp_path / "one", whole)
    assert read_job(tmp_path / "one") == whole
    code = main(["flare", "job", str(tmp_path / "two"), "--resume", str(tmp_path / "one"),
                 "--least", "3"])  # fmt: skip
    assert code == 0
    assert read_job(tmp_path / "two") == dataclasses.replace(whole, least=3)
    meta = json.loads((tmp_path / "two" / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "a", "b", "c", "d"]}
    (tmp_path / "one" / "meta.json").write_text("{}")
    with pytest.raises(ConfigError, match="CAPE-E312"):
        read_job(tmp_path / "one")


@pytest.mark.parametrize("name", ["meta.json", "app/config/config_fed_server.json"])
def test_a_job_with_a_key_twice_is_none(tmp_path, name):
    """FLARE would take one value, who reads the job another."""
    write_job(tmp_path, plan())
    path = tmp_path / name
    first = path.read_text().index("{") + 1
    key = next(iter(json.loads(path.read_text())))
    path.write_text(path.read_text()[:first] + f'"{key}": 0,' + path.read_text()[first:])
    with pytest.raises(ConfigError, match="CAPE-E312"):
        read_job(tmp_path)


def test_a_kit_with_a_key_twice_is_none(tmp_path):
    path = kit(tmp_path, "client") / "local" / "resources.json.default"
    path.write_text(path.read_text().replace("{", '{"class_allow_list": ["any.Class"],', 1))
    with pytest.raises(ConfigError, match="CAPE-E312"):
        site_file.settings_of_flare(tmp_path, "client")


def job(folder, *words: str) -> int:
    """Run the command with settings of which a run of 300 people at three sites ends well."""
    usual = {"n_sites": 3, "epsilon": 8, "delta": 1e-5, "n_components": 5}
    sets = [word for name, value in usual.items() for word in ("--set", f"{name}={value}")]
    return main(["flare", "job", str(folder), "--subjects", "300", *sets, *words])


def test_a_new_job_has_a_run_of_its_own(tmp_path):
    for name in "ab":
        assert job(tmp_path / name) == 0
    assert read_job(tmp_path / "a").run != read_job(tmp_path / "b").run
    assert main(["flare", "job", str(tmp_path / "c")]) == 2
    assert main(["flare", "job", str(tmp_path / "c"), "--set", "n_sites=3"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--subjects", "4"], "CAPE-E130 The consortium has 4 subjects"),
        (["--set", "epsilon=0.1"], "CAPE-E150"),
        (["--set", "delta=0.01"], "delta"),
        (["--least", "2"], "--least goes"),
        (["--set", "n_sites=0"], "CAPE-E013"),
        (["--set", "n_sites=2"], "CAPE-E152"),
        (["--set", "site_names=a,b,c,d"], "site_names"),
        (["--set", "aggregation=secagg", "--set", "min_survivors=2"], "so none may drop out"),
        (["--set", "aggregation=secagg"], "so none may drop out"),
        (
            ["--set", "n_sites=6", "--set", "aggregation=secagg", "--set", "min_survivors=4"],
            "set min_survivors=5",
        ),
        (  # of one release less is sent
            [
                "--subjects",
                "4000",
                "--set",
                "n_sites=2000",
                "--set",
                "aggregation=secagg",
                "--set",
                "computation=capedjica",
            ],
            "CAPE-E145",
        ),
    ],
)
def test_a_job_that_cannot_end_well_is_not_written(tmp_path, monkeypatch, capsys, words, said):
    """All of these were written, sent, and ended at the sites, some after the budget was spent."""
    monkeypatch.setenv("COLUMNS", "200")
    assert job(tmp_path / "job", *words) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


def test_a_job_that_is_there_is_not_replaced(tmp_path, capsys):
    """Its run could not go on: the name of the run stands in the job alone."""
    assert job(tmp_path / "job") == 0
    before = contents(tmp_path / "job")
    assert job(tmp_path / "job") == 2
    assert "CAPE-E312 the folder job is not empty" in capsys.readouterr().err
    assert contents(tmp_path / "job") == before


def test_drop_outs_are_survived_from_four_sites_on(tmp_path):
    """docs/flare.md: of S sites ceil(S/3) - 1 may leave."""
    for n_sites in range(3, 31):
        chosen = {**SETTINGS, "n_sites": n_sites, "aggregation": "secagg"}
        config = configured(chosen)[1]
        assert n_sites - config.survivors(n_sites) == math.ceil(n_sites / 3) - 1
        if n_sites < 4:
            with pytest.raises(ConfigError, match="none may drop out"):
                judge(chosen)
        else:
            judge(chosen)
    text = " ".join((ROOT / "docs" / "flare.md").read_text().split())
    assert "none of 3 sites, 1 of 4 to 6, 2 of 7 to 9, 6 of 20" in text


def kit(folder, *parties: str):
    for name in ("local", "startup"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for party in parties:
        (folder / "startup" / f"fed_{party}.json").write_text("{}")
    (folder / "local" / "resources.json.default").write_text(json.dumps(KIT))
    return folder


def test_a_site_names_what_its_kit_must_allow_and_writes_it_when_asked(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    words = ["flare", "site", str(kit(tmp_path / "kit", "client"))]
    words += ["--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    said = capsys.readouterr().out
    for line in ('+ "cape.engines.flare.collab.Site"', "allow_log_streaming: false"):
        assert line in said
    local = tmp_path / "kit" / "local"
    assert not (local / "resources.json").exists()
    assert main([*words, "--allow"]) == 0
    written = json.loads((local / "resources.json").read_text())
    assert written["allow_log_streaming"] is False
    assert written["class_list_enforcement_mode"] == "enforce"
    assert written["class_allow_list"] == ["nvflare.app_common.X", *site_file.SITE_CLASSES]
    assert site_file.read_site_file(local, "any") == SiteFile(
        data=str(tmp_path / "data"), runs=str(tmp_path / "runs")
    )
    capsys.readouterr()
    assert main(words) == 0
    assert "nothing more" in capsys.readouterr().out


def test_a_server_keeps_jobs_and_snapshots_out_of_the_temporary_folder(tmp_path):
    words = [
        "flare",
        "server",
        str(kit(tmp_path / "kit", "server")),
        "--runs",
        str(tmp_path / "runs"),
    ]
    assert main([*words, "--allow"]) == 0
    local = tmp_path / "kit" / "local"
    text = (local / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    assert str(tmp_path / "runs" / "flare" / "jobs") in text
    assert str(tmp_path / "runs" / "flare" / "snapshots") in text
    own = site_file.read_aggregator_file(local, tmp_path)
    assert own == AggregatorFile(runs=str(tmp_path / "runs"))
    assert site_file.read_aggregator_file(tmp_path, tmp_path).runs == str(tmp_path / "cape-runs")


@pytest.mark.parametrize("party", ["site", "server"])
def test_a_folder_that_is_no_kit_of_this_party_is_left_as_it_is(tmp_path, capsys, party):
    """A mistyped folder got a `local` that FLARE never read, and an exit code of 0."""
    (tmp_path / "data").mkdir()
    other = kit(tmp_path / "kit", "server" if party == "site" else "client")
    (tmp_path / "empty").mkdir()
    for folder in (other, tmp_path / "empty"):
        before = contents(folder)
        words = ["flare", party, str(folder), "--runs", str(tmp_path / "runs")]
        words += ["--data", str(tmp_path / "data")] if party == "site" else []
        assert main(words) == 2
        assert f"CAPE-E312 {folder.name} is no kit of a {party}" in capsys.readouterr().err
        assert contents(folder) == before
    assert not (tmp_path / "runs").exists()


def test_in_the_simulator_each_site_has_a_file_of_its_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        own = SiteFile(data=str(tmp_path / name), runs=str(tmp_path / f"runs-{name}"))
        (tmp_path / f"cape-site-{name}.toml").write_text(toml_text(not_default(own)))
    assert site_file.read_site_file(tmp_path, "b").data == str(tmp_path / "b")


@pytest.mark.parametrize(
    "text",
    [
        None, "data = 1", "data = ", 'data = "{0}"', 'data = "data"\nruns = "{0}/runs"',
        'data = "{0}/none"\nruns = "{0}/runs"', 'data = "{0}/data"\nruns = "{0}/data"',
        'data = "{0}/data"\nruns = "{0}/data/runs"', 'data = "{0}/data"\nruns = "runs"',
        'data = "{0}/data"\nruns = "{0}/runs"\nextra = "x"',
        'data = "{0}/data"\nruns = "{0}/runs"\nmanifest = "../m.tsv"',
    ],
)  # fmt: skip
def test_an_own_file_that_cannot_be_used_says_so_and_nothing_of_it_is_public(tmp_path, text):
    (tmp_path / "data").mkdir()
    if text is not None:
        (tmp_path / "cape-site.toml").write_text(text.format(tmp_path))
    with pytest.raises(ConfigError, match="CAPE-E311") as caught:
        site_file.read_site_file(tmp_path, "any")
    assert str(tmp_path) not in caught.value.public


def test_a_simulation_in_flare_without_flare_says_what_to_install(tmp_path, monkeypatch, capsys):
    helper.write_data(tmp_path / "data")
    found = importlib.util.find_spec
    without = lambda name, *more: None if name == "nvflare" else found(name, *more)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", without)
    words = f"simulate {tmp_path / 'data'} --out {tmp_path / 'out'} --through nvflare"
    words += " --set feature_space=matrix --set n_components=3 --set private=false"
    assert main(words.split()) == 1
    assert "needs the package nvflare; install the extra 'nvflare'" in capsys.readouterr().err
