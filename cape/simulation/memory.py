"""A simulated run in one process: typed messages are handed over by reference."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cape.data.folders import words_beside
from cape.engines.coinstac.computation import write_error
from cape.engines.coinstac.documents import (
    Document,
    decode_envelope,
    decode_run,
    encode_broadcast,
    encode_run,
    reply_document,
)
from cape.engines.coinstac.site import write_notice
from cape.errors import CapeError
from cape.frozen import dataclass
from cape.protocol import wire
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
from cape.simulation.run_loop import BEFORE_JOIN
from cape.simulation.transports import FIRST_PHASE, ActiveSites, Drop
from cape.site.context import RUN_SECRET, AggregatorContext, SiteContext
from cape.site.identity import IdentityFiles
from cape.site.ledger_file import LifetimeLedger, ledger_file_of
from cape.site.policy import NO_LEDGER, SitePolicy, tightened_beside
from cape.site.site_data import ArraySource, FileSource
from cape.site.store import Card, FileStore, JoinRecord, MemoryStore, ReplyEntry


def _all_runs(policy: SitePolicy, site: str, source: Source) -> LifetimeLedger | None:
    # A policy in memory names its ledger by an absolute path.
    file = ledger_file_of(policy, Path(), site)
    if file is None or not isinstance(source, FileSource | ArraySource):
        return None
    return LifetimeLedger(file=file, dataset_id=policy.dataset_id, data=source, place=site)


def _own_policy(policy: SitePolicy, folder: Path, site: str) -> SitePolicy:
    return tightened_beside(policy.saying(words_beside(folder)), folder, site)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SiteState:
    card: tuple[str, int, str, str, str]
    secrets: dict[str, bytes]
    entries: tuple[ReplyEntry, ...]
    contents: str  # fingerprint of the accepted files
    run: str  # its name in `_RunState.runs`, which most sites share


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunState:
    sites: dict[str, _SiteState]
    runs: dict[str, Any]
    remaining: tuple[str, ...]
    aggregator: Any
    kept: dict[str, bytes]
    request: Any


def _name(run: Run[Any]) -> str:
    # What was told and what was charged determine all else.
    return f"{run.transcript.hex()} {run.ledger.head if run.ledger else ''}"


def contents_of(state: Document) -> dict[str, dict[str, object]]:
    """Return for each site the listing that makes a source refuse other files (E161)."""
    return {site: {"contents": own["contents"]} for site, own in state["sites"].items()}


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
        folders = folders or {}
        self._computation, self._sources = computation, sources
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
                policy=_own_policy(policy, folders[site], site) if site in folders else policy,
                open_source=partial(sources.__getitem__, site),
                store=self._stores[site],
                open_keys=partial(IdentityFiles, folders=(folders[site],))
                if site in folders and config.key_trust == "pinned"
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
            # Others see that the run computes; before `join` has answered, it has no name.
            lock = nullcontext() if self._request is None else party.lock_run()
            try:
                with lock:
                    run = advance_site(self._runs[site], self._request, party)
                self._runs[site], inbox[site] = run
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

    def leave(self) -> None:
        """Free what a run that ended early holds in ledgers; a finished one holds nothing."""
        for party in self._parties.values():
            with suppress(CapeError, OSError):  # an unusable ledger keeps the reserve
                party.ended("failed")

    def state(self) -> Document:
        if self._request is None:
            raise TypeError("no exchange has ended")
        runs = {_name(run): run for run in self._runs.values()}
        state = _RunState(
            sites={
                site: _SiteState(
                    card=party.card,
                    secrets=self._stores[site].secrets,
                    entries=tuple(self._stores[site].entries),
                    contents=getattr(self._sources[site], "contents", ""),
                    run=_name(self._runs[site]),
                )
                for site, party in self._parties.items()
            },
            runs={name: encode_run(run) for name, run in runs.items()},
            remaining=self.active.remaining,
            aggregator=encode_run(self._state),
            kept=self._kept,
            request=encode_broadcast(self._request),
        )
        document: Document = wire.encode(state, _RunState)
        return document

    def go_on(self, state: Document) -> Progress:
        saved: _RunState = wire.decode_document(state, _RunState)
        self.active.remaining, self._kept = saved.remaining, saved.kept
        self._state = decode_run(self._computation, saved.aggregator, party="the aggregator")
        for site, own in saved.sites.items():
            store = self._stores[site]
            store.card, store.secrets = Card(*own.card), own.secrets
            store.entries = list(own.entries)
            del self._parties[site].noise  # of a run that did not begin
            self._runs[site] = decode_run(self._computation, saved.runs[own.run], party=site)
        asked = self._runs[saved.remaining[0]].phase.broadcast
        self._request = decode_envelope(saved.request, asked, broadcast=True)
        return self._request.progress or BEFORE_JOIN

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
