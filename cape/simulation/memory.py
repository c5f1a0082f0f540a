"""A simulated run in one process: typed messages are handed over by reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cape.data.folders import words_beside
from cape.engines.coinstac.computation import write_error
from cape.engines.coinstac.documents import reply_document
from cape.engines.coinstac.site import write_notice
from cape.errors import CapeError
from cape.protocol.messages import Progress
from cape.protocol.outcome import Outcome
from cape.protocol.phases import (
    AnyEnvelope,
    Computation,
    Run,
    advance_aggregator,
    advance_site,
    start,
)
from cape.protocol.ports import Source
from cape.settings.config import Config
from cape.simulation.dropout import FIRST_PHASE, ActiveSites, Drop
from cape.site.context import RUN_SECRET, AggregatorContext, SiteContext
from cape.site.identity import IdentityFiles
from cape.site.ledger_file import LifetimeLedger, ledger_file_of
from cape.site.policy import NO_LEDGER, SitePolicy, tightened_beside
from cape.site.site_data import FileSource
from cape.site.store import FileStore, JoinRecord, MemoryStore, ReplyEntry


def _all_runs(policy: SitePolicy, site: str, source: Source) -> LifetimeLedger | None:
    # A policy in memory names its ledger by an absolute path.
    file = ledger_file_of(policy, Path(), site)
    if file is None or not isinstance(source, FileSource):
        return None
    return LifetimeLedger(file=file, dataset_id=policy.dataset_id, data=source, place=site)


def _own_policy(policy: SitePolicy, folder: Path, site: str) -> SitePolicy:
    return tightened_beside(policy.saying(words_beside(folder)), folder, site)


class MemoryTransport:
    """All parties of a run; results are written below `out`, or kept in `outcome` if it is None."""

    def __init__(
        self,
        computation: Computation[Any],
        config: Config,
        sources: Mapping[str, Source],
        policy: SitePolicy,
        out: Path | None,
        *,
        drops: Sequence[Drop] = (),
        folders: Mapping[str, Path] | None = None,
    ) -> None:
        self._config, self._policy, self._out = config, policy, out
        survives = config.aggregation == "secagg"
        self.active = ActiveSites(list(sources), drops, survives=survives)
        self._stores = {
            site: MemoryStore(site, None if out is None else out / site / "output")
            for site in sources
        }
        self._parties = {
            site: SiteContext(
                site=site,
                computation=computation.name,
                config=config,
                policy=policy if folders is None else _own_policy(policy, folders[site], site),
                open_source=partial(sources.__getitem__, site),
                store=self._stores[site],
                open_keys=partial(IdentityFiles, folders=(folders[site],))
                if folders and config.key_trust == "pinned"
                else None,
                all_runs=_all_runs(policy, site, source),
                page=False,
            )
            for site, source in sources.items()
        }
        for site, party in self._parties.items():
            self._stores[site].keep(RUN_SECRET, party.new_run())
        self._runs: dict[str, Run[Any]] = {s: start(computation.bind(config)) for s in sources}
        self._state = start(computation.bind(config))
        self._request: AnyEnvelope | None = None
        self._kept: dict[str, bytes] = {}
        self.outcome: Outcome | None = None

    def exchange(self) -> tuple[Progress | None, int]:
        inbox: dict[str, AnyEnvelope] = {}
        entries: dict[str, ReplyEntry] = {}
        cursor = self._state.cursor
        for site in self.active.answering(cursor.phase, cursor.round):
            party = self._parties[site]
            try:
                self._runs[site], inbox[site] = advance_site(self._runs[site], self._request, party)
            except CapeError as err:
                if self._out is not None:
                    write_error(self._out / site / "output", err)
                err.explain(file=self._out is not None)  # one person has all data here
                party.ended("failed")
                self.active.failed(site, cursor.phase, err)
                continue
            name = type(inbox[site].body).__name__
            entries[site] = ReplyEntry.of(reply_document(inbox[site]), name)
            self._stores[site].entries.append(entries[site])
            if cursor.phase == FIRST_PHASE and self._out is not None:
                self._keep_journal(party, self._out / site / "output")
                write_notice(self._out / site / "output", party.source)
        folder = None if self._out is None else self._out / "remote" / "transfer"
        aggregator = AggregatorContext(
            config=self._config, kept=self._kept, folder=folder, addresses=True, page=False
        )
        self._state, self._request, ended = advance_aggregator(self._state, inbox, aggregator)
        self.outcome = aggregator.outcome
        if ended and self._out is not None:
            from cape.report import append_sent

            for site, entry in entries.items():
                append_sent(self._out / site / "output" / "private", dataclasses.asdict(entry))
        # The replies of all sites have the same number of bytes.
        size = next(iter(entries.values())).bytes
        return (None if ended else self._request.progress), size

    def _keep_journal(self, party: SiteContext, output: Path) -> None:
        """Write what frees the budget of a run whose process was killed (`leave_run`)."""
        if self._policy.ledger_file == NO_LEDGER:
            return
        journal = FileStore(output, output, party.id)
        journal.begin(party.card.nonce, b"")
        journal.write_join(
            JoinRecord(
                card=party.card, policy_at_join=self._policy, identity="", contents="", inputs={}
            )
        )
        journal.store(1, "", {})
