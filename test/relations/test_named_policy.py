"""A site's policy counts alike in every command, whether it is typed or named by CAPE_SITE_POLICY.

``cape simulate`` and ``cape policy`` ignored the variable that ``cape ledger`` and ``cape forget``
obeyed: a run that the policy forbids went on, and nothing was charged, without a word.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.cli import main
from cape.settings.documents import toml_text
from cape.site.ledger_file import LifetimeLedgerFile, read_ledger
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


def arrays() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(1)
    maps = rng.standard_normal((2, 6))
    return {site: [rng.laplace(size=(40, 2)) @ maps for _ in range(6)] for site in "ab"}


def frame() -> dict[str, list]:
    dx = ["SZ", "control"] * 30
    return {"dx": dx, "volume": [4.0 + (k % 7) / 10 for k in range(len(dx))]}


FEW = {"n_components": 2, "n_rounds": 2, "min_timepoints": 40, "accept_low_quality": True}
ASKED = {"variables": {"dx": ["control", "SZ"]}, "outcomes": {"volume": (3, 6)}, "public": "dx"}
DOORS = {
    "simulate": lambda e: cape.simulate("data", out=f"out{e}", epsilon=e, delta=1e-5),
    "Consortium": lambda e: cape.Consortium(arrays()).run(epsilon=e, settings=FEW),
    "JointICA": lambda e: cape.JointICA(2, epsilon=e, settings=FEW).fit(
        [X for people in arrays().values() for X in people], groups=["a"] * 6 + ["b"] * 6
    ),
    "compare_groups": lambda e: cape.compare_groups(
        frame(), "dx", epsilon=e, settings={"accept_low_quality": True}, **ASKED
    ),
}


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
@pytest.mark.parametrize("name", DOORS)
def test_python_obeys_the_policy_of_the_variable_and_says_so(
    study: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All four ran without a word: no limit held, and no ledger was written.
    text = 'max_run = [[3, 1e-5]]\nmax_total = [[2.5, 1e-5]]\nledger_file = "own.jsonl"\n'
    text += 'min_subjects = 2\nmin_group = 2\npublic_counts = ["dx"]\nallow_local_noise = true\n'
    (study / "site" / "policy.toml").write_text(text)
    monkeypatch.setenv("CAPE_SITE_POLICY", "site/policy.toml")
    door, ledger = DOORS[name], study / "site" / "own.jsonl"
    with pytest.raises(cape.CapeError, match="E154"):
        door(4.0)
    assert not ledger.exists()
    with pytest.warns(cape.CapeWarning, match=r"names the policy .*own.jsonl charges this run"):
        door(2.0)
    runs = read_ledger(ledger).runs
    assert {run.state for run in runs} == {"finished"}
    assert all(0 < run.cost.epsilon(1e-5) <= 2 and run.people for run in runs)
    with pytest.raises(cape.CapeError, match="E154"):  # the same people once more
        door(1.9)
    assert read_ledger(ledger).runs == runs


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
@pytest.mark.parametrize("first", ["list", "folder"])
def test_a_list_of_files_and_their_folder_are_the_same_people(
    study: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total held for each by itself: a list was known by its values, a folder by its bytes."""
    text = 'max_run = [[3, 1e-5]]\nmax_total = [[2.5, 1e-5]]\nledger_file = "own.jsonl"\n'
    (study / "site" / "policy.toml").write_text(
        f"{text}min_subjects = 2\nallow_local_noise = true\n"
    )
    monkeypatch.setenv("CAPE_SITE_POLICY", "site/policy.toml")
    (study / "roi").mkdir()
    rng = np.random.default_rng(4)
    for k in range(6):
        X = rng.laplace(size=(60, 2)) @ rng.standard_normal((2, 8))
        np.savetxt(study / "roi" / f"sub-{k:02}.csv", X, delimiter=",")
    ways = {"list": sorted((study / "roi").iterdir()), "folder": study / "roi"}
    how = {"n_rounds": 2, "n_looks": 1, "min_timepoints": 30, "accept_low_quality": True}
    cape.JointICA(2, epsilon=2.0, settings=how).fit(ways.pop(first))
    (other,) = ways.values()
    with pytest.raises(cape.CapeError, match="E154"):
        cape.JointICA(2, epsilon=1.9, settings=how).fit(other)


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
def test_a_run_of_arrays_that_is_stopped_holds_no_budget(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'max_run = []\nmax_total = []\nmin_subjects = 2\nledger_file = "own.jsonl"\n'
    (study / "site" / "policy.toml").write_text(text)
    monkeypatch.setenv("CAPE_SITE_POLICY", "site/policy.toml")

    def stop(line: object) -> None:
        if read_ledger(study / "site" / "own.jsonl").runs[0].charges:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cape.Consortium(arrays()).run(epsilon=2.0, settings=FEW, on_progress=stop)
    states = [run.state for run in read_ledger(study / "site" / "own.jsonl").runs]
    assert len(states) == 2
    assert "held" not in states


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
