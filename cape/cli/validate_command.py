"""``cape validate``: read all data and print every problem with its remedy; no budget is spent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cape.cli import common
from cape.cli.progress import SiteProgress
from cape.counting import number_of

if TYPE_CHECKING:
    from cape.data.checks import Subject
    from cape.data.issues import Finding
    from cape.planning.consortium_folder import OwnerSettings
    from cape.planning.validate import FolderCheck, SiteCheck
    from cape.settings.config import Config
    from cape.site.policy import SitePolicy

SEVERITY_STYLES = {"E": "bold red", "X": "yellow", "W": ""}
VERDICTS = {True: "ok", False: "counts as zeros"}
SUBJECT_COLUMNS = ("subject", "runs", "T", "TR s", "grid", "coverage", "NaN", "rank", "verdict")
REFUSED = ("CAPE-E153", "CAPE-E154", "CAPE-E168", "CAPE-E236", "CAPE-E260")
# --fast must not be taken for the whole check.
NOT_LOOKED_AT = (
    "Only headers and tables were read. Without --fast, as in a run, these are found too: NaN, "
    "constant data, coverage, rank, dummy scans, cut-off compressed files, complex numbers in .mat "
    "files, files with the same content."
)


def validate_command(
    target: Path,
    data: list[str] | None = None,
    manifest: Path | None = None,
    bids: Path | None = None,
    settings: Path | None = None,
    policy: Path | None = None,
    maps: Path | None = None,
    site: str = "",
    out: Path | None = None,
    replace: common.Replace = False,
    set_values: common.SetValues = None,
    fast: bool = False,
    strict: bool = False,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Check the data of a site or of a consortium before a run spends any budget."""
    from cape.planning.consortium_folder import merged, read_file, read_settings, settings_beside
    from cape.planning.validate import check_folder, own_store
    from cape.site.places import SitePlaces

    common.check_free(out, replace=replace)
    source = _source(data or [], manifest, bids)
    if settings is None:
        settings = target if target.is_file() else settings_beside(target)
    if settings is None:
        common.warn_no_settings(target, as_json=as_json)
    values = common.assignments(set_values)
    if maps is not None:
        from cape.data.templates import file_of_maps
        from cape.planning.public_maps import asking_of_maps, of_maps

        maps = file_of_maps(maps) or maps
        in_file = read_file(settings)
        values = asking_of_maps(in_file, values)
        values |= of_maps(maps, merged(in_file, values))
    owner = read_settings(settings, values)
    places, base = SitePlaces.from_environment(os.environ), _base(target, manifest, bids)
    ledger, own = _own(policy, site or base.resolve().name)
    if ledger is not None and not ledger.exists():
        common.warn(f"a new ledger would begin: {ledger}", as_json=as_json)
    common.policy_here(policy, quiet=quiet or as_json)
    with SiteProgress(as_json=as_json, quiet=quiet) as on_progress:
        store = None if fast else own_store(places)
        checked = check_folder(
            base,
            owner,
            policy=own,
            given=source,
            site=site,
            store=store,
            on_progress=on_progress,
            headers_only=fast,
            maps=maps,
            ledger=ledger,
        )
    if out is not None:
        _write_table(checked, out)
    if as_json:
        _print_json(checked, strict=strict)
    else:
        _print_text(checked, owner, quiet=quiet, strict=strict)
        if store is not None and not quiet:
            common.remark(
                f"stored for the next command: {store.size()[1] / 1e6:.0f} MB (cape store)"
            )
    raise typer.Exit(_exit_code(checked, strict=strict))


def _source(names: list[str], manifest: Path | None, bids: Path | None) -> dict[str, object]:
    # Only one way: files named in two ways could be read twice or not at all.
    source: dict[str, object] = {}
    if names:
        source["data"] = names[0] if len(names) == 1 else names
    if manifest is not None:
        source["manifest"] = manifest.name
    if bids is not None:
        source["bids"] = "."
    if len(source) > 1:
        raise typer.BadParameter("give one of --data, --manifest and --bids")
    return source


def _base(target: Path, manifest: Path | None, bids: Path | None) -> Path:
    if manifest is not None:
        return manifest.parent
    if bids is not None:
        return bids
    return target if target.is_dir() else Path()


def _own(path: Path | None, site: str) -> tuple[Path | None, SitePolicy]:
    """Return the ledger and the policy that are named: no file of the working folder by itself."""
    from cape.errors import ConfigError
    from cape.site.ledger_file import own_ledger
    from cape.site.policy import unusable_policy

    try:
        return own_ledger(policy_path=path)
    except ConfigError as err:
        raise unusable_policy(site, err) from err


def _subject_rows(check: SiteCheck) -> list[tuple[str, ...]]:
    # Private, with labels of subjects: one row per subject in the site's list.
    accepted = check.inspection.accepted
    taking_part = {s.label for s in accepted.subjects} if accepted is not None else set()
    taking_part -= check.inspection.idle
    # A subject whose files could not be read has only a label.
    by_label = {subject.label: subject for subject in check.inspection.subjects}
    rows = []
    for label in check.inspection.labels:
        subject = by_label.get(label)
        if subject is None:
            rows.append((label, *["-"] * (len(SUBJECT_COLUMNS) - 2), "not readable"))
            continue
        trs = ", ".join(f"{tr:g}" for tr in dict.fromkeys(subject.trs)) if any(subject.trs) else "-"
        verdict = VERDICTS[label in taking_part] if accepted is not None else "read"
        sizes = (str(len(subject.runs)), str(subject.n_timepoints), trs, subject.grid)
        rows.append((label, *sizes, *_quality(subject), verdict))
    return rows


def _quality(subject: Subject) -> tuple[str, str, str]:
    from cape.data.cleaning import UNREAD

    quality = subject.quality
    # With --fast the data are unread; a 0 would look like a result.
    if quality is UNREAD:
        return "-", "-", "-"
    coverage, bad = f"{100 * quality.coverage:.0f} %", f"{100 * quality.bad_fraction:.2g} %"
    return coverage, bad, str(subject.rank)


def _print_text(checked: FolderCheck, owner: OwnerSettings, *, quiet: bool, strict: bool) -> None:
    if not quiet:
        # Who adds something to a comparison is known of accepted people alone.
        is_known = owner.config.question is None or len(checked.accepted) == len(checked.sites)
        if is_known and not checked.counted.all:
            common.say(checked.counted.sentence, style="bold")
        _print_settings(owner)
        question = owner.config.question
        of_tables = question is not None and question.of_tables
        for check in checked.sites:
            # People of tables have no series; a fault of most has a line for the cause.
            if of_tables or check.inspection.most_fail:
                common.say(f"site {check.site}")
            else:
                common.table(f"site {check.site}", SUBJECT_COLUMNS, _subject_rows(check))
            for line in check.inspection.left_out:
                common.say(line)
            _print_needs(check, owner.config, headers_only=checked.headers_only)
            _print_said(check, owner)
            _print_findings(check.findings)
        if len(checked.sites) > 1:
            common.say(f"handshake of the sites: {_compared(checked)}")
        _print_findings(checked.handshake)
        if checked.headers_only:
            common.say(NOT_LOOKED_AT)
    common.say(_verdict(checked, strict=strict), style="bold")


def _compared(checked: FolderCheck) -> str:
    # A site whose own checks failed is not compared; "they fit" would hide it.
    compared = checked.accepted
    missing = ", ".join(site.site for site in checked.sites if site.site not in compared)
    outcome = "see below" if checked.handshake else "they fit"
    if not missing:
        return outcome
    if not checked.handshake:
        outcome = f"{', '.join(compared)} fit" if len(compared) > 1 else "nothing was compared"
    return f"{outcome}; not compared: {missing}, see above"


def _print_settings(owner: OwnerSettings) -> None:
    from cape.settings.resolved import resolve

    config = owner.config
    space = config.mask if config.feature_space == "mask" else config.feature_space
    of_tables = config.question is not None and config.question.of_tables
    parts = [f"settings {config.digest()[:16]}", *([] if of_tables else [f"space {space}"])]
    if max_components := resolve(config).max_components:
        asked = getattr(config, "n_components", 0)
        parts.append(f"{asked or f'at most {max_components}'} components")
    if not of_tables:  # people of tables have no series
        parts.append(f"TR {config.tr:g} s" if config.tr else "TR any")
    if not owner.has_budget:
        parts.append("epsilon and delta not given: no plan is checked")
    common.say(" | ".join(parts))


def _print_needs(check: SiteCheck, config: Config, *, headers_only: bool) -> None:
    from cape.data.space import is_bundled
    from cape.settings.resolved import resolve

    accepted, needs = check.inspection.accepted, check.inspection.needs
    of_tables = config.question is not None and config.question.of_tables
    if accepted is not None:
        space = accepted.space
        kind = " ".join(filter(None, (space.kind, " x ".join(map(str, space.shape)))))
        # Whole where the owner may set it
        is_open = config.feature_space == "matrix"
        is_open |= config.feature_space == "mask" and is_bundled(config)
        hashed = f"hash {space.digest[:16]}" if is_open else f"mask_hash {space.digest}"
        features = f"{kind} with {space.n_features} features, {hashed}; "
        common.say(
            f"{'' if of_tables else features}"
            f"{number_of(accepted.n_subjects, 'subject')}, "
            f"{len(accepted.failed) + len(check.inspection.idle)} fail and count as zeros"
        )
        if resolve(config).sends_maps:
            common.say(
                f'maps stay here unless site-policy.toml has public_maps = ["{space.digest}"]'
            )
    if needs is not None:
        memory = f"{needs.memory / 1e6:.0f} MB of memory ({_free(needs.free_memory)})"
        disk = f"{needs.disk / 1e6:.0f} MB of disk ({_free(needs.free_disk)})"
        reading = f"reading takes {common.duration(check.seconds)}, once or twice per run"
        common.say(
            f"needs {memory}, {disk}; " + ("reading was not timed" if headers_only else reading)
        )


def _print_said(check: SiteCheck, owner: OwnerSettings) -> None:
    """Print what everybody reads of a site in a comparison."""
    question, accepted = owner.config.question, check.inspection.accepted
    if question is None or accepted is None:
        return
    said = [number_of(accepted.n_subjects, "person")]
    if check.counts:
        cells = zip(question.cells, check.counts, strict=True)
        said += [f"{' '.join(cell)} {n}" for cell, n in cells]
    if check.lacks:
        said.append(f"no {', '.join(check.lacks)}")
    common.say(f"everybody would read: {', '.join(said)}")


def _free(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB free" if n_bytes else "free space unknown"


def _print_findings(findings: tuple[Finding, ...]) -> None:
    from cape.data.issues import MAX_PLACES

    for finding in findings:
        common.say(finding.private, style=SEVERITY_STYLES[finding.severity])
    if any(len(finding.places) > MAX_PLACES for finding in findings):
        common.say("All names: cape validate ... --out FILE")
    if findings:
        common.say("")


def _counts(checked: FolderCheck) -> tuple[int, int, int]:
    subjects = sum(site.n_subjects for site in checked.accepted.values())
    errors = sum(finding.severity == "E" for finding in checked.findings)
    return subjects, errors, len(checked.findings) - errors


def _verdict(checked: FolderCheck, *, strict: bool) -> str:
    subjects, errors, others = _counts(checked)
    if errors or (strict and others):
        return f"NOT READY: {number_of(errors, 'error')}, {number_of(others, 'warning')}"
    ready = "READY as far as headers and tables tell" if checked.headers_only else "READY"
    n = checked.counted.listed - checked.counted.counted
    zeros = f", {n} of whom {'counts' if n == 1 else 'count'} as zeros" if n else ""
    return f"{ready}: {number_of(subjects, 'subject')}{zeros}, {number_of(others, 'warning')}"


def _exit_code(checked: FolderCheck, *, strict: bool) -> int:
    errors = {finding.code for finding in checked.findings if finding.severity == "E"}
    if errors:
        # Scripts can tell a refusal by policy from a fault of the data.
        return 3 if errors <= set(REFUSED) else 1
    return 1 if strict and checked.findings else 0


def _print_json(checked: FolderCheck, *, strict: bool) -> None:
    for check in checked.sites:
        needs = check.inspection.needs
        subjects = [dict(zip(SUBJECT_COLUMNS, row, strict=True)) for row in _subject_rows(check)]
        common.json_line(
            {
                "event": "site",
                "site": check.site,
                "ready": check.ready,
                "seconds": check.seconds,
                "memory": needs.memory if needs else None,
                "disk": needs.disk if needs else None,
                "subjects": subjects,
                "left_out": list(check.inspection.left_out),
                "counts": list(check.counts),
                "lacks": list(check.lacks),
                "findings": [_document(finding) for finding in check.findings],
            }
        )
    n_subjects, errors, others = _counts(checked)
    figures = {"subjects": n_subjects, "errors": errors, "warnings": others}
    common.result(
        {
            "headers_only": checked.headers_only,
            "ready": _exit_code(checked, strict=strict) == 0,
            **figures,
            "compared": list(checked.accepted),
            "handshake": [_document(finding) for finding in checked.handshake],
        },
        as_json=True,
    )


def _document(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "text": finding.private,
        "public": finding.public,
        "places": list(finding.places),
    }


def _write_table(checked: FolderCheck, path: Path) -> None:
    from cape.data.issues import in_full
    from cape.delimited import written_cell
    from cape.site.files import write_atomically

    # Findings name files, so this table is for the site only.
    lines = ["\t".join(("site", *SUBJECT_COLUMNS))]
    for check in checked.sites:
        rows = ((check.site, *row) for row in _subject_rows(check))
        lines += ["\t".join(map(written_cell, row)) for row in rows]
    # Readers of tables skip comments.
    findings = in_full(checked.findings).splitlines()
    lines += [f"# {line}".replace("\t", " ") for line in findings]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("\n".join(lines) + "\n").encode("utf-8", "replace"))
