"""The private page of one site, made from the files of its folder and from nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cape.privacy.accounting import display_epsilon
from cape.report import files, page_html, site_results
from cape.report.files import MISSING
from cape.report.page import setting_text
from cape.report.page_model import Block, Bullets, Card, Fold, Grid, Page, Section, Text
from cape.report.site_folder import SiteFolder

STRIP = "PRIVATE, DO NOT SHARE: this page and this folder hold data of single subjects."
SHORT = 12
"""Rows that are shown; a longer table is folded."""

RULES = (
    "Keep this folder where the images are kept; the same rules apply.",
    "Time courses, maps, spectra and connectivity of single subjects are computed here from the "
    "common unmixing matrix and the data of this site. No privacy guarantee covers them.",
    "What may be shared is the consortium's index.html and the files beside it.",
)

FILES = {
    "subjects.tsv": "files, time points, TR, coverage, rank, verdict, factor of clipping",
    "checks.tsv": "everything the checks found, with file names",
    "sub-*_timecourses.tsv": "time courses S_m = W_total X_m, one column per component",
    "sub-*_maps.nii.gz / .csv": "z-maps of each subject by least squares of its time courses",
    "fnc.tsv": "Fisher z of the correlation of every two time courses",
    "spectra.tsv": "power density of every time course",
    "map_agreement.tsv": "correlation of every subject's maps with the common ones",
    "sent.jsonl": "every reply of this site: fields, bytes, SHA-256",
    "ledger.json": "every charge, as a hash chain",
    "site.json": "status, policy and settings, for this page",
}


def write_page(folder: Path) -> Path:
    """Write index.html from the other files of a private folder and return its path."""
    target = folder / "index.html"
    text = page_html.rendered(lambda drawn: compose(SiteFolder.read(folder, drawn=drawn)))
    files.write_text(target, text)
    return target


def compose(folder: SiteFolder) -> Page:
    """Return the page as plain records."""
    sections = (
        Section(anchor=anchor, title=title, blocks=write(folder))
        for anchor, title, write in CHAPTERS
    )
    return Page(
        title=f"Private results of site {folder.about['site']}",
        label="",
        banners=(("danger", STRIP),),
        cards=_cards(folder),
        sections=tuple(section for section in sections if section.blocks),
    )


def _cards(folder: SiteFolder) -> tuple[Card, ...]:
    about = folder.about
    left_out = len(folder.subjects) - len(folder.accepted)
    spent, delta = about["epsilon_spent"], about["delta"]
    note = "the run carried no noise" if spent is None else f"at delta {delta:g}, charged here"
    return (
        Card(title="Subjects", value=str(len(folder.accepted)), note=f"{left_out} left out"),
        Card(title="Status", value=str(about["status"]).replace("_", " "), note="of the run"),
        Card(title="Epsilon", value=display_epsilon(spent), note=note),
        Card(title="Replies", value=str(len(folder.sent)), note="left this site"),
        Card(title="Keys", value=str(about["fingerprint"])[:8] or "-",
             note="roster fingerprint, computed here"),
    )  # fmt: skip


def _subjects(folder: SiteFolder) -> tuple[Block, ...]:
    if not folder.names:
        return (Text(text="This computation has no results for single subjects."),)
    heads = {name: HEADS.get(name, name.replace("clip_", "clip ")) for name in _columns(folder)}
    rows = tuple(tuple(_short(name, row[name]) for name in heads) for row in folder.subjects)
    count = f"{len(folder.accepted)} of {len(rows)} subjects took part"
    grid = Grid(caption=f"Subjects: {count}", header=tuple(heads.values()), rows=rows,
                numeric_from=2)  # fmt: skip
    long = len(rows) > SHORT
    text = f"{count}. Why others did not stands under Checks. Clip: the factor on the answer."
    return (Text(text=text), Fold(summary=f"All {len(rows)} subjects", grid=grid) if long else grid)


def _columns(folder: SiteFolder) -> list[str]:
    """Return the columns of subjects.tsv that say something; the verdict comes second."""
    if not folder.subjects:
        return ["subject"]
    first, *others = folder.subjects[0]
    told = [name for name in others if any(row[name] != MISSING for row in folder.subjects)]
    if all(row["label"] == row["subject"] for row in folder.subjects):
        told.remove("label")
    told.remove("verdict")
    return [first, "verdict", *told]


HEADS = {"timepoints": "time points", "tr": "TR, s"}


def _short(name: str, text: str) -> str:
    if text == MISSING:
        return "-"
    if name == "coverage":
        return f"{100 * float(text):.0f} %"
    return f"{float(text):.2f}" if name.startswith("clip_") else text


def _checks(folder: SiteFolder) -> tuple[Block, ...]:
    if not folder.checks:
        return (Text(text="The checks found nothing to report."),)
    said = {"E": "stops", "X": "left out", "W": "warning"}
    rows = tuple((c["code"], said.get(c["severity"], c["severity"]), c["text"])
                 for c in folder.checks)  # fmt: skip
    return (Grid(caption="Findings, worst first", header=("code", "severity", "what was found"),
                 rows=rows, numeric_from=3),)  # fmt: skip


def _clipping(folder: SiteFolder) -> tuple[Block, ...]:
    phases = [name for name in (folder.subjects or [{}])[0] if name.startswith("clip_")]
    rows = []
    for name in phases:
        factors = np.array([float(row[name]) for row in folder.accepted if row[name] != MISSING])
        if factors.size:
            share = 100 * float(np.mean(factors < 1.0))
            cells = f"{share:.0f} %", f"{np.median(factors):.2f}", f"{factors.min():.2f}"
            rows.append((name.removeprefix("clip_"), *cells))
    if not rows:
        return ()
    text = (
        "Every subject's answer is shortened to a public bound before it is summed. This is how "
        "much under the final state of the run, with the bound of the last round; 1 is untouched. "
        "In the solver rounds most answers are shortened on purpose: a tight bound needs less "
        "noise. A bound must never be chosen by looking at these numbers."
    )
    grid = Grid(caption="Clipping by phase", rows=tuple(rows),
                header=("phase", "subjects shortened", "median factor", "smallest"))  # fmt: skip
    return (Text(text=text), grid)


def _sent(folder: SiteFolder) -> tuple[Block, ...]:
    if not folder.sent:
        return ()
    text = (
        "All that left this site in this run, by kind of message; masked sums look like random "
        "numbers to everybody who lacks the masks of the other sites. Each reply is listed in "
        "sent.jsonl with the SHA-256 of its bytes; the closing reply, which carries no data, is "
        "added there after this page was written."
    )
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in folder.sent:
        kinds.setdefault((str(line["phase"]), str(line["message"])), []).append(line)
    rows = tuple(
        (phase, message, ", ".join(lines[0]["fields"]), str(len(lines)),
         f"{sum(int(line['bytes']) for line in lines):,}")
        for (phase, message), lines in kinds.items()
    )  # fmt: skip
    grid = Grid(caption="What left this site", numeric_from=3, rows=rows,
                header=("phase", "message", "fields", "replies", "bytes"))  # fmt: skip
    return (Text(text=text), grid)


def _ledger(folder: SiteFolder) -> tuple[Block, ...]:
    about = folder.about
    spent, allowed = about["epsilon_spent"], about["epsilon_allowed"]
    if allowed is None or spent is None:
        cost: Block = Text(text="The run carried no noise: nothing is promised.", tone="warning")
    else:
        cost = Text(text=(
            f"Charged at this site: epsilon {spent:.6g} at delta {about['delta']:g}, of "
            f"{allowed:g} allowed. This is for this run alone; runs on the same data add up as "
            "mu squared (cape budget --check with all their privacy.json)."
        ))  # fmt: skip
    rows = tuple((phase, str(count)) for phase, count in about["releases"].items())
    grid = Grid(caption="Releases that this site took part in", rows=rows,
                header=("phase", "releases"))  # fmt: skip
    return (cost, *_all_runs(about["all_runs"]), grid)


def _all_runs(total: dict[str, Any] | None) -> tuple[Block, ...]:
    """Return what all runs on the same people have spent, if the site keeps a ledger of them."""
    if total is None:
        return ()
    if total["epsilon"] is None:
        text = "A run on these people carried no noise that counts: together they promise nothing."
        return (Text(text=text, tone="warning"),)
    runs = "this run" if total["runs"] == 1 else f"all {total['runs']} runs"
    text = (
        f"Over {runs} on the same people: epsilon {total['epsilon']:.6g} at delta "
        f"{total['delta']:g} (mu {total['mu']:.6g})."
    )
    return (Text(text=text),)


def _handling(folder: SiteFolder) -> tuple[Block, ...]:
    rules = RULES if folder.names else (RULES[0], RULES[2])
    blocks: list[Block] = [Bullets(title="Rules", items=rules)]
    if policy := folder.about["policy"]:
        rows = tuple((name, _limit(name, value)) for name, value in policy.items())
        blocks.append(Grid(caption="Policy of this site, in force", header=("key", "value"),
                           rows=rows, numeric_from=2))  # fmt: skip
    blocks.append(Grid(caption="Files beside this page", header=("file", "content"),
                       rows=tuple(FILES.items()), numeric_from=2))  # fmt: skip
    return tuple(blocks)


def _limit(name: str, value: object) -> str:
    """Return what a site allows in words: what is not set is no limit, not the number 0 or -1."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "any"
    unset = value == "" or (name.startswith("max_") and value == 0)
    if unset or (name == "simulation_seed" and value == -1):
        return "none"
    return setting_text(value)


CHAPTERS: tuple[tuple[str, str, Callable[[SiteFolder], tuple[Block, ...]]], ...] = (
    ("subjects", "Subjects", _subjects),
    ("checks", "Checks", _checks),
    ("clipping", "Clipping", _clipping),
    ("courses", "Time courses", site_results.time_courses),
    ("spectra", "Spectra", site_results.spectra),
    ("connectivity", "Network connectivity", site_results.connectivity),
    ("maps", "Maps of single subjects", site_results.maps),
    ("sent", "What left this site", _sent),
    ("ledger", "Ledger of this site", _ledger),
    ("handling", "Handling", _handling),
)
"""The page from top to bottom: anchor, title, writer."""
