"""Arrays that are too large for a message travel as files; nothing else about the run changes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from cape.engines.coinstac import documents
from cape.errors import MessageError
from cape.protocol import wire
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, Roster, RosterEntry
from support import consortium as helper

Engine, settings_of = helper.Engine, helper.settings_of

GAUSSIAN = settings_of("papermean", computation="papermean")
"""The paper's zero-sum noise broadcasts a vector as long as a reply: files both ways."""


def played(folder, monkeypatch, limit):
    monkeypatch.setattr(documents, "MAX_INLINE", limit)
    data = helper.write_data(folder / "data")
    engine = Engine(folder / "work", data, GAUSSIAN)
    with helper.without_pages():
        engine.play()
    return engine


def files_of(engine):
    found = list((engine.work / "remote" / "base").glob("*/*.bin"))
    return found, list(engine.data.glob("*/*.bin"))


def test_a_file_is_named_after_run_round_and_content_and_never_pickled(tmp_path, monkeypatch):
    engine = played(tmp_path, monkeypatch, 64)
    for group in files_of(engine):
        for file in group:
            assert documents.FILE_NAME.fullmatch(file.name)
            assert file.read_bytes()[:1] != b"\x80" or len(file.read_bytes()) % 8 == 0
            assert len(np.fromfile(file, dtype="<u8")) * 8 == file.stat().st_size


def test_files_of_an_earlier_run_that_were_never_deleted_are_not_read(tmp_path, monkeypatch):
    """Two runs in one place: the engine deletes nothing that it delivered."""
    first = played(tmp_path, monkeypatch, 64)
    stale = {file: file.read_bytes() for group in files_of(first) for file in group}
    policy = replace(helper.POLICY, simulation_seed=8)
    for file in first.data.glob("*/*.bin"):
        file.unlink()
    runs = {}
    for name in ("alone", "after"):
        work = tmp_path / f"work-{name}"
        if name == "after":
            shutil.copytree(first.work / "remote" / "base", work / "remote" / "base")
            for file, raw in stale.items():
                file.write_bytes(raw)
        runs[name] = Engine(work, first.data, GAUSSIAN, policy=policy)
        with helper.without_pages():
            runs[name].play()
        for file in list(first.data.glob("*/*.bin")):
            file.unlink()
    results = [(e.work / "remote/transfer/histogram.csv").read_bytes() for e in runs.values()]
    assert results[0] == results[1] != (first.work / "remote/transfer/histogram.csv").read_bytes()


@pytest.fixture
def reply(tmp_path, monkeypatch):
    """A message whose array lies in a file."""
    monkeypatch.setattr(documents, "MAX_INLINE", 64)
    array = wire.encode(np.arange(100, dtype=np.uint64), wire._hints(Sample)["x"])
    message = {"run": "0a" * 16, "seq": 3, "phase": "pca", "round": 1, "body": {"x": array}}
    return message, documents.offload(message, tmp_path), tmp_path


class Sample:
    x: np.typing.NDArray[np.uint64]


def test_what_was_put_into_a_file_comes_back(reply):
    message, offloaded, folder = reply
    assert set(offloaded["body"]["x"]) == {"file", "sha256", "shape"}
    assert documents.inline(json.loads(json.dumps(offloaded)), folder) == message


def test_a_short_message_cannot_name_one_file_without_end(reply, monkeypatch):
    _, offloaded, folder = reply
    reference = offloaded["body"]["x"]
    monkeypatch.setattr(documents, "MAX_MESSAGE_FILES", 3 * 800)
    three = {**offloaded, "body": {"x": [reference] * 3}}
    assert len(documents.inline(three, folder)["body"]["x"]) == 3
    with pytest.raises(MessageError, match=r"E202 .*larger than 2400 bytes together"):
        documents.inline({**offloaded, "body": {"x": [reference] * 4}}, folder)


def missing(reference, folder):
    (folder / reference["file"]).unlink()


def damaged(reference, folder):
    with (folder / reference["file"]).open("r+b") as file:
        file.write(b"\xff")


def longer(reference, folder):
    with (folder / reference["file"]).open("ab") as file:
        file.write(b"\0" * 8)


def huge(reference, folder):
    with (folder / reference["file"]).open("r+b") as file:
        file.truncate(wire.MAX_ARRAY + 1)


def elsewhere(reference, folder):
    shutil.copy(folder / reference["file"], folder.parent / "other.bin")
    reference["file"] = "../other.bin"


def a_link(reference, folder):
    shutil.move(folder / reference["file"], folder / "target")
    (folder / reference["file"]).symlink_to(folder / "target")


def a_folder(reference, folder):
    (folder / reference["file"]).unlink()
    (folder / reference["file"]).mkdir()


def no_text(reference, folder):
    reference["sha256"] = 7


@pytest.mark.parametrize(
    "harm", [missing, damaged, longer, huge, elsewhere, a_link, a_folder, no_text]
)
def test_a_file_that_is_not_the_one_meant_is_refused(reply, harm):
    _, offloaded, folder = reply
    harm(offloaded["body"]["x"], folder)
    with pytest.raises(MessageError, match="E202"):
        documents.inline(offloaded, folder)


@pytest.mark.slow
def test_a_basis_too_large_for_one_message_runs_with_real_files(tmp_path):
    """d = 1500: 9 MB a reply in the pca round, which no message carried before."""
    rng = np.random.default_rng(3)
    common = rng.standard_normal((1500, 2))
    data = {f"local{s}": [common @ rng.laplace(size=(2, 30)) for _ in range(3)] for s in range(3)}
    settings = settings_of(
        "paperdjica",
        computation="paperdjica",
        max_features=1500,
        n_features=1500,
        n_components=2,
        private=False,
    )
    engine = Engine(tmp_path / "work", helper.write_data(tmp_path / "data", data), settings)
    with helper.without_pages():
        engine.play()
    from_sites, _ = files_of(engine)
    assert [file.stat().st_size for file in from_sites] == [1500 * 1501 // 2 * 8] * 3


def test_a_file_that_cannot_be_written_stops_the_step_and_not_the_run(reply, tmp_path) -> None:
    """`run` says CAPE-E261: the answer is stored, and the same document may come again."""
    message, offloaded, _ = reply
    folder = tmp_path / "gone"
    folder.write_text("no folder")
    with pytest.raises(OSError, match="exists"):
        documents.offload(message, folder)
    folder.unlink()
    assert documents.offload(message, folder) == offloaded


@pytest.mark.parametrize(("n_sites", "beside"), [(1, False), (40, True)])
def test_what_stays_inside_a_message_follows_from_the_number_of_sites(
    tmp_path, monkeypatch, n_sites, beside
):
    """All replies are one document: 40 of 1 MiB each would pass it, so they travel as files."""
    sites = tuple(RosterEntry(site=f"site{i}", nonce="0", n_subjects=3) for i in range(n_sites))
    roster = Roster(
        sites=sites, config="", space=FeatureSpace.of_matrix(3), n_basis=3, colluders=0,
        survivors=n_sites, seeded=False, plan=(), warnings=(),
    )  # fmt: skip

    def answer(model: Model) -> documents.Document:
        return {"cache": {"cape": {"model": wire.encode(model, Model)}}}

    senders = documents.n_senders(answer(Model(roster=roster)))
    assert senders == n_sites
    array = wire.encode(np.zeros(2**17, dtype=np.uint64), wire._hints(Sample)["x"])
    message = {"run": "0a" * 16, "seq": 3, "phase": "pca", "round": 1, "body": {"x": array}}
    offloaded = documents.offload(message, tmp_path, senders)
    assert ("file" in offloaded["body"]["x"]) == beside
    assert senders * len(wire.dumps(offloaded)) < wire.MAX_DOCUMENT
    assert documents.n_senders(answer(Model())) == 1  # in `join`


def test_the_aggregator_reads_the_files_of_sites_one_after_the_other(tmp_path, monkeypatch):
    """At no moment does it hold more than the sum and one vector, however many sites there are."""
    data = helper.write_data(tmp_path / "data", helper.datasets())
    monkeypatch.setattr(documents, "MAX_INLINE", 64)
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    with helper.without_pages():
        while engine.cursor[0] != "pca":
            engine.exchange()
        order: list[str] = []
        for name in ("_read_file", "decode_envelope"):
            monkeypatch.setattr(documents, name, noted(order, name, getattr(documents, name)))
        engine.exchange()
    n = len(engine.sites)  # each of which reads the question first
    assert order == ["decode_envelope"] * n + ["_read_file", "decode_envelope"] * n


def noted(order, name, real):
    def call(*given, **named):
        order.append(name)
        return real(*given, **named)

    return call
