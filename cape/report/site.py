"""What stays at one site: time courses of its own subjects, its ledger, a private page.

Nothing here is ever sent; the folder is called `private` so that nobody copies it by accident.
"""

from __future__ import annotations

import re
from pathlib import Path

from cape.computations._results import SiteOutcome
from cape.report import files, plain
from cape.report.blocks import Block, Bullets, Grid, Page, Section, Text

STRIP = "PRIVATE, DO NOT SHARE: this page and this folder hold data of single subjects."


def write_site_files(folder: Path, site: SiteOutcome) -> Path:
    """Write `private/` in `folder` and return the path of its page."""
    private = folder / "private"
    private.mkdir(parents=True, exist_ok=True)
    subjects = tuple(_time_courses(private, site))
    ledger = {"head": site.ledger.head, "entries": list(site.ledger.entries())}
    files.write_json(private / "ledger.json", {"site": site.site, **ledger})
    page = private / "index.html"
    files.write_text(page, plain.html(_page(site, subjects), hint=""))
    return page


def file_stem(label: str) -> str:
    """Return `sub-<label>` with nothing in it that a file name should not have."""
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-") or "unnamed"
    return clean if clean.startswith("sub-") else f"sub-{clean}"


def _time_courses(private: Path, site: SiteOutcome) -> list[tuple[str, str, str]]:
    """Write one table per subject; return (label, file, time points) of each."""
    written: list[tuple[str, str, str]] = []
    taken: set[str] = set()
    for label, courses in site.time_courses:
        stem, number = file_stem(label), 1
        while f"{stem}{'' if number == 1 else f'-{number}'}" in taken:
            number += 1
        stem += "" if number == 1 else f"-{number}"
        taken.add(stem)
        name = f"{stem}_timecourses.tsv"
        lines = ["\t".join(site.names)]
        lines += ["\t".join(format(x, ".7g") for x in row) for row in courses.T.tolist()]
        files.write_text(private / name, "\n".join(lines) + "\n")
        written.append((label, name, str(courses.shape[1])))
    return written


def _all_runs(site: SiteOutcome) -> tuple[Block, ...]:
    """Return what all runs on the same people have spent, if the site keeps a ledger of them."""
    total = site.all_runs
    if total is None:
        return ()
    if total.epsilon is None:
        text = "A run on these people carried no noise that counts: together they promise nothing."
        return (Text(text=text, tone="warning"),)
    runs = "this run" if total.runs == 1 else f"all {total.runs} runs"
    return (
        Text(text=f"Over {runs} on the same people: epsilon {total.epsilon:.6g} at delta "
             f"{total.delta:g} (mu {total.mu:.6g})."),
    )  # fmt: skip


def _page(site: SiteOutcome, subjects: tuple[tuple[str, str, str], ...]) -> Page:
    """Return the page: subjects, releases, what to do with the folder."""
    grid = Grid(caption="Subjects of this site", header=("subject", "file", "time points"),
                rows=subjects, numeric_from=2)  # fmt: skip
    phases = dict.fromkeys(event.phase for event in site.ledger.events)
    counts = tuple((p, str(sum(e.phase == p for e in site.ledger.events))) for p in phases)
    released = Grid(caption="Releases that this site took part in", header=("phase", "releases"),
                    rows=counts)  # fmt: skip
    budget, spent = site.ledger.budget, site.ledger.epsilon_spent()
    if budget is None or spent is None:
        cost: Block = Text(text="The run carried no noise: nothing is promised.", tone="warning")
    else:
        cost = Text(text=(
            f"Charged at this site: epsilon {spent:.6g} at delta {budget.delta:g}, "
            f"of {budget.epsilon:g} allowed."
        ))  # fmt: skip
    costs: tuple[Block, ...] = (cost, *_all_runs(site))
    advice: tuple[str, ...] = (
        "Keep this folder where the images are kept; the same rules apply.",
        "Time courses are computed from the common unmixing matrix and the data of this site. "
        "No privacy guarantee covers them.",
        "What may be shared is the consortium's index.html and the files beside it.",
    )
    status = f"Status of the run: {site.outcome_status.replace('_', ' ')}."
    courses: tuple[Block, ...] = (Text(text=status), grid)
    if not site.names:  # a computation without anything for single subjects
        advice = (advice[0], advice[2])
        courses = (Text(text="This computation has no results for single subjects."),)
    rules = Bullets(title="Rules", items=advice)
    return Page(
        title=f"Private results of site {site.site}",
        label="",
        banners=(("danger", STRIP),),
        sections=(
            Section(anchor="subjects", title="Time courses", blocks=courses),
            Section(anchor="ledger", title="Ledger of this site", blocks=(*costs, released)),
            Section(anchor="advice", title="Handling", blocks=(rules,)),
        ),
    )
