"""A site's policy counts alike in every command, whether it is typed or named by CAPE_SITE_POLICY.

``cape simulate`` and ``cape policy`` ignored the variable that ``cape ledger`` and ``cape forget``
obeyed: a run that the policy forbids went on, and nothing was charged, without a word.
"""

import re
from pathlib import Path

import pytest

from cape.cli import main
from cape.settings.documents import toml_text
from cape.site.ledger_file import LifetimeLedgerFile
from support import consortium as helper
from support import spending
from support.ledger_model import cost

SETTINGS = helper.settings_of("capemean", computation="capemean", n_sites=3)
COMMANDS = {
    "policy": ["policy"],
    "promise": ["promise", "--settings", "settings.toml"],
    "validate": ["validate", "data/local0", "--settings", "settings.toml"],
    "simulate": ["simulate", "data", "--out", "out", "--quiet"],
    "ledger": ["ledger"],
    "forget": ["forget", "sub-01"],
}


def free(text: str) -> str:
    """Return a text without how much memory this computer has now."""
    return re.sub(r"\d+ MB free", "", text)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pages: None) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CAPE_SITE_POLICY", "CAPE_SITE_HOME"):
        monkeypatch.delenv(name, raising=False)
    helper.write_data(tmp_path / "data")
    (tmp_path / "settings.toml").write_text(toml_text(SETTINGS))
    site = tmp_path / "site"
    site.mkdir()
    text = 'max_run = [[0.5, 1e-5]]\nmax_total = [[3, 1e-5]]\nledger_file = "ledger.jsonl"\n'
    (site / "policy.toml").write_text(text)
    ledger = LifetimeLedgerFile(path=site / "ledger.jsonl", site="B")
    ledger.join(spending.run("5c" * 16), cost(1))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_policy_of_the_variable_is_a_policy_that_is_typed(
    study: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, words = "site/policy.toml", COMMANDS[name]
    without = main(words), capsys.readouterr().out
    typed = [*words, policy] if name == "policy" else [*words, "--policy", policy]
    named = main(typed), capsys.readouterr().out
    monkeypatch.setenv("CAPE_SITE_POLICY", policy)
    by_variable = main(words), capsys.readouterr()
    assert free(by_variable[1].out) == free(named[1])
    assert by_variable[0] == named[0]
    assert without != named  # the policy decides
    if name != "simulate":  # --quiet
        assert f"CAPE_SITE_POLICY names the policy {policy}" in by_variable[1].err


@pytest.mark.parametrize("more", ["", 'ledger_file = "none"\n'])
def test_a_policy_that_keeps_no_ledger_says_that_nothing_is_charged(
    study: Path, more: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (study / "none.toml").write_text(f"max_run = []\nmax_total = []\n{more}")
    words = ["simulate", "data", "--out", "out", "--quiet", "--policy", "none.toml"]
    assert main(words) == 0
    assert "nothing is charged: none.toml names no ledger_file" in capsys.readouterr().err
    if not more:  # then the ledger of the site's home is
        monkeypatch.setenv("CAPE_SITE_HOME", str(study / "home"))
        assert main([*words, "--replace"]) == 0
        assert "nothing is charged" not in capsys.readouterr().err
        assert main(["ledger"]) == 0
        assert "finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('allow_computations = ["capemeen"]', "capemeen is no computation"),
        ("max_total = [[2, 1e-5]]", "no run of max_run begins"),
        ("max_run = [[2, 1e-2]]", "max_delta 0.001 refuses a run of 2 at delta 0.01"),
        ('ledger_file = "none"', "nothing is charged"),
        ("max_total = []", "any number of runs"),
        ("allow_not_private = true", "protect nobody"),
        ("veto = true", "every run is refused"),
    ],
)
def test_what_a_policy_may_not_mean_is_asked(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    assert main(["policy", str(path)]) == 0
    assert said in " ".join(capsys.readouterr().err.split())
    assert main(["policy"]) == 0
    assert capsys.readouterr().err == ""
