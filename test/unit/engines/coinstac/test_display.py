"""The result table and the form of COINSTAC's application: words, and settings and back."""

import json
import tomllib
from pathlib import Path

import pytest

from cape.cli import main
from cape.engines.coinstac import display, form
from cape.errors import CapeError, ConfigError
from cape.settings.config import FRONT
from support import comparison_example
from support import report_example as example

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("private", [True, False])
def test_the_summary_is_flat_words_and_numbers(private: bool) -> None:
    """The application shows a truth value as nothing and breaks on a list."""
    summary = display.summary(example.outcome(private=private))
    assert all(type(value) in (str, float) for value in summary.values())
    json.dumps(summary, allow_nan=False)
    assert summary["private"] == ("yes" if private else "no")
    assert (summary["epsilon"] == "-") == (not private)
    assert summary["n_subjects"] == "1,024"  # as a number it is written 1.0240e+3


@pytest.mark.parametrize("status", display.STATUS)
def test_a_status_is_said_in_words(status: str) -> None:
    made = example.outcome(status=status)
    said = str(display.summary(made)["status"])
    assert "_" not in said
    if made.verdict is None:
        assert said == display.STATUS[status]
    elif status == "converged":
        assert said == "3 of 3 confirmed"
    else:
        assert said == f"0 of 3 confirmed: {display.STATUS[status]}"


def test_every_component_has_the_declared_rows_rounded_for_reading() -> None:
    tables = display.tables(example.outcome())
    # Without "Global" the application calls a table "Local".
    assert list(tables) == ["Global C01", "Global C02", "Global C03"]
    for row in tables.values():
        assert list(row) == list(display.COMPONENT)
        assert row["share"] == float(f"{row['share']:.4g}")
        assert str(row["peak"]).endswith((" mm", *"0123456789"))


def test_a_match_of_chance_is_a_dash_and_no_name() -> None:
    assert display.shown(None) == display.NO_VALUE
    labels = [row["label"] for row in display.tables(example.outcome()).values()]
    assert all(label == display.NO_VALUE or "chance" not in str(label) for label in labels)


def test_a_form_becomes_settings_and_comes_back() -> None:
    inputs = form.read_form(ROOT / "inputspec.json")
    text = form.settings_text(inputs)
    assert text.startswith(f"# From the form of {FRONT}")
    assert "accept_low_quality = true\n" in text
    assert "data" not in text
    assert "min_sites" not in text, "what was left as it is need not be read"
    first = json.loads((ROOT / "inputspec.json").read_text())[0]
    own = {name: entry for name, entry in first.items() if name not in ("data", "policy")}
    assert form.settings_text(own) == text
    assert form.settings_text({**own, "expert": {"value": True}}) == text


def test_the_command_turns_forms_into_settings_and_back(tmp_path: Path, capsys) -> None:
    target = tmp_path / "settings.toml"
    assert main(["settings", str(ROOT / "inputspec.json"), "--out", str(target)]) == 0
    capsys.readouterr()
    assert main(["settings", str(target)]) == 0
    back = json.loads(capsys.readouterr().out)
    first = json.loads((ROOT / "inputspec.json").read_text())[0]
    assert back == {n: entry for n, entry in first.items() if n not in ("data", "policy")}
    assert main(["settings", str(target), "--json"]) == 0
    assert json.loads(json.loads(capsys.readouterr().out)["text"]) == back
    # The table of another computation is for that one, as in all commands; it was "unknown".
    # A form without n_sites was told to type a --set that the command refused.
    form_of_nobody = tmp_path / "form.json"
    unsaid = {"n_sites": {"value": 0}, "site_names": {"value": ""}}
    form_of_nobody.write_text(json.dumps(back | unsaid))
    words = ["settings", str(form_of_nobody)]
    assert main(words) == 2
    assert "Type: --set n_sites=VALUE" in capsys.readouterr().err
    assert main([*words, "--set", "n_sites=3"]) == 0
    assert "n_sites = 3\n" in capsys.readouterr().out
    with target.open("a") as stream:
        stream.write("[capemean]\nn_bins = 7\n")
    assert main(["settings", str(target)]) == 0
    assert json.loads(capsys.readouterr().out) == back
    assert main(["settings", str(target), "--set", "tr=2"]) == 0
    assert json.loads(capsys.readouterr().out) == back | {"tr": {"value": 2.0}}


@pytest.mark.parametrize(
    ("line", "words", "code"),
    [
        ("epsilon = 0.1", ["--subjects", "40"], "CAPE-E150"),
        ("epsilon = 1", ["--subjects", "10"], "CAPE-E130"),
        ("epsilon = 1\nassumed_colluders = 4", [], "CAPE-E152"),
    ],
)
@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_settings_that_would_end_at_the_sites_are_refused(
    line: str, words: list[str], code: str, suffix: str, tmp_path: Path, capsys
) -> None:
    """A form of them was made, and the run ended in its first exchange, or after it was paid."""
    source, target = tmp_path / f"given{suffix}", tmp_path / "made"
    source.write_text(f'computation = "capedjica"\n{line}\ndelta = 1e-5\nn_sites = 4\n')
    if suffix == ".json":
        values = tomllib.loads(source.read_text())
        source.write_text(json.dumps({name: {"value": value} for name, value in values.items()}))
    assert main(["settings", str(source), "--out", str(target), *words]) != 0
    assert code in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    "line",
    [
        'aggregation = "secagg"',
        'bids_filter = "task-rest"',
        'computation = "capecca"\nsmoothing_fwhm = 5',
    ],
)
def test_a_setting_that_the_form_does_not_have_is_refused(line, tmp_path, capsys) -> None:
    """It once was written into a form that has no such input, and lost there."""
    target = tmp_path / "settings.toml"
    target.write_text(f"{line}\nepsilon = 1\ndelta = 1e-5\nn_sites = 4\n")
    assert main(["settings", str(target)]) == 2
    name = line.rpartition("\n")[2].partition(" ")[0]
    assert f"CAPE-E011 {name}=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ([], "E011"),
        ({"epsilon": 8}, "E011"),
        ([{"epsilon": {"value": 8}}, {"epsilon": {"value": 9}}], "E011"),
        ([{"epsilon": {"value": 8}}, {}], "E011"),
        ({"epsilon": {"value": 8}}, "E013"),
        ({"epsilon": {"value": 8}, "delta": {"value": 1e-5}, "no_such": {"value": 1}}, "E010"),
        ("text", "E011"),
    ],
)
def test_what_is_no_form_is_refused_with_a_reason(document: object, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        form.settings_text(document)
    assert caught.value.code == f"CAPE-{code}"


@pytest.mark.parametrize("text", ["", "{", '{"a": {"value": 1}, "a": {"value": 2}}', "[" * 10**5])
def test_a_file_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    """A key twice: two readers would take two values."""
    file = tmp_path / "form.json"
    file.write_text(text)
    with pytest.raises(CapeError, match="E014"):
        form.read_form(file)


def test_a_comparison_is_its_sentence_and_its_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    names = comparison_example.NAMES
    rows = [comparison_example.effect(name, -0.5) for name in names]
    result = comparison_example.compared(rows, comparison_example.FIVE)
    made = comparison_example.outcome(result, monkeypatch)
    summary, tables = display.summary(made), display.tables(made)
    assert str(summary["status"]).startswith("SZ and control differ in all 5")
    assert list(tables) == [f"Global {name}, SZ - control" for name in names]
    for row in tables.values():
        assert list(row) == list(display.EFFECT_ROWS)
        assert all(isinstance(value, str | int | float) for value in row.values())


def test_a_table_that_cannot_be_made_says_so_in_every_row_of_the_summary() -> None:
    """An error in a table of the application ended a run whose results were written."""
    rows = display.unshown(example.outcome(), KeyError("somebody"))
    assert set(rows) >= set(display.SUMMARY)
    assert "could not be made (KeyError): see index.html" in str(rows["status"])
    assert "somebody" not in json.dumps(rows)
