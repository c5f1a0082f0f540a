"""``cape validate``: read everything, print every problem with its remedy, spend nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cape.cli.show import OUT, duration, json_line, say, table, working

if TYPE_CHECKING:
    from cape.data import Finding, Subject
    from cape.planning.owner_settings import PlannedRelease
    from cape.planning.validate import Checked, OnProgress, SiteCheck
    from cape.site.policy import SitePolicy

STYLES = {"E": "bold red", "X": "yellow", "W": ""}
VERDICTS = {True: "ok", False: "left out"}
COLUMNS = ("subject", "runs", "T", "TR s", "grid", "coverage", "NaN", "rank", "verdict")
REFUSED = ("CAPE-E153", "CAPE-E154")
NOT_LOOKED_AT = (
    "Only headers and tables were read. NaN, constant data, coverage, rank, dummy scans, cut-off "
    "compressed files, complex numbers in .mat files and files with the same content are found "
    "without --fast, as in a run."
)


def validate(
    target: Annotated[
        Path,
        typer.Argument(
            exists=True,
            help="settings.toml, the folder of one site, or a consortium: one folder per site.",
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="A file, or one pattern such as '*.nii.gz'; repeat it for more files."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A table of runs.")
    ] = None,
    bids: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="A derivatives folder.")
    ] = None,
    matrix: Annotated[list[str] | None, typer.Option(help="As --data, for array files.")] = None,
    settings: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The owner's, beside TARGET by default."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The site's own policy file.")
    ] = None,
    site: Annotated[str, typer.Option(help="Name of the site in the messages.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Table of subjects and findings to write (.tsv); private.")
    ] = None,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of docs/config.md; repeat it."),
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Headers and tables only; the data are not looked at.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON for machines, one document a line.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result only.")] = False,
) -> None:
    """Check the data of a site, or of a whole consortium, before anything is spent."""
    from cape.cli.commands import assignments
    from cape.planning.owner_settings import read_settings as read
    from cape.planning.validate import Checked, check_folder, check_site

    given = _given([*(data or ()), *(matrix or ())], manifest, bids)
    asked = read(_settings_file(target, settings), assignments(set_values))
    allowed = _policy(policy, site)
    with _progress(as_json=as_json, quiet=quiet) as on_progress:
        if target.is_dir() and not given:
            checked = check_folder(
                target, asked, policy=allowed, site=site, on_progress=on_progress,
                headers_only=fast,
            )  # fmt: skip
        else:
            base = _base(target, manifest, bids)
            one = check_site(
                base, given, asked, site=site or base.resolve().name, policy=allowed,
                on_progress=on_progress, headers_only=fast,
            )  # fmt: skip
            checked = Checked(sites=(one,), handshake=(), headers_only=fast)
    if out is not None:
        _write(checked, out)
    if as_json:
        _show_json(checked, strict=strict)
    else:
        _show(checked, asked, quiet=quiet, strict=strict)
    raise typer.Exit(_exit_code(checked, strict=strict))


def _given(names: list[str], manifest: Path | None, bids: Path | None) -> dict[str, object]:
    """Return the one source of files that was named; typer.BadParameter for several."""
    given: dict[str, object] = {}
    if names:
        given["data"] = names[0] if len(names) == 1 else names
    if manifest is not None:
        given["manifest"] = manifest.name
    if bids is not None:
        given["bids"] = "."
    if len(given) > 1:
        raise typer.BadParameter("give one of --data, --manifest, --bids and --matrix")
    return given


def _base(target: Path, manifest: Path | None, bids: Path | None) -> Path:
    """Return the folder that names are relative to."""
    if manifest is not None:
        return manifest.parent
    if bids is not None:
        return bids
    return target if target.is_dir() else Path()


def _settings_file(target: Path, named: Path | None) -> Path | None:
    from cape.planning.owner_settings import settings_beside

    if named is not None or target.is_file():
        return named or target
    return settings_beside(target)


def _policy(path: Path | None, site: str) -> SitePolicy:
    """Return the policy of a file; without one, the defaults of a run."""
    from cape.site.files import read_policy

    if path is None:
        return read_policy(Path(), {}, site)
    return read_policy(path.parent, {"policy": path.name}, site)


class _progress:  # noqa: N801 - used as a function
    """Shows how far the reading is: a status on a terminal, else a line every tenth."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._status = working("reading", quiet=quiet or as_json)

    def __enter__(self) -> OnProgress:
        update = self._status.__enter__()

        def show(site: str, done: int, total: int) -> None:
            update(done, total)
            tenth = done == total or done * 10 // total > (done - 1) * 10 // total
            if self._as_json:
                json_line({"event": "progress", "site": site, "done": done, "total": total})
            elif tenth and not self._quiet and not OUT.is_terminal:
                say(f"{site}: {done} of {total} subjects read")

        return show

    def __exit__(self, *error: object) -> None:
        self._status.__exit__(None, None, None)


def rows_of(check: SiteCheck) -> list[tuple[str, ...]]:
    """Return one row of `COLUMNS` per subject that the site listed; private."""
    accepted = check.inspection.accepted
    chosen = {s.label for s in accepted.subjects} if accepted is not None else set()
    known = {subject.label: subject for subject in check.inspection.subjects}
    rows = []
    for label in check.inspection.labels:
        subject = known.get(label)
        if subject is None:
            rows.append((label, *["-"] * (len(COLUMNS) - 2), "not readable"))
            continue
        trs = ", ".join(f"{tr:g}" for tr in dict.fromkeys(subject.trs)) if any(subject.trs) else "-"
        verdict = VERDICTS[label in chosen] if accepted is not None else "read"
        rows.append((
            label, str(len(subject.runs)), str(subject.n_timepoints), trs, subject.grid,
            *_content_of(subject), verdict,
        ))  # fmt: skip
    return rows


def _content_of(subject: Subject) -> tuple[str, str, str]:
    """Return coverage, NaN and rank of a subject; dashes if its data were not looked at."""
    from cape.data.cleaning import UNREAD

    quality = subject.quality
    if quality is UNREAD:
        return "-", "-", "-"
    coverage, bad = f"{100 * quality.coverage:.0f} %", f"{100 * quality.bad_fraction:.2g} %"
    return coverage, bad, str(subject.rank)


def _show(checked: Checked, asked: PlannedRelease, *, quiet: bool, strict: bool) -> None:
    if not quiet:
        _show_settings(asked)
        for check in checked.sites:
            table(f"site {check.site}", COLUMNS, rows_of(check))
            _show_needs(check, headers_only=checked.headers_only)
            _show_findings(check.findings)
        if len(checked.sites) > 1:
            say(f"handshake of the sites: {_compared(checked)}")
        _show_findings(checked.handshake)
    if checked.headers_only and not quiet:
        say(NOT_LOOKED_AT)
    say(_verdict(checked, strict=strict), style="bold")


def _compared(checked: Checked) -> str:
    """Say whether sites fit, and which were not compared because their own checks failed."""
    seen = checked.compared
    missing = ", ".join(site.site for site in checked.sites if site.site not in seen)
    found = "see below" if checked.handshake else "they fit"
    if not missing:
        return found
    if not checked.handshake:
        found = f"{', '.join(seen)} fit" if len(seen) > 1 else "nothing was compared"
    return f"{found}; not compared: {missing}, see above"


def _show_settings(asked: PlannedRelease) -> None:
    config = asked.config
    space = config.mask if config.feature_space == "mask" else config.feature_space
    parts = [f"settings {config.digest()[:16]}", f"space {space}"]
    if n_components := getattr(config, "n_components", 0):
        parts.append(f"R {n_components}")
    parts.append(f"TR {config.tr:g} s" if config.tr else "TR any")
    if not asked.has_budget:
        parts.append("epsilon and delta not given: no plan is checked")
    say(" | ".join(parts))


def _show_needs(check: SiteCheck, *, headers_only: bool) -> None:
    accepted, needs = check.inspection.accepted, check.inspection.needs
    if accepted is not None:
        space = accepted.space
        shape = " x ".join(str(n) for n in space.shape)
        say(
            f"{space.kind} {shape} with {space.n_features} features, hash {space.digest[:16]}; "
            f"{len(accepted.subjects)} subjects, {len(accepted.excluded)} left out"
        )
    if needs is not None:
        memory = f"{needs.memory / 1e6:.0f} MB of memory ({_free(needs.free_memory)})"
        disk = f"{needs.disk / 1e6:.0f} MB of disk ({_free(needs.free_disk)})"
        reading = f"reading takes {duration(check.seconds)}, once or twice per run"
        say(f"needs {memory}, {disk}; " + ("reading was not timed" if headers_only else reading))


def _free(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB free" if n_bytes else "free space unknown"


def _show_findings(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        say(finding.private, style=STYLES[finding.severity])
    if findings:
        say("")


def _counts(checked: Checked) -> tuple[int, int, int]:
    found = checked.findings
    subjects = sum(
        len(check.inspection.accepted.subjects)
        for check in checked.sites
        if check.inspection.accepted is not None
    )
    errors = sum(finding.severity == "E" for finding in found)
    return subjects, errors, len(found) - errors


def _verdict(checked: Checked, *, strict: bool) -> str:
    subjects, errors, others = _counts(checked)
    if errors or (strict and others):
        return f"NOT READY: {errors} errors, {others} warnings"
    ready = "READY as far as headers and tables tell" if checked.headers_only else "READY"
    return f"{ready}: {subjects} subjects, {others} warnings"


def _exit_code(checked: Checked, *, strict: bool) -> int:
    errors = {finding.code for finding in checked.findings if finding.severity == "E"}
    if errors:
        return 3 if errors <= set(REFUSED) else 1
    return 1 if strict and checked.findings else 0


def _show_json(checked: Checked, *, strict: bool) -> None:
    for check in checked.sites:
        needs = check.inspection.needs
        json_line(
            {
                "event": "site",
                "site": check.site,
                "ready": check.ready,
                "seconds": check.seconds,
                "memory": needs.memory if needs else None,
                "disk": needs.disk if needs else None,
                "subjects": [dict(zip(COLUMNS, row, strict=True)) for row in rows_of(check)],
                "findings": [_document(finding) for finding in check.findings],
            }
        )
    subjects, errors, others = _counts(checked)
    json_line(
        {
            "event": "result",
            "headers_only": checked.headers_only,
            "ready": _exit_code(checked, strict=strict) == 0,
            "subjects": subjects,
            "errors": errors,
            "warnings": others,
            "compared": list(checked.compared),
            "handshake": [_document(finding) for finding in checked.handshake],
        }
    )


def _document(finding: Finding) -> Mapping[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "text": finding.private,
        "public": finding.public,
    }


def _write(checked: Checked, path: Path) -> None:
    """Write subjects and findings as one tab-separated table; it stays at the site."""
    lines = ["\t".join(("site", *COLUMNS))]
    for check in checked.sites:
        lines += ["\t".join((check.site, *row)) for row in rows_of(check)]
    lines += [f"# {finding.private}" for finding in checked.findings]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
