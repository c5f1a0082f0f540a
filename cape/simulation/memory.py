"""A simulated run in one process: typed messages are handed over by reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cape.coinstac.documents import (
    decode_envelope,
    decode_run,
    encode_broadcast,
    encode_reply,
    encode_run,
    request_digest,
)
from cape.config import Config
from cape.errors import CapeError, StateLostError
from cape.protocol.messages import Progress
from cape.protocol.outcome import Outcome, SiteOutcome
from cape.protocol.phases import (
    AnyEnvelope,
    Computation,
    Run,
    advance_aggregator,
    advance_site,
    start,
)
from cape.protocol.ports import Source
from cape.report import append_sent, write_consortium, write_site
from cape.simulation.dropout import ActiveSites, Drop
from cape.site import files as site_files
from cape.site.audit_log import reply_entry
from cape.site.context import NO_REQUEST, AggregatorContext, Origin, SiteContext
from cape.site.identity import read_identity
from cape.site.ledger_file import AllRuns
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource, MemoryCache


class MemoryTransport:
    """Parties in one process; messages are handed over by reference."""

    def __init__(
        self,
        computation: Computation[Any],
        config: Config,
        sources: Mapping[str, Source],
        policy: SitePolicy,
        out: Path | None,
        *,
        drops: Sequence[Drop] = (),
    ) -> None:
        self._computation, self._config, self._out = computation, config, out
        survives = config.aggregation == "secagg"
        self.active = ActiveSites(list(sources), drops, survives=survives)
        self._vaults: dict[str, dict[str, bytes]] = {site: {} for site in sources}
        self._sent: dict[str, list[dict[str, Any]]] = {site: [] for site in sources}
        self._parties = {
            site: self._party(site, source, policy) for site, source in sources.items()
        }
        self._runs: dict[str, Run[Any]] = {s: start(computation.bind(config)) for s in sources}
        self._state = start(computation.bind(config))
        self._request: AnyEnvelope | None = None
        self._kept: dict[str, bytes] = {}
        self._sources = dict(sources)
        self.folders: dict[str, Path] = {}
        self.outcome: Outcome | None = None

    def _party(self, site: str, source: Source, policy: SitePolicy) -> SiteContext:
        vault = self._vaults[site]

        def secret(name: str) -> bytes:
            if name not in vault:
                raise StateLostError("E210", site=f"site {site}", what=name)
            return vault[name]

        def record(result: SiteOutcome) -> None:
            if self._out is not None:
                site_files.write_record(self._out / site / "output", result)

        def publish(result: SiteOutcome) -> None:
            if self._out is not None:
                sent = tuple(self._sent[site])
                known = source.inside(policy, sent) if isinstance(source, FileSource) else None
                write_site(self._out / site / "output", result, known)

        return SiteContext(
            site=site,
            computation=self._computation.name,
            config=self._config,
            noise=site_files.noise_of(policy),
            policy=policy,
            source=source,
            memo=MemoryCache(),
            request=NO_REQUEST,
            on_charge=lambda line: None,
            keep=vault.__setitem__,
            secret=secret,
            publish=publish,
            record=record,
            identity=lambda: read_identity([self.folders[site]], site),
            origin=Origin(digests=site_files.software(policy)),
            all_runs=self._all_runs(site, source, policy),
        )

    def _all_runs(self, site: str, source: Source, policy: SitePolicy) -> AllRuns | None:
        """Return the ledger of all runs; a policy in memory names it by its whole path."""
        if not isinstance(source, FileSource):
            return None
        return site_files.all_runs_of(policy, Path(), site, source)

    def _publish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._out is not None:
            write_consortium(self._out / "remote" / "transfer", outcome)

    def state(self) -> dict[str, Any]:
        """Return states, vaults and the last broadcast; working arrays can be made again."""
        request = self._request
        parties = {
            site: {
                "run": encode_run(self._computation, self._runs[site], capped=False),
                "vault": {name: raw.hex() for name, raw in self._vaults[site].items()},
                "card": list(self._parties[site].card),
                "contents": getattr(source, "contents", None),
                "sent": self._sent[site],
            }
            for site, source in self._sources.items()
        }
        return {
            "parties": parties,
            "aggregator": encode_run(self._computation, self._state, capped=False),
            "request": None if request is None else encode_broadcast(request),
            "kept": {name: raw.hex() for name, raw in self._kept.items()},
            "left": self.active.left,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; the sources hold what it says of their contents."""
        made_by = self._computation
        if set(state["parties"]) != set(self._parties):
            raise ValueError("a site is missing")
        for site, kept in state["parties"].items():
            self._runs[site] = decode_run(made_by, kept["run"], party=f"site {site}")
            vault = {name: bytes.fromhex(raw) for name, raw in kept["vault"].items()}
            self._vaults[site].update(vault)
            self._sent[site] = [dict(line) for line in kept["sent"]]
            self._parties[site].card = tuple(kept["card"])
        self._state = decode_run(made_by, state["aggregator"], party="the aggregator")
        self._kept = {name: bytes.fromhex(raw) for name, raw in state["kept"].items()}
        self.active.restore(state["left"])
        answered = self._runs[self.active.left[0]].cursor.phase
        kind = self._state.bound.phases[answered].broadcast
        self._request = decode_envelope(state["request"], kind, broadcast=True)

    def exchange(self) -> tuple[Progress | None, int]:
        """Let every site answer and the aggregator combine."""
        digest = NO_REQUEST if self._request is None else request_digest(self._request)
        inbox: dict[str, AnyEnvelope] = {}
        cursor = self._state.cursor
        for site in self.active.asked(cursor.phase, cursor.round):
            party = self._parties[site]
            party.request = digest
            try:
                self._runs[site], inbox[site] = advance_site(self._runs[site], self._request, party)
            except CapeError as err:
                self.active.failed(site, cursor.phase, err)
        lines = self._note(inbox)
        aggregator = AggregatorContext(
            config=self._config, publish=self._publish, request=digest, kept=self._kept
        )
        self._state, self._request, ended = advance_aggregator(self._state, inbox, aggregator)
        if ended and self._out is not None:
            for site, line in lines.items():
                append_sent(self._out / site / "output" / "private", line)
        size = int(next(iter(lines.values()))["bytes"])
        return (None if ended else self._request.progress), size

    def _note(self, inbox: Mapping[str, AnyEnvelope]) -> dict[str, dict[str, Any]]:
        """Put every reply on its site's list of what left it; returns the lines."""
        lines = {
            site: reply_entry(encode_reply(reply), type(reply.body).__name__)
            for site, reply in inbox.items()
        }
        for site, line in lines.items():
            self._sent[site].append(line)
        return lines
