"""The private page of one site, made from the files of its folder alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.counting import number_of
from cape.report import brain, files, page, plots
from cape.report.comparison import asked_in
from cape.report.derivatives import MAPS, folder_of
from cape.report.files import EMPTY_CELL
from cape.report.network_maps import Drawer, networks_of_site
from cape.report.page import Values
from cape.report.plots import Picture
from cape.report.private_folder import PEOPLE_TABLE, PrivateFolder
from cape.settings.question import Question
from cape.space.feature_space import is_mni

# Numbers of subjects and components with pictures, and of subjects whose maps are drawn
DRAWN, DRAWN_MAPS = 10, 3


def render_site(folder: Path) -> Path:
    source = PrivateFolder.read(folder)
    values = {
        "about": source.about,
        "names": source.names,
        "subjects": source.subjects,
        "accepted": source.accepted,
        "checks": source.checks,
        "replies": len(source.sent),
    }
    return page.write_page(folder, "site/page.html.j2", SITE_CHAPTERS, source, values)


def _subjects(folder: PrivateFolder, drawn: bool) -> Values | None:
    if not folder.names:
        return None
    columns = _columns(folder)
    return {
        "columns": columns,
        "rows": [[_cell(name, row[name]) for name in columns] for row in folder.subjects],
        "picture": _subjects_picture(folder) if drawn else None,
    }


def _subjects_picture(folder: PrivateFolder) -> Picture | None:
    """Draw what differs between the scans of the accepted subjects; None: nothing does."""
    words = {"coverage": "coverage", "tsnr": "tSNR", "mean_fd": "mean FD, mm", "minutes": "minutes"}
    texts = {word: [row[name] for row in folder.accepted] for name, word in words.items()}
    figures = {
        word: np.array(cells, dtype=np.float64)
        for word, cells in texts.items()
        if EMPTY_CELL not in cells and len(set(cells)) > 1
    }
    labels = [row["subject"] for row in folder.accepted]
    return plots.draw_subjects(labels, figures) if figures else None


def _columns(folder: PrivateFolder) -> list[str]:
    if not folder.subjects:
        return ["subject"]
    first, *others = folder.subjects[0]
    if all(row["label"] == row["subject"] for row in folder.subjects):
        others.remove("label")
    # Readers look for the verdict: it comes second.  Long file names come last, after the figures.
    rest = [name for name in others if name not in ("verdict", "files")]
    return [first, "verdict", *rest, "files"]


def _cell(name: str, text: str) -> str:
    if text == EMPTY_CELL:
        return "-"
    if name == "coverage":
        return f"{100 * float(text):.0f} %"
    if name == "minutes":
        return f"{float(text):.1f}"
    if name == "tsnr":
        return f"{float(text):.4g}"
    return f"{float(text):.2f}" if name.startswith(("clip_", "mean_fd")) else text


def _clipping(folder: PrivateFolder, drawn: bool) -> Values | None:
    rows = []
    # Excluded subjects contribute zeros, which are not clipped.
    for name in folder.accepted[0] if folder.accepted else ():
        texts = [row[name] for row in folder.accepted if row[name] != EMPTY_CELL]
        if name.startswith("clip_") and texts:
            factors = np.array(texts, dtype=np.float64)
            share = f"{100 * float(np.mean(factors < 1.0)):.0f} %"
            smallest = f"{factors.min():.2f}"
            rows.append((name.removeprefix("clip_"), share, f"{np.median(factors):.2f}", smallest))
    return {"rows": rows} if rows else None


def _time_courses(folder: PrivateFolder, drawn: bool) -> Values | None:
    if not (drawn and folder.accepted and folder.names):
        return None
    courses = (
        (row["subject"], folder.courses(row), 0.0 if row["tr"] == EMPTY_CELL else float(row["tr"]))
        for row in folder.accepted[:DRAWN]
    )
    return {"pictures": list(plots.draw_time_courses(folder.names, courses))}


def _connectivity(folder: PrivateFolder, drawn: bool) -> Values | None:
    rows, z = folder.table("fnc.tsv")
    n = len(folder.names)
    if not rows or n < 2:
        return None
    networks = folder.about.networks or ("",) * n
    # Components of one network stand side by side, those without a network last.
    order = sorted(range(n), key=lambda k: (not networks[k], networks[k], k))
    names = [folder.names[k] for k in order]
    # A page with hundreds of subjects would not open; the files have all of them.
    labels = [row["subject"] for row in rows[:DRAWN]]
    mean = several = None
    if drawn:
        title = f"Mean connectivity of {number_of(len(rows), 'subject')}"
        turned = np.ix_(order, order)
        mean = plots.draw_connectivity(names, _correlations(z.mean(axis=0), n)[turned], title)
        several = plots.draw_connectivities(
            labels, [_correlations(row, n)[turned] for row in z[:DRAWN]]
        )
    groups: dict[str, list[str]] = {}
    for k in order:
        groups.setdefault(networks[k] or "no network", []).append(folder.names[k])
    return {
        "mean": mean,
        "several": several,
        "drawn": len(labels),
        "measured": len(rows),
        "groups": groups if any(networks) else {},
    }


def _correlations(z: Array, n: int) -> Array:
    """Return the correlations of a row of fnc.tsv, the lower triangle by rows, as (n, n)."""
    r = np.eye(n)
    lower = np.tril_indices(n, -1)
    r[lower] = np.tanh(z)
    r.T[lower] = r[lower]
    return r


def _maps(folder: PrivateFolder, drawn: bool) -> Values | None:
    rows, r = folder.table("map_agreement.tsv")
    if not rows:
        return None
    labels = [row["subject"] for row in rows]
    median, low, high = np.median(r, axis=0), r.min(axis=0), r.max(axis=0)
    noise = [f"{x:.2f}" for x in folder.table("map_agreement_noise.tsv")[1].ravel()]
    return {
        "missing": len(folder.accepted) - len(rows),
        "measured": len(rows),
        "rows": [
            (name, f"{median[k]:.2f}", f"{low[k]:.2f}", f"{high[k]:.2f}", *noise[k : k + 1])
            for k, name in enumerate(folder.names)
        ],
        "agreement": plots.draw_agreement(labels, folder.names, r) if drawn else None,
        "sheets": list(_sheets(folder, labels[:DRAWN_MAPS])) if drawn else [],
        "drawn_maps": DRAWN,
        "noise": noise,
    }


def _sheets(folder: PrivateFolder, stems: list[str]) -> Iterator[Picture]:
    names = folder.names[:DRAWN]
    for stem in stems:
        path = folder_of(folder.path, stem) / f"{stem}_{MAPS}.nii.gz"
        if path.is_file():
            image = files.load_image(path)
            volumes = np.asarray(image.dataobj[..., : len(names)], dtype=np.float64)
            mni = is_mni(str(folder.about.template_space))
            yield brain.draw_sheet(stem, names, volumes, np.asarray(image.affine), mni=mni)


def _people(folder: PrivateFolder, drawn: bool) -> Values | None:
    """Return who entered the comparison, and what was missing."""
    if not (folder.path / PEOPLE_TABLE).is_file():
        return None
    rows = files.read_table(folder.path / PEOPLE_TABLE)
    question = asked_in(folder.about.settings)
    columns, outcomes = (
        [one.name for one in group] for group in (question.variables, question.outcomes)
    )
    asked = [row for row in rows if row["asked"] == "yes"]
    whole = [row for row in asked if EMPTY_CELL not in (row[name] for name in columns)]
    entered = [row for row in whole if any(row[name] != EMPTY_CELL for name in outcomes)]
    missing = {
        name: sum(row[name] == EMPTY_CELL for row in asked) for name in (*columns, *outcomes)
    }
    names = {row["subject"] for row in rows} - {row["subject"] for row in entered}
    return {
        "steps": (
            ("listed here", len(rows)),
            ("asked: of the groups that the question names", len(asked)),
            ("of these with every column of the formula", len(whole)),
            ("of these with at least one outcome: they are in the sums", len(entered)),
        ),
        "missing": [
            (name, "formula" if name in columns else "outcome", n)
            for name, n in missing.items()
            if n
        ],
        "zeros": [row["subject"] for row in rows if row["subject"] in names],
        "header": tuple(rows[0]) if rows else (),
        "rows": [tuple(row.values()) for row in rows],
        "tiles": list(_networks(folder, question)) if drawn else [],
    }


def _networks(folder: PrivateFolder, question: Question) -> Iterator[tuple[str, Picture]]:
    """Yield the public maps of this site's own file, as it used them."""
    names = question.measure.networks if question.measure else ()
    drawer = Drawer(folder.path, networks_of_site(folder.path, names))
    for name in names:
        if tile := drawer.tile(name):
            yield name, tile


def _sent(folder: PrivateFolder, drawn: bool) -> Values | None:
    # One row per kind of message: long runs have thousands of replies.
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for reply in folder.sent:
        kinds.setdefault((str(reply["phase"]), str(reply["message"])), []).append(reply)
    rows = []
    for (phase, message), group in kinds.items():
        size, fields = sum(int(reply["bytes"]) for reply in group), ", ".join(group[0]["fields"])
        rows.append((phase, message, fields, str(len(group)), f"{size:,}"))
    return {"rows": rows} if rows else None


def _handling(folder: PrivateFolder, drawn: bool) -> Values:
    return {"files": {"index.html", *(path.name for path in folder.path.iterdir())}}


# In the order of the consortium's page: results, reliability, messages, processing
SITE_CHAPTERS: page.Outline[PrivateFolder] = (
    ("site/maps", "Maps of single subjects", _maps),
    ("site/courses", "Time courses", _time_courses),
    ("site/connectivity", "Network connectivity", _connectivity),
    ("site/people", "Who entered the comparison", _people),
    ("site/subjects", "Subjects", _subjects),
    ("site/checks", "Checks", None),
    ("site/clipping", "Clipping", _clipping),
    ("site/sent", "What left this site", _sent),
    ("site/ledger", "Ledger of this site", None),
    ("site/methods", "What was done to the data", None),
    ("site/handling", "Handling", _handling),
)
