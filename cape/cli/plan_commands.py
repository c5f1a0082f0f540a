"""Commands before a run: ``cape init``, ``promise``, and ``budget``, which checks runs, too."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from cape.cli import common
from cape.cli.ledger_commands import PolicyOption

if TYPE_CHECKING:
    from cape.planning.validate import FolderCheck
    from cape.protocol.join import Entries

TableOrientation = Literal["time_by_feature", "feature_by_time"]


def init_command(
    folder: Path,
    out: Path | None = None,
    orientation: TableOrientation | None = None,
    filter: str = "",
    exclude: str = "",
    atlas: Path | None = None,
    maps: Path | None = None,
    replace: common.Replace = False,
    as_json: common.AsJson = False,
) -> None:
    """Look at the data in a folder, list them, and write a settings.toml for them."""
    from cape.data.folders import SETTINGS_FILE
    from cape.errors import ConfigError
    from cape.planning.consortium_folder import settings_beside
    from cape.planning.first_settings import InitOptions, adopting, propose

    path = out or folder / SETTINGS_FILE
    common.check_free(path, replace=replace)
    asked = InitOptions(
        folder=folder, bids_filter=filter, bids_exclude=exclude, orientation=orientation, maps=maps
    )
    with adopting(folder, atlas) as copies:
        proposal = propose(asked)
        try:
            path.write_text(proposal.text, encoding="utf-8")
        except OSError as err:
            problem = f"{path} cannot be written: {err.strerror}"
            raise ConfigError("E016", problem=problem, do="choose another --out.") from err
    written = [f"written: {place}" for place in copies]
    written += [_put(place, content, path.parent) for place, content in proposal.files.items()]
    fields = {"path": str(path), "found": list(proposal.counts), "text": proposal.text}
    then = f"cape validate {shlex.quote(str(folder))}"
    found = settings_beside(folder)
    if found is None or found.resolve() != path.resolve():  # `validate` would read others
        then += f" --settings {shlex.quote(str(path))}"
    do = f"written: {path}; read it, then: {then}"
    common.result(fields, *proposal.counts, *written, do, as_json=as_json)


def _put(place: Path, content: bytes, beside: Path) -> str:
    """Write a file into a site's folder, or beside the settings if that is read-only."""
    try:
        place.write_bytes(content)
    except OSError as err:
        (beside / place.name).write_bytes(content)
        return f"{place} cannot be written ({err.strerror}): copy {beside / place.name} there"
    return f"written: {place}"


def budget_command(
    folder: Path | None = None,
    check: list[Path] | None = None,
    subjects: int | None = None,
    sites: int | None = None,
    components: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    colluders: int | None = None,
    rounds: int | None = None,
    basis: int | None = None,
    computation: str = "",
    outcomes: int | None = None,
    share: float | None = None,
    settings: Path | None = None,
    policy: PolicyOption = None,
    set_values: common.SetValues = None,
    as_json: common.AsJson = False,
) -> None:
    """Forecast the cost and the results of a planned run, or --check a finished one."""
    if check:
        _check_files(check, as_json=as_json)
        return
    from cape.planning.consortium_folder import merged, read_file, settings_beside

    if folder is not None:
        settings = settings or settings_beside(folder)
    in_file = read_file(settings)
    typed = common.assignments(set_values) | common.present(computation=computation or None)
    in_words = str({**in_file, **typed}.get("n_sites", ""))
    sites = sites or (int(in_words) if in_words.isdecimal() else 0) or None
    counted: Entries = ()
    if folder is not None:
        checked = _checked(folder, merged(in_file, typed), as_json=as_json)
        known = (subjects, share, sites or len(checked.sites)) == (None, None, len(checked.sites))
        counted = checked.entries if known else ()
        here = sum(one.n_subjects for one in counted) or checked.counted.counted
        subjects, sites = subjects or here, sites or len(checked.sites)
    if subjects is None or sites is None:
        raise typer.BadParameter("give FOLDER, --subjects and --sites, or --check FILE")
    # Options win over --set.
    values = {"delta": 1e-5, **merged(in_file, typed)} | common.present(
        epsilon=epsilon,
        delta=delta,
        n_components=components,
        assumed_colluders=colluders,
        n_rounds=rounds,
        n_basis=basis,
    )
    from cape.cli.plan_text import print_comparison, print_plan, print_refusals
    from cape.forecast.comparison import USUAL_SHARE
    from cape.planning.budget import any_budget_of, plans_around
    from cape.planning.comparison_budget import PlannedComparison
    from cape.site.ledger_file import own_ledger
    from cape.site.policy import SitePolicy

    own = own_ledger(policy_path=policy)[1]
    plan = any_budget_of(
        values,
        n_sites=sites,
        n_subjects=subjects,
        n_outcomes=outcomes,
        share=USUAL_SHARE if share is None else share,
        counted=counted,
        policy=own,
    )
    common.result(dataclasses.asdict(plan), as_json=as_json)
    if as_json:
        return
    if isinstance(plan, PlannedComparison):
        print_comparison(plan)
    else:
        print_plan(plan, plans_around(values, plan))
    print_refusals(plan, is_shipped=own == SitePolicy())


def _checked(folder: Path, given: dict[str, object], *, as_json: bool) -> FolderCheck:
    """Say how many people of the sites in a folder count, by headers; return what was found."""
    from cape.planning.consortium_folder import read_settings
    from cape.planning.validate import check_folder
    from cape.site.policy import SitePolicy

    owner = read_settings(None, given)
    checked = check_folder(folder, owner, policy=SitePolicy(), headers_only=True)
    if not as_json:
        common.say(f"{checked.counted.sentence} By headers alone; cape validate reads data, too.")
    return checked


def _check_files(paths: Sequence[Path], *, as_json: bool) -> None:
    from cape.cli.privacy_check import check_file, together

    files = [check_file(path) for path in paths]
    total = together(files)
    names = ("path", "private", "epsilon", "claimed", "delta", "findings")
    rows = [
        {**{name: getattr(file, name) for name in names}, "same_run_as": total.same.get(i)}
        for i, file in enumerate(files)
    ]
    figures = {"epsilon_together": total.epsilon, "delta_together": total.delta}
    common.result({"files": rows, **figures}, as_json=as_json)
    for i, file in () if as_json else enumerate(files):
        epsilon = f"{file.epsilon:.6g}" if file.private else "infinite"
        stated = "none" if file.claimed is None else f"{file.claimed:.6g}"
        verdict = "WRONG" if file.findings else "ok"
        common.say(f"{verdict}: epsilon {epsilon} recomputed, {stated} stated, {file.path}")
        if i in total.same:
            common.say(f"  the same run as {total.same[i]}: counted once", style="yellow")
        for finding in file.findings:
            common.say(f"  {finding}", style="bold red")
    if total.runs > 1 and not as_json:
        common.say(
            f"all {total.runs} runs on the same subjects together: epsilon "
            f"{total.epsilon:.6g} at delta {total.delta:g}, the smallest of theirs"
        )
    # Scripts read the exit code.
    if any(file.findings for file in files):
        raise typer.Exit(1)


LANGUAGES: dict[str, tuple[str, ...]] = {"en": ("en",), "de": ("de",), "both": ("en", "de")}


def promise_command(
    settings: Path,
    sites: int | None = None,
    aggregator: str = "",
    language: Literal["en", "de", "both"] = "both",
    out: Path | None = None,
    replace: common.Replace = False,
    policy: PolicyOption = None,
    set_values: common.SetValues = None,
    as_json: common.AsJson = False,
) -> None:
    """Fill in the form for an ethics board and the text for participants."""
    from cape.planning.board import board_facts, board_texts
    from cape.planning.consortium_folder import read_settings
    from cape.site.ledger_file import own_ledger

    common.check_free(out, replace=replace)
    owner = read_settings(settings, common.assignments(set_values))
    n_sites = sites or owner.config.expected_sites
    if not n_sites:
        raise typer.BadParameter("the settings do not say n_sites; give --sites")
    common.policy_here(policy, quiet=as_json)
    facts = board_facts(
        owner, n_sites=n_sites, policy=own_ledger(policy_path=policy)[1], aggregator=aggregator
    )
    text = board_texts(facts, LANGUAGES[language])
    if out is not None:
        out.write_text(text, encoding="utf-8")
    line = text.rstrip("\n") if out is None else f"written: {out}"
    common.result({**facts, "text": text}, line, as_json=as_json)
