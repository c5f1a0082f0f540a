"""The classes that FLARE builds from a job: `Site` at every site, `Aggregator` at the server.

The only module that imports nvflare (extra ``nvflare``); a job names both classes by their paths.
FLARE's filters, encryption and secure aggregation are never used: they act on model weights, and
would double the noise or destroy the modular sum.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from cape.engines.coinstac.computation import write_error
from cape.engines.flare.job import maps_in
from cape.engines.flare.rounds import AggregatorRounds, SiteRounds
from cape.engines.flare.site_file import SiteFile, read_aggregator_file, read_site_file
from cape.errors import ReportedError, public_text
from cape.site.places import SitePlaces

# A key that tells FLARE's builder that a mapping of settings is no component.
PLAIN_MAPPING = {"config_type": "dict"}


class Site:
    """A site; its own file has all that is not in the messages."""

    def __init__(self) -> None:
        self._rounds: SiteRounds | None = None

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, blob: bytes) -> bytes:
        return self._of_this_job().answer(blob, _submitter())

    @collab.publish  # type: ignore[untyped-decorator]
    def deliver(self, run: str, files: dict[str, bytes]) -> bytes:
        return self._of_this_job().deliver(run, files)

    @collab.final  # type: ignore[untyped-decorator]
    def leave(self) -> None:
        """Free the uncharged reserve of the run, however the job ends."""
        if self._rounds is not None:
            self._rounds.leave()

    def _of_this_job(self) -> SiteRounds:
        # FLARE gives name and folder only in a call.
        if self._rounds is None:
            site, local = str(collab.site_name), Path(collab.workspace.get_site_config_dir())

            def open_own() -> SiteFile:
                return read_site_file(local, site)

            self._rounds = SiteRounds(site, open_own, SitePlaces.from_environment(os.environ))
        return self._rounds


class Aggregator:
    """The aggregator of a run; `patience` and `join_patience` are in seconds."""

    def __init__(
        self, run: str, settings: dict[str, Any], patience: float, join_patience: float
    ) -> None:
        self._run = run
        self._settings = {k: v for k, v in settings.items() if k not in PLAIN_MAPPING}
        self._patience, self._join_patience = patience, join_patience

    @collab.main  # type: ignore[untyped-decorator]
    def play(self) -> None:
        try:
            self._play()
        except Exception as err:
            # FLARE logs the traceback: raise an error with the public text only.
            raise RuntimeError(public_text(err)) from None

    def _play(self) -> None:
        workspace, context = collab.workspace, collab.fl_ctx
        own = read_aggregator_file(
            Path(workspace.get_site_config_dir()), Path(workspace.get_root_dir())
        )
        rounds = AggregatorRounds(self._run, self._settings, Path(own.runs))
        names = sorted(client.name for client in collab.clients)
        # The files that the owner gets by downloading the job.
        run_folder = Path(workspace.get_result_root(context.get_job_id()))
        try:
            state = rounds.play(names, ask, join=self._join_patience, round=self._patience)
        except Exception as err:
            write_error(rounds.home / "output", err)
            write_error(run_folder / "cape", ReportedError(public_text(err)))
            raise
        job_folder = Path(workspace.get_app_config_dir(context.get_job_id()))
        if (maps := maps_in(job_folder)) is not None:
            rounds.show(maps)
        shutil.copytree(rounds.results, run_folder / "cape", dirs_exist_ok=True)
        connected = [site for site in state.remaining if site in names]
        if connected:
            # A site that fails here only lacks the pages.
            collab.get_clients(connected)(timeout=self._patience, optional=True).deliver(
                self._run, rounds.files()
            )


def ask(blobs: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes]]:
    """Ask all sites at the same time; yield (site, answer) as they arrive."""
    here = {client.name for client in collab.clients}
    together: dict[bytes, list[str]] = {}
    for site, blob in blobs.items():
        if site in here:
            together.setdefault(blob, []).append(site)
    calls = [
        collab.get_clients(sites)(blocking=False, timeout=timeout, optional=True).answer(blob)
        for blob, sites in together.items()
    ]
    for call in calls:
        yield from call


def _submitter() -> str:
    # The owner of the run, as named by the server; a site's policy may list the owners it answers.
    meta = collab.fl_ctx.get_prop("__job_meta__") or {}
    return str(meta.get("submitter_name", "")) if isinstance(meta, Mapping) else ""
