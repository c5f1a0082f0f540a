"""Commands of engines: ``cape flare job``, ``site`` and ``server``, ``cape neuroflame``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cape.cli import common

if TYPE_CHECKING:
    from cape.engines.flare.site_file import AggregatorFile, SiteFile

flare = typer.Typer(
    name="flare",
    help="NVIDIA FLARE: write a job, and what each party keeps for itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_KIT = "The kit that FLARE's provisioning made for this party."
Kit = Annotated[Path, typer.Argument(exists=True, file_okay=False, help=_KIT)]
Runs = Annotated[Path, typer.Option(help="Folder for journals and results, one for every run.")]
Allow = Annotated[
    bool, typer.Option("--allow", help="Write these lines into local/resources.json too.")
]


@flare.command("job")
@common.with_options
def job_command(
    folder: Path,
    settings: Path | None = None,
    subjects: int | None = None,
    least: int = 0,
    patience: float = 600.0,
    join_patience: float = 3600.0,
    resume: Path | None = None,
    maps: Path | None = None,
    set_values: common.SetValues = None,
    as_json: common.AsJson = False,
) -> None:
    """Write a run as a job of FLARE: three JSON files without code, and perhaps public maps."""
    import dataclasses

    from cape.data.templates import file_of_maps
    from cape.engines.flare.job import JobPlan, new_run, read_job, write_job
    from cape.planning.consortium_folder import check_before_it_leaves, merged, read_file
    from cape.planning.judge import judge
    from cape.planning.public_maps import asking_of_maps, of_maps

    if resume is not None:
        if settings or set_values or subjects or maps:
            raise typer.BadParameter("--resume takes all of the earlier job: give nothing else")
        plan = read_job(resume)
        plan = dataclasses.replace(plan, least=least or plan.least)
    else:
        if least:
            do = "the first exchange needs every site; --least goes with --resume"
            raise typer.BadParameter(do)
        if subjects is None:
            raise typer.BadParameter("give --subjects: sites refuse a run of too few")
        in_file, given = read_file(settings), common.assignments(set_values)
        given = given if maps is None else asking_of_maps(in_file, given)
        run_settings = merged(in_file, given)
        if maps is not None:
            maps = file_of_maps(maps) or maps
            run_settings |= of_maps(maps, run_settings)
        judged = judge(run_settings, n_subjects=subjects).accepted()
        common.warn_of_policies(judged, as_json=as_json)
        named = {**run_settings, "computation": judged.computation.name}
        plan = JobPlan(
            run=new_run(),
            settings=named,
            patience=patience,
            join_patience=join_patience,
            maps="" if maps is None else str(maps),
        )
    check_before_it_leaves(str(plan.settings), resume or settings)
    write_job(folder, plan)
    do = f"next: nvflare job submit -j {shlex.quote(str(folder))} --startup-kit KIT"
    fields = {"run": plan.run, "job": str(folder)}
    common.result(fields, f"{folder}: run {plan.run}", do, as_json=as_json)


@flare.command("site")
@common.with_options
def site_command(
    kit: Kit,
    data: Path,
    runs: Runs,
    manifest: str = "",
    policy: Path | None = None,
    identity: Path | None = None,
    allow: Allow = False,
    as_json: common.AsJson = False,
) -> None:
    """Write the site's own file and print what its kit must allow."""
    from cape.engines.flare.site_file import SITE_CLASSES, SiteFile

    site_file = SiteFile(
        data=str(data.resolve()),
        runs=str(runs.resolve()),
        manifest=manifest,
        policy="" if policy is None else str(policy.resolve()),
        identity="" if identity is None else str(identity.resolve()),
    )
    _prepare(kit, "client", site_file, SITE_CLASSES, allow=allow, as_json=as_json)


@flare.command("server")
@common.with_options
def server_command(
    kit: Kit, runs: Runs, allow: Allow = False, as_json: common.AsJson = False
) -> None:
    """Write the aggregator's own file and print what the server's kit must allow."""
    from cape.engines.flare.site_file import SERVER_CLASSES, AggregatorFile

    aggregator_file = AggregatorFile(runs=str(runs.resolve()))
    _prepare(kit, "server", aggregator_file, SERVER_CLASSES, allow=allow, as_json=as_json)


def _prepare(
    kit: Path,
    party: Literal["client", "server"],
    party_file: SiteFile | AggregatorFile,
    classes: tuple[str, ...],
    *,
    allow: bool,
    as_json: bool,
) -> None:
    from cape.engines.flare import site_file
    from cape.settings.documents import not_default, toml_text

    local, flare_settings = kit / "local", site_file.settings_of_flare(kit, party)
    name = "cape-site.toml" if party == "client" else "cape-aggregator.toml"
    # For jobs and snapshots: a restart may empty FLARE's default folder.
    of_server = isinstance(party_file, site_file.AggregatorFile)
    stores = Path(party_file.runs) / "flare" if of_server else None
    resources, lines = site_file.allowing(flare_settings, classes, stores=stores)
    Path(party_file.runs).mkdir(mode=0o700, parents=True, exist_ok=True)
    (local / name).write_text(toml_text(not_default(party_file)), encoding="utf-8")
    if allow:
        site_file.write_resources(local, resources)
    where = "written into resources.json:" if allow else "needed in resources.json (or: --allow):"
    needed = (f"  {line}" for line in lines or ["nothing more"])
    fields = {"file": str(local / name), "lines": lines, "written": allow}
    common.result(fields, str(local / name), where, *needed, as_json=as_json)


def neuroflame_command(
    checkout: Path,
    settings: Path | None = None,
    subjects: int | None = None,
    set_values: common.SetValues = None,
    as_json: common.AsJson = False,
) -> None:
    """Copy the author files of this computation into a checkout of NeuroFLAME's boilerplate."""
    from cape.engines.neuroflame.author_files import lay
    from cape.planning.consortium_folder import check_before_it_leaves, merged, read_file
    from cape.planning.judge import judge

    parameters = None
    if settings is not None or set_values:
        parameters = merged(read_file(settings), common.assignments(set_values))
        judged = judge(parameters, n_subjects=subjects).accepted()
        common.warn_of_policies(judged, as_json=as_json)
        parameters |= {"computation": judged.computation.name}
        check_before_it_leaves(str(parameters), settings)
    paths = lay(checkout, parameters)
    lines = (f"written: {checkout / path}" for path in paths)
    common.result({"written": paths}, *lines, as_json=as_json)
