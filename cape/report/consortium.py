"""Write the outcome of a run as the consortium's files: only released quantities and settings."""

from __future__ import annotations

import csv
import dataclasses
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.claims import Claims, SplitHalf, countable
from cape.algorithms.component_order import above_background, z_scores
from cape.algorithms.estimators import Array
from cape.computations import load
from cape.computations.ica.recipe import CALIBRATED, as_spatial
from cape.computations.ica.settings import LeftRightConfig
from cape.counting import CountedPeople
from cape.delimited import written_cell
from cape.errors import CapeWarning, ConfigError
from cape.protocol.model import Roster
from cape.protocol.outcome import (
    ContrastOutcome,
    IcaOutcome,
    Outcome,
    SpatialSet,
    Table,
    TemplateReading,
)
from cape.report import (
    comparison,
    confidence,
    consortium_page,
    files,
    labels,
    maps,
    methods,
    network_maps,
    privacy_json,
    surfaces,
)
from cape.report.labels import correlation
from cape.report.maps import FEW_REGIONS, Component
from cape.report.network_maps import Brought
from cape.report.page import of_run
from cape.report.public_networks import Template
from cape.report.results import (
    SPATIAL_TABLE,
    ClaimFigures,
    ComparisonResults,
    HalfFigures,
    LeftRightFigures,
    MapResults,
    ModelFigures,
    NoiseBand,
    Results,
    Round,
    RunSettings,
    SpatialFit,
    TableFile,
    TableResults,
    TemplateRow,
    VerdictFigures,
    read_results,
)
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace, is_cifti
from cape.space.public_basis import Basis, public_basis

Components = tuple[Component, ...]


def write_results(
    folder: Path, outcome: Outcome, *, page: bool = True, counted: CountedPeople | None = None
) -> None:
    """Write the files of a run; without `page`, index.html and its figures are left to `render`."""
    # `counted`: where the caller has the data of all sites and somebody does not count.
    # Compute all figures before writing: a failure must not leave half a result.
    results = replace(results_of(outcome), counted=counted)
    privacy = privacy_json.statement(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "results.json", results)
    files.write_json(folder / "privacy.json", privacy)
    settings = RunSettings(settings=dict(outcome.settings), digest=outcome.config_digest)
    files.write_json(folder / "settings.json", settings)
    files.write_rows(folder / "rounds.tsv", Round, _rounds_of(outcome))
    if not isinstance(results, TableResults):
        consortium_page.write_methods(folder, results)
    if isinstance(outcome, IcaOutcome) and isinstance(results, MapResults):
        _write_maps(folder, outcome, results.separation)
    if isinstance(results, ComparisonResults):
        comparison.write_tables(folder, results.comparison)
    for table in outcome.tables:
        files.write_text(folder / f"{table.name}.csv", _csv_text(table))
    # Last: the page is made from the files alone.
    if page:
        of_run(consortium_page.render, folder)


def add_score(
    folder: Path,
    *,
    q_ngi: float | None,
    map_correlation: float | None,
    counted: CountedPeople | None = None,
    synthetic: bool = False,
    charged: bool = False,
    maps: Brought | None = None,
) -> None:
    """Mark a simulation and add how close its maps are to the planted ones."""
    # `q_ngi`: 0 is perfect; `map_correlation`: mean |r|; None where no maps were planted.
    # `counted`: if somebody does not count.  `maps`: as in `add_maps`.  A lab that is alone, with
    # real noise and a ledger that is `charged`, played no other site: that is no simulation.
    results: Results = read_results(folder)
    real = charged and results.private and results.n_sites == 1 and not synthetic
    results = replace(results, simulation=not real, synthetic=synthetic, counted=counted)
    # The budget is spent: names must not cost the results.
    try:
        results = results if maps is None else _with_maps(folder, results, maps)
    except ConfigError as err:
        if not isinstance(results, MapResults):
            warnings.warn(f"the maps are not shown: {err}", CapeWarning, stacklevel=3)
    if isinstance(results, MapResults):  # tables have no planted truth
        results = replace(results, q_ngi=q_ngi, map_correlation=map_correlation)
    _write_again(folder, results)


def add_maps(folder: Path, maps: Brought, digest_of: Callable[[Config, Path], str]) -> Path:
    """Bring the public maps of a comparison, or the atlas of any run, to its page; return the page.

    `digest_of` gives the digest of a comparison's features with these maps, or "" where it is not
    known.  ConfigError E016: the folder has no such result, or one of other maps.
    """
    results = read_results(folder) if (folder / "results.json").is_file() else None
    if not isinstance(results, ComparisonResults | MapResults):
        do = "name the folder with the results of a comparison, or of maps of an atlas."
        raise ConfigError("E016", problem=f"{folder} holds no such result", do=do)
    if isinstance(results, ComparisonResults):
        settings = files.read_record(folder / "settings.json", RunSettings).settings
        config = load(results.computation).config.from_input(settings)
        if digest_of(config, maps.path) not in ("", results.feature_space_digest):
            problem = f"{maps.path.name} holds other maps than those of the run"
            raise ConfigError("E016", problem=problem, do="name the file that its sites have.")
    return _write_again(folder, _with_maps(folder, results, maps))


def _with_maps(folder: Path, results: Results, maps: Brought) -> Results:
    if isinstance(results, MapResults):
        network_maps.write_regions(folder, results, maps)
    if not isinstance(results, ComparisonResults):
        return results
    found = results.comparison
    names = found.regions or [one.name for one in found.asked.outcomes]
    of_maps = found.networks if found.asked.measure else ()
    networks = network_maps.bring(folder, maps, names, of_maps) or found.networks
    found = replace(found, networks=networks)
    comparison.write_tables(folder, found)
    return replace(results, comparison=found)


def _write_again(folder: Path, results: Results) -> Path:
    files.write_json(folder / "results.json", results)
    if isinstance(results, MapResults | ComparisonResults):
        consortium_page.write_methods(folder, results)
    return of_run(consortium_page.render, folder)


def relabel(folder: Path, template: Path | str, names: Path | None = None) -> Path:
    """Match the maps with the user's image or a public set; return the path of the new page.

    `template`: an image, whose `names` stand one a line, or the name of a public set.
    ConfigError: CAPE-E270 to E276.
    """
    table, results_path = folder / "components.tsv", folder / "results.json"
    if not (table.is_file() and results_path.is_file()):
        raise ConfigError("E274")
    results = files.read_record(results_path, MapResults)
    settings = files.read_record(folder / "settings.json", RunSettings).settings
    ending = maps.ENDINGS[results.feature_space]
    sets, free = {table: f"{maps.file_of(results.status)}{ending}"}, f"spatial_maps{ending}"
    if (
        (folder / SPATIAL_TABLE).is_file()
        and (folder / free).is_file()
        and results.separation.found_free
    ):
        sets[folder / SPATIAL_TABLE] = free
    networks = None
    for rows_of, image in sets.items():
        if is_cifti(results.feature_space):
            z, spheres = surfaces.read_cifti(folder / image), surfaces.read_spheres(folder)
            networks = labels.template_on(Path(template), spheres, labels.names_of(names))
            matches = labels.match_on_spheres(z, networks, spheres)
        else:
            z, networks, space = labels.of_user(folder / image, str(template), names, results)
            fit = results.separation.spatial
            own_basis = fit.n_basis if rows_of != table and fit is not None else 0
            if space.digest == results.feature_space_digest:
                basis = _basis_of(space, results.computation, settings, results, own_basis)
                networks = labels.at_resolution(networks, basis)
            matches = labels.match_networks(z, networks, space)
        # Only the label columns change: numbers of 12 digits survive reading and writing.
        rows = labels.named(
            files.read_rows(rows_of, Component), matches, results.feature_space, results.n_features
        )
        files.write_rows(rows_of, Component, rows)
    return _write_again(
        folder, replace(results, labels=labels.source(networks, results.feature_space))
    )


def results_of(outcome: Outcome) -> MapResults | TableResults | ComparisonResults:
    if isinstance(outcome, IcaOutcome):
        return map_results_of(outcome)
    if isinstance(outcome, ContrastOutcome):
        return ComparisonResults(**_facts(outcome), comparison=comparison.comparison_of(outcome))
    tables = tuple(
        TableFile(file=f"{table.name}.csv", title=table.title, note=table.note)
        for table in outcome.tables
    )
    return TableResults(**_facts(outcome), tables=tables)


def map_results_of(outcome: IcaOutcome) -> MapResults:
    # The rank guard may have left fewer components than the settings ask for.
    n_components, settings = int(outcome.A.shape[1]), outcome.settings
    # Use the requested number: the forecast precedes the run.
    requested = confidence.requested_of(settings, n_components)
    rule = confidence.rule_of(outcome.computation, settings, requested)
    model = _model_figures(outcome)
    mu, reason = privacy_json.figures(outcome).mu_planned, confidence.why_not(outcome)
    size = None if mu is None else confidence.effective_size(outcome, mu)
    hint = confidence.hint(
        outcome.eigenvalues,
        rule,
        requested=requested,
        edge=outcome.edge,
        n_components=n_components,
        g=size,
    )
    return MapResults(
        **_facts(outcome),
        # Count the solver's rounds only, not the releases before it.
        rounds=sum(record.phase == outcome.roster.plan[-1].phase for record in outcome.trace),
        rounds_planned=outcome.rounds_planned,
        n_components=n_components,
        stability=outcome.stability or None,  # 0: not assessed
        verdict=None
        if (verdict := outcome.verdict) is None
        else VerdictFigures(
            confirmed=len(verdict.confirmed),
            spatial_start=verdict.gate,
            curvature=verdict.curvature,
            z=verdict.z,
            component_error=verdict.component_error,
        ),
        noise_edge=outcome.edge,
        gap_ratio=outcome.gap_ratio,
        rank_status=outcome.rank_status,
        g_eff=size,
        g_needed=None if size is None or rule is None else rule.needed_g(),
        forecast=None if size is None or rule is None else rule.sentence(size),
        suggested_n_components=_suggested(outcome, model, hint),
        # The file holds the margins too: they say how well the noise levels held in a test.
        noise_band=NoiseBand(
            shown=not reason,
            why_not=reason,
            margin_expected_r=confidence.MARGIN_R,
            margin_band=confidence.MARGIN_BAND,
        ),
        labels=labels.source(
            _bundled_labels(outcome),
            outcome.space.kind,
            in_mni=outcome.space.in_mni,
            found_nothing=outcome.status == "nothing_found",
        ),
        separation=model,
    )


def _facts(outcome: Outcome) -> dict[str, Any]:
    roster, space = outcome.roster, outcome.space
    figures = dataclasses.asdict(privacy_json.figures(outcome))
    return {
        "status": outcome.status,
        "ended": outcome.ended,
        "reason": outcome.reason,
        "n_sites": roster.n_sites,
        "n_subjects": roster.n_subjects,
        "min_survivors": roster.survivors,
        "survivors": privacy_json.survivors(outcome),
        "n_features": space.n_features,
        "n_basis": roster.n_basis,
        "feature_space": space.kind,
        "feature_space_digest": space.digest,
        "grid": tuple(space.shape),
        "affine": tuple(space.affine),
        "template_space": space.template_space,
        **{name: value for name, value in figures.items() if name != "mu_planned"},
        "private": outcome.label == "dp",
        "seeded": roster.seeded,
        "computation": outcome.computation,
        "version": outcome.version,
        "run": outcome.run,
        "config_digest": outcome.config_digest,
        "fingerprint": outcome.fingerprint,
        "sites": {entry.site: entry.n_subjects for entry in roster.sites},
        "warnings": tuple(outcome.warnings),
        "date": methods.date_of_today(),
        "software": methods.package_versions(),
    }


def _bundled_labels(outcome: IcaOutcome) -> Template | None:
    # A name would turn what the test calls noise into a finding.
    return None if outcome.status == "nothing_found" else labels.bundled(outcome.space)


def _model_figures(outcome: IcaOutcome) -> ModelFigures:
    spatial = template = sides = claims = halves = None
    if (found := outcome.spatial) is not None:
        fit = dataclasses.asdict(found.sparseness) if found.sparseness else {}
        spatial = SpatialFit(
            converged=found.converged,
            recipe=found.recipe,
            maps=int(found.A.shape[1]),
            stability=found.stability or None,
            **fit,
        )
        if found.test is not None:
            figures, verdict = dataclasses.asdict(found.test), found.test.verdict
            sides = LeftRightFigures(**figures, verdict=verdict, mirrored=found.mirrored)
        few = _of_few(maps.describe(found.A, outcome.space), outcome.space)
        claims = None if found.claims is None else _claim_figures(found.claims, few)
        halves = None if found.split_half is None else _half_figures(found.split_half, few)
    if outcome.template is not None:
        template = tuple(_template_rows(outcome.A, outcome.template))
    return ModelFigures(
        kind=outcome.kind,
        spatial=spatial,
        left_right=sides,
        claims=claims,
        halves=halves,
        template=template,
    )


def _claim_figures(claims: Claims, few: Sequence[bool]) -> ClaimFigures:
    counts = countable(claims)
    networks = [
        claim
        for claim, local in zip(claims.maps, few, strict=True)
        if not local and any(claim is one for one in counts)
    ]
    words = {
        word: sum(claim.word == word for claim in networks)
        for word in ("yes", "likely", "uncertain")
    }
    return ClaimFigures(
        **words,
        few=len(counts) - len(networks),
        sharp=sum(claim.sharp for claim in networks),
        images=sum(claim.word == "image" for claim in claims.maps),
        untold_pairs=sum(claim.word != "image" for claim in claims.maps) - len(counts),
        q=claims.cohort,
        cohort=CALIBRATED.cohort_at(claims.cohort).carry,
        expected=sum(claim.found or 0.0 for claim in networks),
    )


def _half_figures(halves: SplitHalf, few: Sequence[bool]) -> HalfFigures:
    words = [word for word, local in zip(halves.words, few, strict=True) if not local]
    n = sum(map(bool, halves.words)) - sum(map(bool, words))
    return HalfFigures(in_halves=words.count("in halves"), maybe=words.count("maybe"), few=n)


def _suggested(
    outcome: IcaOutcome, model: ModelFigures, hint: confidence.ModelOrderHint
) -> int | None:
    if outcome.kind == "spatial" and outcome.spatial and outcome.spatial.split_half:
        return outcome.spatial.split_half.n_components
    return None if model.of_images else hint.suggested


def _template_rows(released: Array, reading: TemplateReading) -> Iterator[TemplateRow]:
    for k in range(released.shape[1]):
        template, without_data = reading.templates[:, k], reading.without_data[:, k]
        yield TemplateRow(
            r_template=correlation(released[:, k], template),
            r_without_data=correlation(released[:, k], without_data),
            r_template_without_data=correlation(without_data, template),
            strength=reading.strength[k],
            kept=reading.kept[k],
        )


def components_of(outcome: IcaOutcome) -> Components:
    rows = maps.describe(
        outcome.A, outcome.space, outcome.columns, shares=outcome.kind != "spatial"
    )
    if not confidence.why_not(outcome):
        band, expected = confidence.bands(outcome)
        rows = _with(rows, noise_z=band.tolist(), expected_r=expected.tolist())
    if (verdict := outcome.verdict) is not None:
        words, curvature = verdict.components, verdict.component_curvature
        rows = _with(rows, verdict=words, curvature=curvature)
    if outcome.spatial is not None and outcome.kind == "spatial":
        rows = _claimed(rows, outcome.spatial, outcome.space)
    return _named(rows, outcome.A, outcome)


def _spatial_set(outcome: IcaOutcome, spatial: SpatialSet, model: ModelFigures) -> Components:
    rows = maps.describe(spatial.A, outcome.space, outcome.columns, shares=False)
    rows = _with(rows, name=[f"S{k:02d}" for k in range(1, len(rows) + 1)])
    rows = _claimed(rows, spatial, outcome.space)
    # Maps no sparser and no more symmetric than those of noise get no names.
    return _named(rows, spatial.A, outcome, spatial.n_basis) if model.found_free else rows


def _claimed(rows: Components, spatial: SpatialSet, space: FeatureSpace) -> Components:
    few = _of_few(rows, space)
    if spatial.stability:
        rows = _with(rows, stability=spatial.stability)
    if (halves := spatial.split_half) is not None:
        words = [
            _said(word, FEW_REGIONS * local) for word, local in zip(halves.words, few, strict=True)
        ]
        return _with(rows, found_again=words, r_halves=halves.r)
    if (claims := spatial.claims) is None:
        return rows
    return _with(
        rows,
        found_again=[
            _said(
                claim.word, "sharp" * claim.sharp, FEW_REGIONS * (local and claim.word != "image")
            )
            for claim, local in zip(claims.maps, few, strict=True)
        ],
        claimed=[claim.found for claim in claims.maps],
        claimed_strict=[claim.strict for claim in claims.maps],
        mirror_of=[rows[claim.pair - 1].name if claim.pair else None for claim in claims.maps],
    )


def _of_few(rows: Components, space: FeatureSpace) -> list[bool]:
    return [maps.of_few_regions(row, space.kind, space.n_features) for row in rows]


def _said(word: str, *more: str) -> str | None:
    return ", ".join(filter(None, (word, *more))) if word else None


def _with(rows: Components, **columns: Sequence[object]) -> Components:
    """Return the rows with these columns replaced; each column holds one value per row."""
    filled = zip(rows, *columns.values(), strict=True)
    return tuple(replace(row, **dict(zip(columns, cells, strict=True))) for row, *cells in filled)


def _named(
    rows: Components, released: Array, outcome: IcaOutcome, own_basis: int = 0
) -> Components:
    template = _bundled_labels(outcome)
    if template is None:
        return rows
    space, run = outcome.space, outcome.roster
    basis = _basis_of(space, outcome.computation, outcome.settings, run, own_basis)
    template = labels.at_resolution(template, basis)
    matches = labels.match_networks(z_scores(released), template, space)
    return labels.named(rows, matches, space.kind, space.n_features)


def _basis_of(
    space: FeatureSpace,
    computation: str,
    settings: Mapping[str, object],
    run: Roster | MapResults,
    own_basis: int,
) -> Basis | None:
    """Return the public basis of voxel maps; None if there is none or it is unknown."""
    # `own_basis`: d of the spatial set of a temporal run, which has its own basis; else 0.
    config = confidence.config_of(computation, settings, confidence.requested_of(settings, 0))
    if config is None or space.kind != "mask" or run.n_basis >= space.n_features:
        return None
    if own_basis and isinstance(config, LeftRightConfig):
        return public_basis(resolve(as_spatial(config, own_basis)), space, own_basis)
    # Template maps are as fine as the templates: no smooth basis limits them.
    how = resolve(config)
    smooth = how.basis in ("dct", "kernel") and not space.n_templates
    return public_basis(how, space, run.n_basis) if smooth else None


def _rounds_of(outcome: Outcome) -> Iterator[Round]:
    delta, promised = privacy_json.delta_of(outcome), outcome.label == "dp"
    # After the last release of each round.
    costs = {(e.phase, e.round): cost for e, cost in privacy_json.running(outcome.ledger.events)}
    for index, record in enumerate(outcome.trace, 1):
        so_far = costs.get((record.phase, record.round)) if promised else None
        yield Round(
            index=index,
            phase=record.phase,
            round=record.round,
            statistic_norm=record.statistic_norm,
            expected_noise_norm=record.noise_norm,
            step_norm=record.step_norm,
            # 0 means "not known yet": too few rounds, or a phase without an unmixing matrix
            stability=record.stability if record.stability > 0 else None,
            mu_so_far=so_far.mu() if so_far else None,
            epsilon_so_far=so_far.epsilon(delta) if so_far else None,
        )


def _write_maps(folder: Path, outcome: IcaOutcome, model: ModelFigures) -> None:
    files.write_rows(folder / "components.tsv", Component, components_of(outcome))
    # Plain float64 arrays without pickle are safe to open.
    matrices = {name: getattr(outcome, name) for name in ("W", "U", "V", "W_total", "A")}
    digest = np.array(outcome.space.digest)
    spectrum = outcome.eigenvalues
    np.savez(folder / "unmixing.npz", **matrices, eigenvalues=spectrum, feature_space_digest=digest)
    # The stamp is in the image header: images are copied without the files beside them.
    stamp = "cape z-maps" if outcome.label == "dp" else "cape z-maps NOT PRIVATE"
    z = z_scores(outcome.A)
    # A seeded run protects nobody either, but it has noise.
    quiet = outcome.settings.get("private") is False
    if quiet and model.kind == "spatial" and outcome.space.kind != "matrix":
        z = above_background(z)
    sets = {maps.file_of(outcome.status): z}
    # A spatial run's maps are this set already; so, nearly, are those of a run back at its start.
    same = model.kind == "spatial" or (outcome.status == "unconfirmed" and not model.of_images)
    if (found := outcome.spatial) is not None and not same:
        sets[maps.free_file_of(found.test.verdict if found.test else None)] = z_scores(found.A)
        files.write_rows(folder / SPATIAL_TABLE, Component, _spatial_set(outcome, found, model))
    if outcome.template is not None:
        # In units of the maps' standard deviation: a small deviation looks small.
        scale = np.maximum(np.std(outcome.A, axis=0), 1e-300)
        sets["template_evidence"] = outcome.template.evidence / scale
        sets["template_without_data"] = z_scores(outcome.template.without_data)
    if outcome.space.of_cifti:
        surfaces.write_spheres(folder, outcome.space)
    for name, values in sets.items():
        maps.write_maps(folder, name, values, outcome.space, stamp=stamp, columns=outcome.columns)
    if outcome.space.on_grid:
        what = maps.file_of(outcome.status).removesuffix("_maps")
        single = maps.write_single_maps(folder, "", what, z, outcome.space, stamp=stamp)
        files.write_table(folder / maps.MAP_LIST, ("name", "file"), single)


def _csv_text(table: Table) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    for row in (table.header, *table.rows):
        writer.writerow([written_cell(files.cell(value)) for value in row])
    return target.getvalue()
