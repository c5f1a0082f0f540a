"""Chapters of the private page on single subjects: time courses, spectra, connectivity, maps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cape.algorithms.estimators import Array
from cape.report import files
from cape.report.files import MISSING
from cape.report.page_model import Block, Fold, Grid, Picture, Text
from cape.report.site_folder import SiteFolder

SHOWN = 10
"""Subjects and maps with pictures; all of them have files."""

PORTRAITS = 3
"""Subjects whose maps are drawn."""


def time_courses(folder: SiteFolder) -> tuple[Block, ...]:
    """Return the time courses of the first subjects, the first of them unfolded."""
    if not (folder.drawn and folder.accepted and folder.names):
        return ()
    from cape.report import site_pictures

    def courses(row: Mapping[str, str]) -> site_pictures.Courses:
        table = files.read_table(folder.path / f"{row['subject']}_timecourses.tsv")
        values = np.array([[float(line[name]) for name in folder.names] for line in table]).T
        tr = 0.0 if row["tr"] == MISSING else float(row["tr"])
        return site_pictures.Courses(subject=row["subject"], values=values, tr=tr)

    drawn = list(site_pictures.time_courses(folder.names, map(courses, folder.accepted[:SHOWN])))
    blocks: list[Block] = [drawn[0]]
    if drawn[1:]:
        summary = f"{len(drawn) - 1} more of {len(folder.accepted)} subjects"
        blocks.append(Fold(summary=summary, pictures=tuple(drawn[1:])))
    return tuple(blocks)


def spectra(folder: SiteFolder) -> tuple[Block, ...]:
    """Return the mean power spectra of the time courses."""
    rows, power = folder.table("spectra.tsv")
    if not (rows and folder.drawn):
        return ()
    from cape.report import site_pictures

    # Subjects may differ in TR: those that share the axis of the first are averaged.
    first = [row["frequency"] for row in rows if row["subject"] == rows[0]["subject"]]
    axes: dict[str, list[int]] = {}
    for k, row in enumerate(rows):
        axes.setdefault(row["subject"], []).append(k)
    same = [at for at in axes.values() if [rows[k]["frequency"] for k in at] == first]
    mean = np.mean([power[at].T for at in same], axis=0)
    text = f"Mean over the {len(same)} of {len(axes)} subjects that share one frequency axis."
    frequency = np.array([float(x) for x in first])
    return (Text(text=text),
            site_pictures.spectra(folder.names, frequency, mean, rows[0]["unit"]))  # fmt: skip


def connectivity(folder: SiteFolder) -> tuple[Block, ...]:
    """Return how the time courses of components correlate: the mean, then the first subjects."""
    rows, z = folder.table("fnc.tsv")
    n = len(folder.names)
    if not rows or n < 2:
        return ()
    text = (
        "Correlation of the time courses of every two components (network connectivity), in "
        "components' order; means are means of Fisher z."
    )
    blocks: list[Block] = [Text(text=text)]
    if folder.drawn:
        from cape.report import site_pictures

        matrices = [_square(row, n) for row in z[:SHOWN]]
        what = f"Mean connectivity of {len(rows)} subjects"
        blocks.append(site_pictures.connectivity(folder.names, _square(z.mean(axis=0), n), what))
        labels = [row["subject"] for row in rows[:SHOWN]]
        several = site_pictures.connectivities(labels, matrices)
        summary = f"Connectivity of {len(labels)} of {len(rows)} subjects"
        blocks.append(Fold(summary=summary, pictures=(several,)))
    return tuple(blocks)


def _square(z: Array, n: int) -> Array:
    """Return the correlations of a row of fnc.tsv as a matrix."""
    r = np.eye(n)
    upper = np.triu_indices(n, 1)
    r[upper] = np.tanh(z)
    r.T[upper] = r[upper]
    return r


def maps(folder: SiteFolder) -> tuple[Block, ...]:
    """Return how subjects' maps agree with the common ones, and the maps of the first subjects."""
    rows, r = folder.table("map_agreement.tsv")
    if not rows:
        return ()
    text = (
        "Maps of each subject: least squares of its time courses on its own data (dual "
        "regression), compared with the common maps. One subject is noisier than the group; a "
        "component that no subject shows is doubtful."
    )
    missing = len(folder.accepted) - len(rows)
    if missing:
        text += f" {missing} subjects have no maps, because files could not be read again."
    median = np.median(r, axis=0)
    grid = Grid(
        caption="Correlation of subjects' maps with the common maps",
        header=("component", "median", "lowest", "highest"),
        rows=tuple((name, f"{median[k]:.2f}", f"{r[:, k].min():.2f}", f"{r[:, k].max():.2f}")
                   for k, name in enumerate(folder.names)),
    )  # fmt: skip
    blocks: list[Block] = [Text(text=text)]
    if folder.drawn:
        from cape.report import site_pictures

        labels = [row["subject"] for row in rows]
        blocks.append(site_pictures.agreement(labels, folder.names, r))
        if sheets := _sheets(folder, labels[:PORTRAITS]):
            few = f"first {SHOWN} of {len(folder.names)} components, "
            few = few if len(folder.names) > SHOWN else ""
            summary = f"Maps of single subjects ({few}{len(sheets)} of {len(rows)} subjects)"
            blocks.append(Fold(summary=summary, pictures=sheets))
    return (*blocks, grid)


def _sheets(folder: SiteFolder, stems: list[str]) -> tuple[Picture, ...]:
    """Return a picture of the first maps of some subjects; none without a grid."""
    from cape.report import site_pictures

    drawn = []
    for stem in stems:
        path = folder.path / f"{stem}_maps.nii.gz"
        if path.is_file():
            image = files.load_image(path)
            names = folder.names[:SHOWN]
            volumes = np.asarray(image.dataobj[..., : len(names)], dtype=np.float64)
            drawn.append(site_pictures.sheet(stem, names, volumes, np.asarray(image.affine)))
    return tuple(drawn)
