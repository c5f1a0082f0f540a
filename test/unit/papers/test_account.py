"""The command `cape account`: one table of all accountants, from a ledger or from a few numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from cape import cli
from cape.papers import account
from cape.papers.accountants import ACCOUNTANTS
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.ledger import GENESIS
from cape.report import files
from cape.report.privacy_json import statement
from support import report_example as example


@pytest.fixture
def privacy(tmp_path: Path):
    """Return a function that writes the statement of an invented run, changed."""

    def write(change=None, **given: Any) -> Path:
        path = tmp_path / "privacy.json"
        files.write_json(path, statement(example.outcome(**given)))
        document = files.read_json(path)
        if change:
            change(document)
        path.write_text(json.dumps(document))
        return path

    return write


def run(capsys, *arguments: object) -> tuple[int, Any]:
    code = cli.main(["account", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def by_name(document):
    return {row["name"]: row for row in document["accountants"]}


def test_the_ledger_of_a_run_gives_the_epsilon_that_the_run_states(privacy, capsys):
    path = privacy()
    stated = json.loads(path.read_text())
    code, document = run(capsys, "--ledger", path)
    rows = by_name(document)
    assert code == 0
    assert document["releases"] == 15
    assert document["delta"] == 1e-5
    assert rows["gdp"]["epsilon"] == pytest.approx(stated["budget"]["epsilon_spent"], rel=1e-12)
    assert document["zcdp_rho"] == pytest.approx(document["mu"] ** 2 / 2)
    assert [row["name"] for row in document["accountants"]] == list(ACCOUNTANTS)
    # Three sites, one assumed colluder, secure sum: f = 3/2, printed 1.9375.
    assert document["viewer"]["factor"] == 1.5
    assert rows["strong"]["holds"] is True


def test_another_delta_may_be_asked_of_a_ledger(privacy, capsys):
    _, document = run(capsys, "--ledger", privacy(), "--delta", "1e-7")
    row = by_name(document)["gdp"]
    assert row["delta"] == 1e-7
    assert row["epsilon"] == gdp_epsilon(mu=document["mu"], delta=1e-7)


def test_the_table_is_for_people(privacy, capsys):
    assert cli.main(["account", "--ledger", str(privacy())]) == 0
    text = capsys.readouterr().out
    assert "15 releases" in text
    for accountant in ACCOUNTANTS.values():
        assert f"\n{accountant.title}  " in text
        assert f"\n{accountant.title}: {accountant.assumes}\n" in text


def test_a_run_without_a_promise_has_no_figures(privacy, capsys):
    path = privacy(private=False)
    code, document = run(capsys, "--ledger", path)
    assert (code, document["private"], document["accountants"]) == (0, False, [])
    assert cli.main(["account", "--ledger", str(path)]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out


def test_local_noise_has_no_sharing_of_noise(privacy, capsys):
    _, document = run(capsys, "--ledger", privacy(lambda d: d.update(noise="local")))
    assert document["viewer"] is None
    assert by_name(document)["theorem-1-printed"]["epsilon"] is None


BROKEN = {
    "another schema": lambda d: d.update(schema="cape-privacy-9"),
    "no ledger": lambda d: d.pop("ledger"),
    "no delta": lambda d: d.update(delta=None),
    "no events": lambda d: d.update(ledger=[]),
    # These were internal errors, E000.
    "no colluders": lambda d: d.update(assumed_colluders=None),
    "sites that are no number": lambda d: d.update(n_sites={}),
    "more colluders than sites that must answer": lambda d: d.update(min_survivors=1),
    "more survivors than sites": lambda d: d.update(min_survivors=4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_statement_is_a_usage_error(name, privacy, capsys):
    path = privacy(BROKEN[name])
    assert cli.main(["account", "--ledger", str(path)]) == 2
    assert "not a privacy.json" in capsys.readouterr().err
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        for command in (["account", "--ledger"], ["budget", "--check"]):
            assert cli.main([*command, str(path)]) == 2
            assert f"{path}: " in capsys.readouterr().err


@pytest.mark.parametrize("key", ["s2", "mu2", "prev_digest"])
def test_a_changed_entry_is_refused_by_the_chain(key, privacy, capsys):
    def change(document):
        entry = document["ledger"]["entries"][4]
        entry[key] = entry[key] * 2

    assert cli.main(["account", "--ledger", str(privacy(change))]) == 4
    assert "entry 5 is missing" in capsys.readouterr().err


def test_a_cut_ledger_is_refused(privacy, capsys):
    path = privacy(lambda d: d["ledger"]["entries"].pop())
    assert cli.main(["account", "--ledger", str(path)]) == 4
    assert "do not rely on this ledger" in capsys.readouterr().err


def test_a_few_numbers_are_enough(capsys):
    _, document = run(capsys, "--mu", "0.22754760208", "--rounds", "1000", "--per-round", "2")
    rows = by_name(document)
    assert document["releases"] == 2000
    assert rows["gdp"]["epsilon"] == pytest.approx(55.7942911, rel=1e-8)
    assert rows["moments-printed"]["epsilon"] == pytest.approx(108.372474, rel=1e-8)
    assert (rows["theorem-2"]["epsilon"], rows["theorem-2"]["delta"]) == (None, 20.0)
    _, document = run(capsys, "--mu", "0.2275", "--rounds", "1000", "--release-delta", "1e-6")
    assert by_name(document)["theorem-2"]["delta"] == pytest.approx(1e-3)


def test_the_noise_multiplier_is_the_noise_of_the_sum_over_the_sensitivity(capsys):
    at = ("--noise-multiplier", "43.0776", "--rounds", "100", "--sites", "4")
    _, document = run(capsys, *at)
    assert by_name(document)["gdp"]["epsilon"] == pytest.approx(1.0, rel=3e-5)
    assert document["viewer"] == {"sites": 4, "colluders": 1, "factor": pytest.approx(4 / 3)}
    at = ("--noise-multiplier", "50.9701", "--rounds", "100", "--sites", "4", "--ratio", "4")
    _, document = run(capsys, *at, "--colluders", "1")
    assert by_name(document)["gdp"]["epsilon"] == pytest.approx(1.0, rel=3e-5)
    _, document = run(capsys, "--noise-multiplier", "2")
    assert document["mu"] == 0.5


def test_the_default_colluders_are_those_of_the_settings():
    assert [account.default_colluders(n) for n in (1, 2, 3, 4, 7, 10)] == [0, 1, 1, 1, 2, 3]


USAGE = {
    "nothing given": (),
    "two sources": ("--mu", 1, "--noise-multiplier", 1),
    "negative mu": ("--mu", -1),
    "mu of zero": ("--mu", 0),
    "multiplier of zero": ("--noise-multiplier", 0),
    "colluders without sites": ("--mu", 1, "--colluders", 1),
    "ratio without sites": ("--mu", 1, "--ratio", -1),
    "rounds of a ledger": ("--ledger", "privacy.json", "--rounds", 7),
    "everybody colludes": ("--mu", 1, "--sites", 3, "--colluders", 3),
    "delta of one": ("--mu", 1, "--delta", 1),
    "release delta of one": ("--mu", 1, "--release-delta", 1),
}


@pytest.mark.parametrize("name", USAGE)
def test_a_wrong_use_has_exit_code_2(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["account", *map(str, USAGE[name])]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert not said.out  # the header once came before the error of a delta


def test_a_ledger_without_a_release_is_refused(privacy, capsys):
    path = privacy(lambda d: d["ledger"].update(entries=[], head=GENESIS))
    assert cli.main(["account", "--ledger", str(path)]) == 2
    assert "no releases" in capsys.readouterr().err


def test_an_exact_epsilon_of_zero_needs_no_ratio(capsys):
    assert cli.main(["account", "--mu", "1e-4", "--delta", "0.01"]) == 0
    assert "valid" in capsys.readouterr().out


def test_a_tiny_epsilon_leaves_room_for_the_names(capsys):
    # Seventy zeros pushed titles and headers out of the table.
    assert cli.main(["account", "--mu", "1e-12"]) == 0
    text = capsys.readouterr().out
    assert "4.79853e-12" in text
    assert "exact Gaussian DP " in text
