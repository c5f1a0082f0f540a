"""Commands about runs on this computer: ``cape simulate``, ``rerun``, ``synth``, ``report``."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from cape.cli import common
from cape.cli.progress import RunProgress

if TYPE_CHECKING:
    from cape.site.policy import SitePolicy


# Choices for typer; `cape.simulation` and `cape.lab.synthetic` implement them.
Through = Literal["memory", "wire", "process", "docker", "coinstac", "nvflare"]
PresetName = Literal[
    "brain", "groups", "two-sided", "smooth", "paper", "realistic", "volumes", "volumes-bd",
    "records",
]  # fmt: skip
LayoutName = Literal["files", "manifest", "bids", "fmriprep", "matrix", "atlas"]


def simulate_command(
    directory: Path,
    out: Path | None = None,
    settings: Path | None = None,
    through: Through = "memory",
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int | None = None,
    drop: list[str] | None = None,
    policy_file: Path | None = None,
    image: str = "",
    memory: str = "",
    computation: str | None = None,
    maps: Path | None = None,
    replace: bool = False,
    pages: Literal["first", "all"] = "first",
    set_values: common.SetValues = None,
    show: common.Show = False,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Run the computation with all sites on this computer, with the code of a real run."""
    from cape.planning.consortium_folder import settings_beside
    from cape.python.api import simulate
    from cape.simulation.simulate import policy_of_all, refused_by_policies

    out = out or Path("answer" if maps else "out")
    overrides = common.assignments(set_values) | common.present(
        computation=computation, epsilon=epsilon, delta=delta
    )
    if settings is None and settings_beside(directory) is None:
        common.warn_no_settings(directory, as_json=as_json)
    policy_file = common.policy_here(policy_file, quiet=quiet or as_json)
    for who in () if policy_file else refused_by_policies(directory, overrides, maps, settings):
        common.warn(f"a real run would be refused by {who} (cape policy)", as_json=as_json)
    policy = None if policy_file is None else policy_of_all(policy_file)
    ledger = _ledger_of(policy)
    if ledger is not None and not ledger.exists():
        # Else a mistyped name, or lost files, forget all earlier runs without a word.
        common.warn(f"a new ledger begins: {ledger}", as_json=as_json)
    charges = ledger is not None
    # Synthetic people lose nothing; a policy that was named is expected to charge.
    synthetic = quiet or as_json or (directory / "truth.npz").is_file()
    if not charges and (policy_file or not synthetic):
        why = "no policy with a ledger is named (--policy)"
        why = f"{policy_file} names no ledger_file" if policy_file else why
        common.warn(f"nothing is charged: {why}; real people pay for each run", as_json=as_json)
    # Before it is spent: near its end a run has charged nearly all of its epsilon.
    if not quiet and (text := _if_stopped(through, charges=charges, replace=replace)):
        common.warn(text, as_json=as_json)
    begin = functools.partial(
        simulate,
        through=through,
        settings=overrides,
        settings_file=settings,
        seed=seed,
        drops=drop or (),
        policy=policy,
        image=image,
        memory=memory,
        maps=maps,
        replace=replace,
        all_pages=pages == "all",
    )
    again = "the same command without --replace" if replace else "the same command"
    _follow(begin, directory, policy, out, again, show=show, as_json=as_json, quiet=quiet)


def _if_stopped(through: str, *, charges: bool, replace: bool) -> str:
    """Return what is lost if a run is stopped; empty if it goes on and charges nothing."""
    from cape.settings.wings import LABORATORY, require
    from cape.simulation.ways import WAYS

    if through not in WAYS:
        require(LABORATORY, f"through={through}")
        from cape.lab.engines.ways import find_any_way

        find_any_way(through)  # one that is not here is told alone
        then = "begins, and charges, anew" if charges else "begins anew"
        return f"a run through {through} that is stopped cannot go on: typed again, it {then}"
    typed = "typed again without --replace" if replace else "typed again"
    kept = f"a run that is stopped keeps its charges; {typed}, it goes on with the rest of its plan"
    return kept if charges else ""


def rerun_command(
    finished: Path,
    out: Path,
    show: common.Show = False,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Repeat a finished simulation from its own files; new noise, if any, is charged again."""
    from cape.python.api import rerun
    from cape.simulation.run_loop import read_setup

    policy = read_setup(finished).policy
    if ledger := _ledger_of(policy):
        common.warn(f"the ledger {ledger} charges this run again", as_json=as_json)
    again = "the same command"
    _follow(rerun, finished, policy, out, again, show=show, as_json=as_json, quiet=quiet)


def _ledger_of(policy: SitePolicy | None) -> Path | None:
    from cape.site.policy import NO_LEDGER

    if policy is None or policy.ledger_file in ("", NO_LEDGER):
        return None
    return Path(policy.ledger_file)


def _charged_by(ledger: Path | None) -> dict[str, float]:
    """Return what each run of a ledger charged, as epsilon; that of a site for each site."""
    from cape.site.ledger_file import read_ledger

    if ledger is None or not ledger.is_file():
        return {}
    runs = [run for run in read_ledger(ledger).runs if run.charges]
    return {run.run: math.inf if (e := run.cost.epsilon(run.delta)) is None else e for run in runs}


def _follow(
    begin: Callable[..., Path],
    folder: Path,
    policy: SitePolicy | None,
    out: Path,
    again: str,
    *,
    show: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Start a run, show its progress, and print its results; `again` goes on if it is stopped."""
    from cape.cli.ending import print_results

    ledger = _ledger_of(policy)
    before = _charged_by(ledger)
    try:
        with RunProgress(as_json=as_json, quiet=quiet) as progress:
            results = begin(folder, out=out, on_progress=progress, on_subject=progress.subject)
    except BaseException as err:  # Ctrl-C above all
        from cape.simulation.run_loop import was_stopped
        from cape.simulation.simulate import may_go_on

        if was_stopped(err):
            goes_on = may_go_on(out)
            then = f"{again} goes on where it stopped"
            then = then if goes_on else "the same command starts it again"
            text = f"the run was stopped; {then}"
            now = _charged_by(ledger)
            if spent := max((now[run] for run in now.keys() - before.keys()), default=0.0):
                from cape.privacy.accounting import display_epsilon

                text += f". Epsilon {display_epsilon(spent)} was charged and stays (cape ledger "
                then = (
                    "going on charges the rest of its plan"
                    if goes_on
                    else "a new start charges anew"
                )
                text += f"--file {shlex.quote(str(ledger))}); {then}"
            common.warn(text, as_json=as_json)
        raise
    print_results(results, as_json=as_json, quiet=quiet, show=show)


def synth_command(
    out: Path,
    preset: PresetName = "brain",
    sites: int = 4,
    subjects: int = 0,
    site_sizes: str = "",
    timepoints: int = 0,
    grid: int = 10,
    networks: int = 0,
    tr: float = 2.0,
    seed: int = 0,
    layout: LayoutName = "files",
    voxel: float = 2.0,
    templates: float = 0.0,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Write a synthetic consortium, with its true maps (truth.npz) but in layout fmriprep."""
    from cape.lab.synthetic.consortium import Request, write_consortium

    with common.working(f"writing {out}", quiet=quiet or as_json) as progress:
        summary = write_consortium(
            out,
            Request(
                preset=preset,
                n_sites=sites,
                n_subjects=subjects,
                site_sizes=_whole_numbers(site_sizes),
                n_timepoints=timepoints,
                grid_mm=grid,
                n_networks=networks,
                tr=tr,
                seed=seed,
                layout=layout,
                templates=templates,
                voxel_mm=voxel,
            ),
            progress=progress,
        )
    sizes = ", ".join(str(size) for size in summary.site_sizes)
    megabytes = f"{summary.n_bytes / 1e6:.0f} MB"
    summary_line = f"{out}: subjects per site {sizes}; {summary.n_features} features; {megabytes}"
    where = shlex.quote(str(out))
    do = f"next: cape simulate {where} --out out --epsilon 8 --delta 1e-5"
    lines = (summary_line, f"next: cape init {where}" if layout == "fmriprep" else do)
    fields = {**dataclasses.asdict(summary), "folder": str(out)}
    common.result(fields, *(() if quiet else lines), as_json=as_json)


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise typer.BadParameter(f"--site-sizes {text}: whole numbers such as 9,6,4") from None


def report_command(
    folder: Path,
    template: str | None = None,
    names: Path | None = None,
    maps: Path | None = None,
    out: Path | None = None,
    registry: bool = False,
    contact: str = "",
    purpose: str = "",
    as_json: common.AsJson = False,
) -> None:
    """Rebuild the pages from the result files beside them."""
    from cape.data.templates import digest_with, maps_with_names
    from cape.report import Brought, add_maps, copied, rebuild, relabel

    if registry:
        from cape.cli.registry import registry_entry

        if not (contact and purpose):
            raise typer.BadParameter("--registry needs --contact and --purpose")
        entry = registry_entry(folder, contact=contact, purpose=purpose)
        common.result(entry, json.dumps(entry, indent=2, ensure_ascii=False), as_json=as_json)
        return

    # Names need maps to belong to.
    if template is None and names is not None:
        raise typer.BadParameter("--names needs --template")
    folder = folder if out is None else copied(folder, out)
    if maps is not None:
        inside = folder / "consortium"
        path, labels = maps_with_names(maps)
        brought = Brought(path=path, labels=labels)
        pages = [add_maps(inside if inside.is_dir() else folder, brought, digest_with)]
    else:
        pages = rebuild(folder) if template is None else [relabel(folder, template, names)]
    paths = {_page_name(page): str(page) for page in pages}
    common.result({"paths": paths}, *map(str, pages), as_json=as_json)


def _page_name(page: Path) -> str:
    # All pages are called index.html, so a site's page is named with its folder.
    private = page.parent.name == "private"
    return f"{page.parent.parent.name}/private/{page.name}" if private else page.name
