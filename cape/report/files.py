"""The consortium's files: released quantities and settings only, the same bytes every time.

Nothing here may depend on the clock, on the machine's names or on the order of a dictionary that
is not fixed by this text.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array
from cape.delimited import rows_by_column
from cape.forecast.rules import rule_of
from cape.forecast.size import g_eff
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome, Outcome
from cape.report import (
    confidence,
    labels,
    map_tables,
    methods,
    model_order,
    privacy_json,
    separations,
)

MISSING = "n/a"
"""An empty cell of a table: what spreadsheets and BIDS readers expect."""

LABELS = ("label", "label_r", "label_chance")
"""Columns of components.tsv on the best matching template."""

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def write_all(folder: Path, outcome: IcaOutcome) -> None:
    """Write every consortium file but index.html into `folder`, which is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    results, privacy = results_of(outcome), privacy_json.statement(outcome)
    settings = dict(outcome.settings)
    write_json(folder / "results.json", results)
    write_json(folder / "privacy.json", privacy)
    write_json(folder / "settings.json", {"settings": settings, "digest": outcome.config_digest})
    write_text(folder / "methods.md", methods.document(results, privacy, settings))
    write_table(folder / "components.tsv", component_rows(outcome))
    write_table(folder / "rounds.tsv", round_rows(outcome))
    write_unmixing(folder / "unmixing.npz", outcome)
    write_maps(folder, outcome)
    for name, columns in separations.extra_maps(outcome):
        write_columns(folder, name, columns, outcome)


def results_of(outcome: IcaOutcome) -> dict[str, Any]:
    """Return the content of results.json."""
    size = _size(outcome, privacy_json.figures(outcome).mu_planned)
    return {
        **facts_of(outcome),
        "rounds": solver_rounds(outcome),
        "rounds_planned": outcome.rounds_planned,
        "n_components": int(outcome.A.shape[1]),
        "q_ngi": None,
        "map_correlation": None,
        "stability": outcome.stability or None,  # 0: not assessed
        "noise_edge": outcome.edge,
        "gap_ratio": outcome.gap_ratio,
        "rank_status": outcome.rank_status,
        **size,
        **reading_aids(outcome, size["g_eff"]),
        "separation": separations.figures(outcome),
    }


def facts_of(outcome: Outcome) -> dict[str, Any]:
    """Return what results.json says of every run, whatever it computed."""
    roster, space = outcome.roster, outcome.space
    return {
        "schema": "cape-results-1",
        "status": outcome.status,
        "reason": outcome.reason,
        "n_sites": roster.n_sites,
        "n_subjects": roster.n_subjects,
        "min_survivors": roster.survivors,
        "survivors": privacy_json.survivors(outcome),
        "n_features": space.n_features,
        "n_basis": roster.n_basis,
        "feature_space": space.kind,
        "feature_space_digest": space.digest,
        "grid": list(space.shape),
        "affine": list(space.affine),
        **_privacy(outcome),
        "simulation": False,
        "synthetic": False,
        "computation": outcome.computation,
        "version": outcome.version,
        "run": outcome.run,
        "config_digest": outcome.config_digest,
        "fingerprint": outcome.fingerprint,
        "sites": {entry.site: entry.n_subjects for entry in roster.sites},
        "warnings": list(outcome.warnings),
    }


def _privacy(outcome: Outcome) -> dict[str, Any]:
    numbers = privacy_json.figures(outcome)
    return {
        "epsilon": numbers.epsilon,
        "epsilon_planned": numbers.epsilon_planned,
        "epsilon_spent": numbers.epsilon_spent,
        "epsilon_unspent": numbers.epsilon_unspent,
        "delta": numbers.delta,
        "mu": numbers.mu,
        "mu_spent": numbers.mu_spent,
        "mu_unspent": numbers.mu_unspent,
        "unit": "subject",
        "relation": privacy_json.RELATION,
        "private": outcome.label == "dp",
        "seeded": outcome.roster.seeded,
    }


def _size(outcome: IcaOutcome, mu: float | None) -> dict[str, float | None]:
    """Return the effective size G of the run, and the one its components need (synthetic data)."""
    if mu is None:
        return {"g_eff": None, "g_needed": None}
    roster = outcome.roster
    kind, revised = methods.kind_of(outcome.settings), model_order.is_revised(outcome.settings)
    size = g_eff(
        n_subjects=roster.n_subjects,
        mu=mu,
        noise_shares=outcome.noise_shares,
        n_sites=roster.n_sites,
    )
    return {
        "g_eff": size,
        "g_needed": rule_of(kind, int(outcome.A.shape[1]), prewhitened=revised).needed_g(),
    }


def reading_aids(outcome: IcaOutcome, g: float | None) -> dict[str, Any]:
    """Return what helps to read the result: suggested R, noise band, labels; all free of cost."""
    kept = int(outcome.A.shape[1])
    found = model_order.advise(
        outcome.eigenvalues,
        edge=outcome.edge,
        asked=int(str(outcome.settings.get("n_components", kept))),
        kept=kept,
        g=g,
        kind=methods.kind_of(outcome.settings),
        revised=model_order.is_revised(outcome.settings),
    )
    reason = confidence.why_not(outcome)
    return {
        "suggested_n_components": found.suggested,
        "noise_band": {
            "shown": not reason,
            "why_not": reason,
            "margin_expected_r": confidence.MARGIN_R,
            "margin_band": confidence.MARGIN_BAND,
        },
        "labels": labels.about(template_of(outcome), outcome.settings),
    }


def template_of(outcome: IcaOutcome) -> labels.Template | None:
    """Return the built-in networks on the features of the run; None outside MNI space."""
    return labels.bundled(outcome.space) if in_mni(outcome.settings) else None


def solver_rounds(outcome: Outcome) -> int:
    """Return how many rounds the last stage made: those in the phase of the last record."""
    if not outcome.trace:
        return 0
    last = outcome.trace[-1].phase
    return sum(record.phase == last for record in outcome.trace)


def component_rows(outcome: IcaOutcome) -> Table:
    """Return header and rows of components.tsv."""
    header = ("name", "share", "skewness", "kurtosis", "peak_feature", "peak_x_mm", "peak_y_mm",
              "peak_z_mm", "peak_z", "noise_z", "expected_r", *LABELS)  # fmt: skip
    known, template = confidence.confidence(outcome), template_of(outcome)
    matches = labels.match(z_scores(outcome.A), template) if template is not None else ()
    rows = []
    for k, c in enumerate(map_tables.describe(outcome.A, outcome.space)):
        mm = c.peak_mm or (None, None, None)
        noise = (None, None) if known.why_not else (known.band[k], known.expected_r[k])
        cells = (c.name, c.share, c.skewness, c.kurtosis, c.peak_feature, *mm, c.peak_z, *noise)
        rows.append((*(cell(value) for value in cells), *label_cells(matches, k)))
    return header, rows


def label_cells(matches: Sequence[labels.Match], k: int) -> tuple[str, ...]:
    """Return the cells of `LABELS` for map k."""
    if not matches:
        return (MISSING,) * len(LABELS)
    found = matches[k]
    return found.label, cell(found.r), cell(found.chance)


def round_rows(outcome: Outcome) -> Table:
    """Return header and rows of rounds.tsv: one row for every released round."""
    header = ("index", "phase", "round", "statistic_norm", "expected_noise_norm", "step_norm",
              "stability", "mu_so_far", "epsilon_so_far")  # fmt: skip
    delta, promised = privacy_json.delta_of(outcome), outcome.label == "dp"
    so_far = {
        (s.event.phase, s.event.round): s for s in privacy_json.running(outcome.ledger.events)
    }
    rows = []
    for index, record in enumerate(outcome.trace, 1):
        spent = so_far.get((record.phase, record.round)) if promised else None
        mu, epsilon = (spent.so_far.mu(), spent.so_far.epsilon(delta)) if spent else (None, None)
        # 0 means "not known yet": too few rounds, or a phase without an unmixing matrix
        stability = record.stability if record.stability > 0 else None
        cells = (index, record.phase, record.round, record.statistic_norm, record.noise_norm,
                 record.step_norm, stability, mu, epsilon)  # fmt: skip
        rows.append(tuple(cell(value) for value in cells))
    return header, rows


def write_unmixing(path: Path, outcome: IcaOutcome) -> None:
    """Write the matrices as plain float64 arrays, no pickle."""
    np.savez(
        path,
        W=outcome.W,
        U=outcome.U,
        V=outcome.V,
        W_total=outcome.W_total,
        A=outcome.A,
        eigenvalues=outcome.eigenvalues,
        feature_space_digest=np.array(outcome.space.digest),
    )


def write_maps(folder: Path, outcome: IcaOutcome) -> None:
    """Write the z-maps: group_maps.nii.gz on a grid, group_maps.csv for plain columns."""
    write_columns(folder, "group_maps", z_scores(outcome.A), outcome)


def write_columns(folder: Path, name: str, columns: Array, outcome: IcaOutcome) -> None:
    """Write maps, shape (D, R), as ``name.nii.gz`` on a grid, as ``name.csv`` without one."""
    if outcome.space.kind != "matrix":
        stamp = "cape z-maps" if outcome.label == "dp" else "cape z-maps NOT PRIVATE"
        image = nifti(columns, outcome.space, stamp=stamp, mni=in_mni(outcome.settings))
        (folder / f"{name}.nii.gz").write_bytes(image)
        return
    lines = [",".join(map_tables.names(columns.shape[1]))]
    lines += [",".join(format(value, ".9g") for value in row) for row in columns.tolist()]
    write_text(folder / f"{name}.csv", "\n".join(lines) + "\n")


def in_mni(settings: Mapping[str, object]) -> bool:
    """Tell whether the grid is one of the bundled MNI152 masks."""
    return settings.get("feature_space", "mask") != "matrix" and str(
        settings.get("mask", "")
    ).startswith("MNI152-")


def nifti(
    z: np.ndarray[Any, Any], space: FeatureSpace, *, stamp: str, mni: bool, level: int = 9
) -> bytes:
    """Return the maps, shape (D, R), as the bytes of a .nii.gz; equal maps give equal bytes."""
    nibabel: Any = importlib.import_module("nibabel")
    affine = np.asarray(space.affine, dtype=np.float64).reshape(4, 4)
    image = nibabel.Nifti1Image(map_tables.volume(z, space), affine)
    code = 4 if mni else 2  # NIfTI: 4 MNI152, 2 aligned to something else
    image.set_sform(affine, code=code)
    image.set_qform(affine, code=code)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = stamp.encode()
    return gzip.compress(image.to_bytes(), compresslevel=level, mtime=0)


def load_image(path: Path) -> Any:
    """Return a NIfTI image, read lazily."""
    nibabel: Any = importlib.import_module("nibabel")
    return nibabel.load(path)


def cell(value: object) -> str:
    """Return one cell of a table: 12 digits, n/a for nothing and for what is not finite."""
    if value is None:
        return MISSING
    if isinstance(value, float):
        return format(value, ".12g") if math.isfinite(value) else MISSING
    return str(value)


def write_table(path: Path, table: Table) -> None:
    """Write header and rows with tabs between the cells."""
    header, rows = table
    write_text(path, "".join("\t".join(row) + "\n" for row in (header, *rows)))


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as header -> cell."""
    # Written without quotation marks: one in a label is part of it.
    return rows_by_column(path.read_bytes(), "\t", quoted=False)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write JSON in the order given; what is not finite becomes null."""
    text = json.dumps(_finite(value), indent=1, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise TypeError(f"{path.name} does not hold a JSON object")
    return value


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with plain line feeds on every system."""
    path.write_bytes(text.encode("utf-8"))


def _finite(value: object) -> object:
    """Return `value` with null instead of NaN and infinities, and plain Python numbers."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_finite(item) for item in _items(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _items(value: Sequence[object] | np.ndarray[Any, Any]) -> Iterable[object]:
    return value.tolist() if isinstance(value, np.ndarray) else value
