"""COINSTAC from outside: one process per party and round, documents on stdin and stdout.

Everything that can go wrong between two rounds, and every refusal that must come before any
budget is spent.  The parties run in this process where a new one would show nothing more.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cape.engines.coinstac import computation as coinstac
from cape.engines.coinstac import computation as stdio
from cape.engines.coinstac import site as site_half
from cape.errors import (
    CapeError,
    ConfigError,
    DataError,
    MessageError,
    PrivacyBudgetError,
    ProtocolError,
    StateLostError,
    StoppedError,
)
from cape.protocol import wire
from cape.secagg import keys
from cape.site.places import POLICY_VARIABLE, SitePlaces
from cape.site.policy import SitePolicy
from support import consortium as helper

ROOT = Path(__file__).parents[2]


Consortium, Engine, settings_of, POLICY = (
    helper.Consortium, helper.Engine, helper.settings_of, helper.POLICY,
)  # fmt: skip

EXCHANGES = [
    ("join", 1), ("zero-sum", 1), ("zero-sum.probe", 1), ("pca", 1), ("whitening", 1),
    ("iterate", 1), ("iterate", 2), ("report", 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A finished seeded run; every exchange can be gone back to."""
    return helper.record(tmp_path_factory.mktemp("recording"))


@pytest.fixture(scope="module")
def unseeded(tmp_path_factory):
    """The same with real randomness: every exchange can be gone back to."""
    folder = tmp_path_factory.mktemp("unseeded")
    return play_unseeded(folder, helper.write_data(folder / "data"))


def play_unseeded(folder: Path, data: Path):
    policy = replace(POLICY, simulation_seed=-1)
    engine = Engine(folder / "work", data, settings_of("capedjica"), policy=policy,
                    snapshots=folder / "snapshots")  # fmt: skip
    with helper.without_pages():
        engine.play()
    return engine


@pytest.fixture
def draws(monkeypatch):
    """What is drawn from now on."""
    drawn: list = []
    monkeypatch.setattr(keys.RunSecret, "stream", helper.watching(drawn))
    return drawn


def start(role: str, text: bytes, environment=None, code: str | None = None) -> subprocess.Popen:
    stdio = [str(ROOT / f"{role}.py")] if code is None else ["-c", code]
    return subprocess.Popen(
        [sys.executable, *stdio], cwd=ROOT, env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def in_process(role: str, text: bytes, environment=None, code: str | None = None):
    """Return (exit code, stdout, stderr) of a new process."""
    process = start(role, text, environment, code)
    out, err = process.communicate(text)
    return process.returncode, out, err


def policy_of(engine, site: str) -> dict[str, str]:
    return {POLICY_VARIABLE: str(engine.work / site / "site-policy.toml")}


# -- a step that is killed or repeated -------------------------------------------------------------


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("how", ["deleted", "cut", "garbage"])
def test_a_lost_side_file_is_made_again_with_identical_bytes(
    recording, tmp_path, exchange, how
) -> None:
    """A container that was replaced: working files gone or damaged, everything else kept."""
    engine = recording.at(exchange, tmp_path / "work")
    for site in engine.sites:
        files = list((engine.work / site / "cache").iterdir())
        assert files or exchange == ("join", 1)
        for path in files:
            if how == "deleted":
                path.unlink()
            elif how == "cut":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            else:
                path.write_bytes(b"PK\x03\x04 something else")
        assert helper.repeated(engine.ask(site)) == helper.repeated(
            recording.answers[exchange][site]
        )


def test_lost_side_files_are_made_again_from_the_files_that_were_mapped(tmp_path) -> None:
    """Not from whatever else lies in the folder."""
    data = helper.write_data(tmp_path / "data")
    extra = helper.subjects(1, seed=99)[0]
    answers = []
    for keep in (True, False):
        settings = {**settings_of("capedjica"), "data": [f"sub-{m:02d}.npy" for m in range(3)]}
        engine = Engine(tmp_path / f"work{keep}", data, settings)
        engine.until("pca")
        np.save(data / "local0" / "sub-zz.npy", extra)
        if not keep:
            shutil.rmtree(engine.work / "local0" / "cache")
        answers.append(json.loads(engine.ask("local0"))["output"]["body"])
        (data / "local0" / "sub-zz.npy").unlink()
    assert answers[0] == answers[1]


def test_files_that_changed_during_the_run_are_not_summed(tmp_path) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica")).until("pca")
    shutil.rmtree(engine.work / "local0" / "cache")
    (data / "local0" / "sub-00.npy").unlink()
    with pytest.raises(CapeError):
        engine.ask("local0")


def test_links_in_the_folder_of_mapped_files_are_not_followed(tmp_path) -> None:
    """A link to / made the first round walk the whole disk, and wait for whatever hangs there."""
    outside, base = tmp_path / "outside", tmp_path / "base"
    for folder in (outside / "deep", base / "inner"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    (base / "to-folder").symlink_to(outside)
    (base / "to-file").symlink_to(outside / "deep" / "file")
    (base / "inner" / "round").symlink_to(base)
    (base / "to-nothing").symlink_to(tmp_path / "nothing")
    before = site_half.files_below(base)
    names = [name for name, *_ in before]
    assert names == ["inner/file", "inner/round", "to-file", "to-folder", "to-nothing"]
    (outside / "deep" / "file").write_text("something else")
    assert site_half.files_below(base) == before
    (base / "to-folder").unlink()
    (base / "to-folder").symlink_to(base / "inner")  # another link is another request
    assert site_half.files_below(base) != before


@pytest.mark.usefixtures("no_pages")
def test_nothing_stays_in_the_working_folder_after_a_run(tmp_path) -> None:
    """And a last round that is asked again writes no second set of files."""
    data = helper.write_data(tmp_path / "data")
    policy = replace(POLICY, private_results=True)
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"), policy=policy)
    engine.until("report")
    assert list((engine.work / "local0" / "cache").iterdir())
    before = engine.copy(tmp_path / "again")
    engine.exchange()
    assert engine.ended
    for site in engine.sites:
        assert list((engine.work / site / "cache").rglob("*")) == []
        assert not (engine.work / site / "output" / ".cape").exists()
        assert list((engine.work / site / "output" / "private").rglob("*"))
    first = before.ask("local0")
    shutil.rmtree(before.work / "local0" / "output" / "private")
    assert before.ask("local0") == first
    assert not (before.work / "local0" / "output" / "private").exists()


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize("left", ["receipt.jsonl", "given.json", "ledger.jsonl"])
def test_a_site_killed_while_it_clears_its_files_is_asked_again(
    recording, tmp_path, monkeypatch, left
) -> None:
    """It answers the same bytes, whichever was the last to go: once a run of all ended there."""
    engine = recording.at(("report", 1), tmp_path / "work")
    files: list[Path] = []

    def killed(path: Path, *, ignore_errors: bool) -> None:
        files.extend(found for found in path.rglob("*") if found.is_file())
        for found in files:
            if found.name != left:
                found.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            engine.ask("local0")
    assert len(files) > 3
    first = recording.answers["report", 1]["local0"]
    assert helper.repeated(engine.ask("local0")) == helper.repeated(first)
    assert not (engine.work / "local0" / "output" / ".cape").exists()


STATE = {
    "receipt": "output/.cape/receipt.jsonl",
    "vault": "output/.cape/*/vault-agreed.*",
    "given": "output/.cape/*/given.json",
    "folder": "output/.cape",
}


@pytest.mark.parametrize("what", STATE)
@pytest.mark.parametrize("answered", [False, True])
def test_lost_state_ends_in_a_clear_error_never_in_a_second_draw(
    unseeded, tmp_path, draws, what, answered
) -> None:
    """Answers are equal or there is none: whatever left the site, left it once."""
    engine = unseeded.before["iterate", 1].copy(tmp_path / "work")
    first = engine.ask("local0") if answered else None
    drawn = len(draws)
    found = sorted((engine.work / "local0").glob(STATE[what]))
    assert found
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    # The key and the list of files are not needed to repeat a stored answer.
    if answered and what in ("vault", "given"):
        assert engine.ask("local0") == first
    else:
        text = "CAPE-E210 state lost at site local0: .* nothing is released again, start a new run"
        with pytest.raises(StateLostError, match=text):
            engine.ask("local0")
    if answered:
        assert len(draws) == drawn


@pytest.mark.parametrize(
    "cache",
    [
        {"cape": {}}, {"cape": []}, {"cape": {"head": {}, "model": {}}}, {"cape": 7},
        {"cape": {"head": {"computation": "x"}, "nonce": "0", "vault_key": ""}},
    ],
)  # fmt: skip
def test_a_damaged_cache_is_lost_state(unseeded, tmp_path, draws, cache) -> None:
    engine = unseeded.before["whitening", 1].copy(tmp_path / "work")
    for party in ("local0", "remote"):
        engine.caches[party] = cache
        with pytest.raises(StateLostError, match="cache is missing or damaged"):
            engine.ask(party, engine.input if party == "local0" else engine.inbox)
    assert draws == []


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_count_of_the_engine_that_is_not_the_own_one_releases_nothing(
    unseeded, tmp_path, draws, exchange, off
) -> None:
    """A round that was left out or comes again: at sites and at the aggregator."""
    engine = unseeded.before[exchange].copy(tmp_path / "work")
    inbox = {site: json.loads(engine.ask(site))["output"] for site in engine.sites[1:]}
    before = len(draws), sorted((engine.work / "local0").rglob("*"))
    due, engine.iteration = engine.iteration, engine.iteration + off
    with pytest.raises(
        ProtocolError, match=f"E248 the engine called round {due + off}, .*{due} is"
    ):
        engine.ask("local0")
    files = [path for path in (engine.work / "local0").rglob("*") if path.name != "site-error.txt"]
    assert (len(draws), sorted(files)) == before
    with pytest.raises(ProtocolError, match=f"round {due} is due; nothing was released"):
        engine.ask("remote", inbox)
    engine.iteration = due
    assert json.loads(engine.ask("local0"))["output"]["seq"] == due


@pytest.mark.parametrize("count", [None, "1", 1.0, True])
def test_a_call_without_a_count_is_refused(unseeded, tmp_path, count) -> None:
    engine = unseeded.before["pca", 1].copy(tmp_path / "work")
    engine.iteration = count
    with pytest.raises(MessageError, match=r"E158 .*request\.state\.iteration: not a whole number"):
        engine.ask("local0")


# -- documents that are none -----------------------------------------------------------------------

BAD_INPUT = {
    "empty": (b"", b"CAPE-E158 The request cannot be read: what came is not one JSON document."),
    "not JSON": (b"{'input':", b"what came is not one JSON document."),
    "two documents": (b"{}{}", b"what came is not one JSON document."),
    "NaN": (b'{"input": NaN, "cache": {}, "state": {}}', b"not one JSON document."),
    "Infinity": (b'{"input": -Infinity}', b"not one JSON document."),
    "not UTF-8": (b"\xff\xfe{}", b"not one JSON document."),
    "a list": (b"[1]", b"the document is not a mapping."),
    "no state": (b'{"input": {}, "cache": {}}', b"missing ['state']."),
    "deep": (b"[" * 100_000, b"not one JSON document."),
}


def main_here(role: str, text: bytes, monkeypatch, tmp_path) -> tuple[int, bytes, bytes]:
    """Call `answer_once` in this process, its descriptors pointed at files."""
    paths = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
    paths[0].write_bytes(text)
    saved = [os.dup(1), os.dup(2)]
    with paths[0].open("rb") as stdin, paths[1].open("wb") as out, paths[2].open("wb") as err:
        sys.stdout.flush()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", type("Text", (), {"buffer": stdin})())
                code = stdio.answer_once(role)
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for handle in saved:
                os.close(handle)
    return code, paths[1].read_bytes(), paths[2].read_bytes()


@pytest.mark.parametrize("case", BAD_INPUT)
def test_every_kind_of_bad_input_is_refused_in_public_words(case, monkeypatch, tmp_path) -> None:
    text, expected = BAD_INPUT[case]
    for role in ("local", "remote"):
        code, out, err = main_here(role, text, monkeypatch, tmp_path)
        assert (code, out) == (1, b"")
        assert err.endswith(expected + b"\n")


def test_a_document_of_another_role_or_shape_is_refused(recording, tmp_path) -> None:
    engine = recording.at(("join", 1), tmp_path / "work")
    document = json.loads(engine.document("local0", engine.input))
    with pytest.raises(MessageError, match="role: allowed local, remote"):
        coinstac.run("site", document, SitePlaces())
    with pytest.raises(MessageError, match="the first message of a site is its card"):
        coinstac.run("remote", document, SitePlaces())
    for name in ("input", "cache", "state"):
        for value in (None, [], "x", 1):
            with pytest.raises(
                MessageError, match=rf"E158 .*request(\.{name})?: (not a mapping|the fields of)"
            ):
                coinstac.run("local", {**document, name: value}, SitePlaces())
    for name in ("clientId", "baseDirectory", "outputDirectory", "transferDirectory"):
        state = {**document["state"], name: 5}
        with pytest.raises(
            MessageError, match=rf"E158 .*request\.state\.{name}: int instead of str"
        ):
            coinstac.run("local", {**document, "state": state}, SitePlaces())
    with pytest.raises(MessageError, match=r"E158 .*request: the fields of"):
        coinstac.run("local", [], SitePlaces())
    answers = recording.answers["join", 1]
    cards = {site: json.loads(answers[site])["output"] for site in engine.sites}
    with pytest.raises(ConfigError, match="unknown setting 'local"):
        engine.ask("local0", cards)
    for wrong in ({}, {"local0": {}}, {"local0": {"body": 1}}, {"local0": None}):
        with pytest.raises(MessageError, match="the first message of a site is its card"):
            engine.ask("remote", wrong)
    body = {**cards["local0"]["body"], "settings": "{"}
    with pytest.raises(MessageError, match=r"E202 .*not JSON"):
        engine.ask("remote", {**cards, "local0": {**cards["local0"], "body": body}})
    body = {**cards["local0"]["body"], "settings": "[]"}
    with pytest.raises(MessageError, match=r"E202 .*settings: not a mapping"):
        engine.ask("remote", {**cards, "local0": {**cards["local0"], "body": body}})
    body = {**cards["local0"]["body"], "computation": "cape"}
    with pytest.raises(ConfigError, match=r"unknown setting 'computation=cape'; did you mean"):
        engine.ask("remote", {**cards, "local0": {**cards["local0"], "body": body}})


STRAY = """
import os, sys, warnings
import cape.engines.coinstac.computation as program
real = program.run
def run(role, document, places):
    print("stray"); sys.stdout.write("stray"); sys.stderr.write("stray")
    os.write(1, b"stray"); os.write(2, b"stray"); os.system("echo stray; echo stray >&2")
    warnings.warn("stray"); print("stray", file=sys.__stdout__)
    {then}
    return real(role, document, places)
program.run = run
raise SystemExit(program.answer_once("local"))
"""


@pytest.mark.parametrize("then", ["pass", "raise RuntimeError('stray /secret/path')"])
def test_stray_prints_cannot_mix_with_the_answer(recording, tmp_path, then) -> None:
    engine = recording.at(("pca", 1), tmp_path / "work")
    text = engine.document("local0", engine.input)
    found = in_process("local", text, policy_of(engine, "local0"), STRAY.format(then=then))
    if then == "pass":
        assert found == (0, recording.answers["pca", 1]["local0"] + b"\n", b"")
    else:
        text = b"CAPE-E000 internal error; see the private log of this site.\n"
        assert found == (1, b"", text)


def test_an_unexpected_error_is_told_to_the_site_only(recording, tmp_path, monkeypatch) -> None:
    engine = recording.at(("pca", 1), tmp_path / "work")

    def broken(*args, **kwargs):
        raise RuntimeError("value 31337.25 of sub-01")

    monkeypatch.setattr(site_half, "respond", broken)
    monkeypatch.setenv(*policy_of(engine, "local0").popitem())
    text = engine.document("local0", engine.input)
    code, out, err = main_here("local", text, monkeypatch, tmp_path)
    assert (code, out) == (1, b"")
    assert err == b"CAPE-E000 internal error; see the private log of this site.\n"
    told = (engine.work / "local0" / "output" / "site-error.txt").read_text()
    assert "value 31337.25 of sub-01" in told
    assert told.startswith("CAPE-E000")


def test_an_error_whose_details_cannot_be_written_keeps_its_public_text(
    recording, tmp_path
) -> None:
    engine = recording.at(("pca", 1), tmp_path / "work")
    shutil.rmtree(engine.work / "local0" / "output")
    (engine.work / "local0" / "output").write_text("a file where a folder is needed")
    with pytest.raises(StoppedError, match="E261 site local0 cannot write its files"):
        engine.ask("local0")


def test_a_data_folder_that_cannot_be_read_is_no_full_disk(
    recording, tmp_path, monkeypatch
) -> None:
    """It was CAPE-E261: people looked for room on the disk that they write to."""
    engine = recording.at(("pca", 1), tmp_path / "work")
    base = Path(json.loads(engine.document("local0", engine.input))["state"]["baseDirectory"])
    place = base / "sub-01_bold.nii"

    def refused(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(place))

    monkeypatch.setattr(site_half, "respond", refused)
    with pytest.raises(DataError, match="E101") as caught:
        engine.ask("local0")
    assert str(place) not in str(caught.value)
    assert str(place) in caught.value.detail
    assert "Correct its permissions" in caught.value.detail
    place = tmp_path / "elsewhere"
    with pytest.raises(StoppedError, match="E261"):
        engine.ask("local0")


# -- production runs -------------------------------------------------------------------------------


def test_a_repeated_first_document_after_a_finished_run_is_a_new_run(unseeded, tmp_path) -> None:
    """A new nonce: nothing of the old run matches."""
    engine = unseeded.before["iterate", 1].copy(tmp_path / "work")
    old = engine.journal("local0").name
    engine.caches["local0"], engine.iteration = {}, 1
    answer = json.loads(engine.ask("local0", settings_of("capedjica", n_sites=3)))
    assert answer["output"]["body"]["nonce"] != old
    assert engine.journal("local0").name == answer["output"]["body"]["nonce"]


# -- a site that refuses in the middle of a run ----------------------------------------------------


@pytest.mark.parametrize("through", ["environment", "mapped file"])
def test_a_site_that_refuses_at_round_5_ends_the_run_with_the_last_good_state(
    tmp_path, through
) -> None:
    data = helper.write_data(tmp_path / "data")
    settings = settings_of("capedjica", n_rounds=7)
    policy = replace(POLICY, simulation_seed=-1)
    engine = Engine(tmp_path / "work", data, settings, policy=policy)
    veto = helper.policy_text(SitePolicy.of_simulation(veto=True))
    if through == "mapped file":
        for site in engine.sites:
            (data / site / "p.toml").write_text(helper.policy_text(policy))
        engine.input["policy"] = ["p.toml"]
    engine.until("iterate", 5)
    good = engine.caches["remote"]["cape"]["model"]["unmixing"]
    if through == "mapped file":
        (data / "local2" / "p.toml").write_text(veto)
    else:
        (engine.work / "local2" / "site-policy.toml").write_text(veto)
    engine.exchange()
    bodies = {site: message["body"] for site, message in engine.inbox.items()}
    assert [bodies[site]["refused"] for site in engine.sites] == [False, False, True]
    assert engine.cursor == ("report", 1)
    with helper.without_pages():
        engine.play()
    results = json.loads((engine.work / "remote/transfer/results.json").read_text())
    assert results["status"] == "budget_exhausted"
    assert results["rounds"] == 4
    assert results["private"] is True
    assert 0 < results["mu_unspent"] < results["mu"]
    assert results["mu_spent"] < results["mu"]
    assert results["epsilon_spent"] < results["epsilon"]
    with np.load(engine.work / "remote/transfer/unmixing.npz") as stored:
        W = stored["W"]
    last_good = wire._decode_array(good["W"], np.dtype("<f8"), "W")
    # the solver's last good state, in final order and sign
    assert sorted(np.abs(W).sum(1)) == pytest.approx(sorted(np.abs(last_good).sum(1)))
    privacy = json.loads((engine.work / "remote/transfer/privacy.json").read_text())
    assert "iterate" in json.dumps(privacy)


@pytest.mark.parametrize("stage", ["pca", "whitening"])
def test_a_site_that_refuses_before_the_solver_ends_the_run_with_an_error(tmp_path, stage) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica")).until(stage)
    engine.allow("local1", SitePolicy.of_simulation(veto=True))
    with pytest.raises(PrivacyBudgetError, match="E154 Site policy of site local1 refuses"):
        engine.exchange()


# -- refusals in join ------------------------------------------------------------------------------


def test_a_policy_that_cannot_be_read_stops_the_site(tmp_path) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    path = engine.work / "local0" / "site-policy.toml"
    for text in (b"veto = = true", b"\xff\xfe", None):
        path.unlink()
        if text is not None:
            path.write_bytes(text)
        with pytest.raises(ConfigError, match="E267 the site policy of site local0") as caught:
            engine.ask("local0")
        assert "site-policy.toml" not in caught.value.public
        if text is None:
            break
    for text, said in (
        ("vetoo = true", "did you mean 'veto'"),
        ("patient_registry_note = 1", "patient_registry_note"),
        ('allowed_owners = "dr.miller@hospital-b"', "dr.miller"),
        ("dataset_id = 4711", "4711"),
        ('max_total = [[3.25, 1e-5]]\nledger_file = "none"', "max_total"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match="E267 the site policy of site local0") as caught:
            engine.ask("local0")
        assert said in caught.value.detail
        assert said not in caught.value.public
        assert said in (engine.place("local0", "output") / "site-error.txt").read_text()


@pytest.mark.parametrize("mapped", [True, False])
def test_a_ledger_among_the_mapped_files_would_forget_earlier_runs(tmp_path, mapped) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    ledger = "ledger.jsonl" if mapped else str(data / "local0" / "deep" / "ledger.jsonl")
    policy = replace(helper.POLICY, ledger_file=ledger)
    given = dict(engine.input)
    if mapped:
        (data / "local0" / "p.toml").write_text(helper.policy_text(policy))
        given["policy"] = ["p.toml"]
    else:
        engine.allow("local0", policy)
    environment = {} if mapped else policy_of(engine, "local0")
    with pytest.raises(ConfigError, match="E267 the site policy of site local0") as caught:
        engine.call("local", engine.document("local0", given), environment)
    assert "ledger" not in caught.value.public
    assert "ledger_file of the site policy lies among the mapped files" in caught.value.detail
    assert not list(data.rglob("*.jsonl"))


def test_a_mapped_policy_does_not_replace_the_one_that_the_environment_names(tmp_path) -> None:
    """It did: a file that an aggregator sent into the folder of mapped files lifted the veto."""
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    engine.allow("local0", replace(helper.POLICY, veto=True))
    (data / "local0" / "p.toml").write_text("veto = false\nmin_subjects = 1\n")
    with pytest.raises(PrivacyBudgetError, match="E154"):
        engine.ask("local0", {**engine.input, "policy": ["p.toml"]})
    engine.allow("local0", replace(helper.POLICY, ledger_file="ledger.jsonl"))
    answer = engine.ask("local0", {**engine.input, "policy": ["p.toml"]})
    assert json.loads(answer)["output"]["phase"] == "join"
    # The ledger stays where the site's own policy put it, whatever the mapped one says.
    assert (engine.work / "local0" / "ledger.jsonl").is_file()
    (data / "local0" / "p.toml").write_text("max_run = [[0.001, 1e-5]]\n")
    with pytest.raises(PrivacyBudgetError, match="E154"):
        engine.ask("local0", {**engine.input, "policy": ["p.toml"]})


def test_two_sites_of_one_process_at_the_same_time_have_each_their_own_places(
    tmp_path, monkeypatch
) -> None:
    """Policy, identity and home: each site is in its exchange when the other one's begins."""
    both, read = threading.Barrier(2, timeout=60), site_half.read_policy

    def together(*given):
        both.wait()
        return read(*given)

    monkeypatch.setattr(site_half, "read_policy", together)
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    strict, open_to_all = tmp_path / "strict.toml", tmp_path / "open.toml"
    strict.write_text("veto = true\n")
    open_to_all.write_text(helper.policy_text(replace(helper.POLICY, ledger_file="")))
    places = {
        "local0": SitePlaces(policy=strict, home=tmp_path / "home0"),
        "local1": SitePlaces(policy=open_to_all, home=tmp_path / "home1"),
    }

    def join(site):
        document = json.loads(engine.document(site, engine.input))
        try:
            return coinstac.run("local", document, places[site])["output"]["phase"]
        except CapeError as err:
            return err.code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(join, places)) == ["CAPE-E154", "join"]
    assert not (tmp_path / "home0").exists()
    assert (tmp_path / "home1" / "ledger.jsonl").is_file()
