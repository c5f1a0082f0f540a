"""How everybody learns why the aggregator ended a run: an engine calls nobody after an error."""

import os
from pathlib import Path
from typing import Any

import pytest

from cape.engines.coinstac import documents
from cape.engines.coinstac.computation import play
from cape.errors import CapeError, StoppedError
from cape.protocol import wire
from cape.settings import config
from cape.settings.config import VERSION
from cape.site import files
from cape.site.places import SitePlaces
from support import consortium as helper

REFUSED = {**helper.settings_of("capedjica"), "epsilon": 0.05}


def call(role: str, text: bytes, environment: Any) -> bytes:
    places = SitePlaces.from_environment(environment)
    return play(role, wire.loads(text, len(text)), places)


@pytest.fixture
def engine(tmp_path: Path) -> helper.Engine:
    """An engine whose aggregator refuses all runs of its owner, after `join`."""
    data = helper.write_data(tmp_path / "data")
    made = helper.Engine(tmp_path / "work", data, REFUSED, call=call)
    made.sites = [site for site in made.sites if site.startswith("local")]
    return made


def test_an_error_of_the_aggregator_is_told_to_all_sites_and_raised_after_that(engine, caplog):
    """The engine showed it in its application; a site's output folder and log had nothing."""
    replies = {site: engine.take(site, engine.ask(site)) for site in engine.sites}
    end = engine.take("remote", engine.ask("remote", replies))
    (text,) = end.values()
    assert text.startswith("CAPE-E150 ")
    assert "accept_low_quality" in text
    engine.iteration, caches = 2, dict(engine.caches)
    read = {site: engine.take(site, engine.ask(site, end)) for site in engine.sites}
    assert list(read.values()) == [{"ended": "read"}] * len(engine.sites)
    assert engine.caches == caches
    for site in engine.sites:
        words = (engine.place(site, "output") / "site-error.txt").read_text()
        assert words.startswith(text + "\n\nThe aggregator ended the run with this")
    assert [record.getMessage() for record in caplog.records] == [text] * len(engine.sites)
    with pytest.raises(CapeError) as caught:
        engine.ask("remote", read)
    assert caught.value.public == text
    assert (engine.place("remote", "output") / "site-error.txt").read_text().startswith(text)


def test_what_a_site_refuses_ends_the_run_at_once(engine: helper.Engine) -> None:
    """The engine tells its text to all members, and an aggregator may not make a site answer."""
    path = engine.work / "local0" / "site-policy.toml"
    path.write_text("max_run = [[0.001, 1e-5]]\n")
    with pytest.raises(CapeError, match="CAPE-E154 Site policy of site local0"):
        engine.ask("local0")


def test_an_owner_cannot_end_a_run_by_a_setting(engine: helper.Engine) -> None:
    with pytest.raises(CapeError, match="CAPE-E0"):
        engine.ask("local0", {"ended": "CAPE-E150 at home"})


def test_a_party_of_another_version_in_the_middle_of_a_run_says_which_and_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others read a digest of settings that was not the digest of theirs."""
    data = helper.write_data(tmp_path / "data")
    settings = helper.settings_of("capedjica")
    engine = helper.Engine(tmp_path / "work", data, settings, call=call).until("pca")
    site = engine.sites[1]
    with monkeypatch.context() as patch:
        for module in (config, documents):
            patch.setattr(module, "VERSION", "9.1")
        text = f"CAPE-E155 .*{site} began this run with {VERSION} and has 9.1 now"
        with pytest.raises(CapeError, match=text):
            engine.ask(site)
    engine.exchange()  # with the version of before the run goes on
    assert engine.cursor[0] == "whitening"


def test_every_error_of_the_system_around_a_sites_files_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others read which site; its own log says what it is, also where no file can be written."""
    data = helper.write_data(tmp_path / "data")
    settings = helper.settings_of("capedjica")
    engine = helper.Engine(tmp_path / "work", data, settings, call=call)
    engine.exchange()
    site = engine.sites[1]
    for number, words in {**files.WHY, 99999: "Unknown error 99999"}.items():
        caplog.clear()
        with monkeypatch.context() as patch:

            def fails(*given: Any, number: int = number) -> None:
                raise OSError(number, os.strerror(number), str(tmp_path))

            for name in ("fsync", "fdatasync", "replace"):
                patch.setattr(os, name, fails)
            with pytest.raises(StoppedError) as caught:
                engine.ask(site)
        others = f"CAPE-E261 site {site} cannot write its files"
        assert caught.value.public.startswith(others)
        assert words not in caught.value.public
        assert caught.value.detail.startswith(words)
        (record,) = caplog.records
        assert record.getMessage() == f"site {site}: {words}"
    engine.exchange()  # nothing was lost
