"""docs/json.md: every command prints for machines what the page says, and nothing else.

Belongs to `cape/cli/common.py`.
"""

import json
import re
from pathlib import Path

import pytest

from cape.cli import main
from cape.cli.commands import COMMANDS

PAGE = (Path(__file__).parents[3] / "docs/json.md").read_text(encoding="utf-8")
RUN = "--epsilon 300 --delta 1e-5 --set n_rounds=1"


def fields_of(pattern: str) -> set[str]:
    """Return the fields in the one place of the page that this finds."""
    (cells,) = re.findall(pattern, PAGE, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cells)))


def promised(row: str) -> set[str]:
    return fields_of(rf"^\| [^|]*`{re.escape(row)}`[^|]* \| (.+) \|$")


def promised_event(kind: str) -> set[str]:
    name, _, rest = kind.partition(" ")
    start = re.escape(f"| `{name}`{' ' + rest if rest else ''} | ")
    return fields_of(rf"^{start}(.+) \|$")


def said(capsys: pytest.CaptureFixture[str], words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    main([*words.split(), "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_command_prints_what_the_page_promises(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels.tsv").write_text("index\tname\n1\tA_L\n2\tA_R\n")
    lines = {
        "synth": "synth study --preset paper --site-sizes 4,4,4 --timepoints 30 --networks 2",
        "validate": "validate study",
        "simulate": f"simulate study --out out {RUN}",
        "report": "report out",
        "budget": "budget --subjects 400 --sites 4 --epsilon 2",
        "budget --check": "budget --check out/consortium/privacy.json",
        "policy": "policy",
        "promise": "promise --settings study/settings.toml --set epsilon=1 --set delta=1e-5",
        "forget": "forget sub-001 out",
        "pairs": "pairs labels.tsv",
        "keygen --site": "keygen --site a --out key",
        "keygen --collect": "keygen --collect a.key.json --out roster.json",
        "compspec": "compspec --image a/coinstac-b --out forms",
        "account": "account --mu 0.5",
    }
    for row, words in lines.items():
        *before, result = said(capsys, words)
        fields = set(result)
        if row == "simulate":
            results = json.loads((tmp_path / "out/consortium/results.json").read_text())
            fields -= set(results)
        assert fields == promised(row), row
        assert result["event"] == "result"
        for line in before:
            kind = str(line["event"])
            if kind == "progress":
                of_run = " of a stage" if "stage" in line else " of a run"
                kind += " of a check" if row == "validate" else of_run
                assert set(line) == promised_event(kind)
            elif kind == "site":
                assert set(line) == fields_of(r"event `site`: ((?s:.)+?)\.\n")
            else:
                assert set(line) == promised_event(kind)
    (error,) = said(capsys, "simulate study --out out")
    assert set(error) == promised_event("error")


def test_every_command_has_a_row() -> None:
    for command in set(COMMANDS) - {"completion"}:
        assert re.search(rf"^\| [^|]*`{command}[` ]", PAGE, re.MULTILINE), command
