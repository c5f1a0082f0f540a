"""From images to an answer in two commands, as typed; the second is paid beside the first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from cape.cli import main
from cape.site.ledger_file import read_ledger

POLICY = """ledger_file = "ledger.jsonl"
public_counts = ["dx"]
max_run = []
max_total = []
"""


def test_two_commands_lead_from_images_to_an_answer(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    synth = "synth study --preset groups --sites 3 --subjects 75 --timepoints 50 --networks 3"
    assert main(f"{synth} --quiet".split()) == 0
    Path("policy.toml").write_text(POLICY)
    budget = "--policy policy.toml --epsilon 300 --delta 1e-5 --quiet"
    assert main(f"simulate study --out out {budget}".split()) == 0
    again = "--computation capecontrast --maps out/consortium --out answer --set test=each"
    again += " --set accept_low_quality=true"  # 75 people
    assert main(f"simulate study {again} {budget}".split()) == 0
    maps = json.loads(Path("out/consortium/results.json").read_text())
    assert maps["computation"] == "capegica"
    with Path("answer/consortium/effects.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    # One of three edges is planted, at -.2 of Fisher z. The people are the same in each run:
    # only privacy noise differs. In 4 runs the planted one came out at -.234 (sd .013) and the
    # next at -.084 (sd .011): the bound stands six sd from both.
    estimates = sorted(float(row["estimate"]) for row in rows)
    assert estimates[0] < -0.155 < estimates[1]
    # The same people paid for both.
    runs = read_ledger(tmp_path / "ledger.jsonl").runs
    paid = {name: set() for name in ("capegica", "capecontrast")}
    for run in runs:
        paid[run.computation] |= {*run.people}
    assert len(paid["capegica"]) == 75
    assert paid["capecontrast"] == paid["capegica"]
