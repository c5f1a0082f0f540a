"""COINSTAC, a site's half: `join` from the mapped files, then an answer for every broadcast."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cape.coinstac.documents import (
    PRODUCT,
    Document,
    EngineRequest,
    answer_of,
    decode_envelope,
    decode_run,
    encode_reply,
    identity_of,
    request_digest,
)
from cape.computations import load
from cape.config import Config
from cape.errors import CapeError, StoppedError
from cape.protocol import wire
from cape.protocol.outcome import SiteOutcome
from cape.protocol.phases import Computation, Run, accept, advance_site, respond, start
from cape.site.audit_log import log_reply, reply_entry
from cape.site.context import NO_REQUEST, Origin, SiteContext
from cape.site.files import (
    all_runs_of,
    noise_of,
    own_folders,
    policy_path,
    read_policy,
    software,
    write_record,
)
from cape.site.identity import identity_digest, unchanged_identity
from cape.site.journal import Journal
from cape.site.policy import SitePolicy
from cape.site.site_data import FileCache, FileSource

SITE_INPUTS = ("data", "manifest", "policy")
"""The only inputs that a site gives; all else is the owner's."""


def answer_request(call: EngineRequest) -> Document:
    journal = Journal(call.output, call.party)
    return _first_round(call, journal) if call.cache is None else _next_round(call, journal)


def _first_round(call: EngineRequest, journal: Journal) -> Document:
    """Answer `join` from the mapped files and the owner's settings."""
    call.expect(1)
    (call.output / "site-error.txt").unlink(missing_ok=True)  # of an earlier run
    request = _digest([call.input, _listing(call.base)])
    stored = journal.first_answer(request)
    if stored is not None:
        return _with_key(stored, os.urandom(32))  # nothing is sealed before the second round
    given = {name: call.input[name] for name in SITE_INPUTS if name in call.input}
    settings = {name: v for name, v in call.input.items() if name not in (*SITE_INPUTS, "start")}
    computation = load(str(settings.pop("computation", PRODUCT)))
    config = computation.config.from_input(settings)
    memo = FileCache(call.working, call.party)
    memo.forget()
    vault_key = os.urandom(32)
    party = _party(call, computation, config, journal, given, vault_key, NO_REQUEST)
    state, envelope = advance_site(start(computation.bind(config)), None, party)
    nonce = envelope.body.nonce
    journal.begin(nonce)
    given |= {
        "card": list(party.card),
        "policy_at_join": dataclasses.asdict(party.policy),
        "identity": identity_digest(own_folders(call.base)),
    }
    if isinstance(party.source, FileSource):
        given["contents"] = party.source.contents  # no other files are read in this run
    journal.give(given)
    return _answered(call, journal, computation, state, envelope, nonce, vault_key, request)


def _next_round(call: EngineRequest, journal: Journal) -> Document:
    """Answer a broadcast of the aggregator."""
    cache = call.cache or {}
    computation, nonce, vault_key = identity_of(cache, f"site {call.party}")
    state = decode_run(computation, cache, party=f"site {call.party}")
    journal.resume(nonce)
    request = _digest(call.input)
    last = call.input.get("phase") == state.bound.last
    if not last or _has_receipt(journal):  # the last phase draws nothing and may be done again
        stored = journal.answered(state.cursor.seq + 1, request)
        if stored is not None:
            log_reply(journal, computation, state.config, stored["output"])
            return _with_key(stored, vault_key)
    envelope = decode_envelope(call.input, state.phase.broadcast, broadcast=True)
    done = last and not _has_receipt(journal)  # all files were written, the answer was lost
    given = {} if done else journal.given()
    digest = request_digest(envelope)
    party = _party(call, computation, state.config, journal, given, vault_key, digest)
    state = accept(state, envelope, party)  # a message that does not belong ends nothing
    call.expect(state.cursor.seq)
    try:
        state, reply = respond(state, party)
    except StoppedError:
        raise  # it may be asked again
    except CapeError:
        journal.burn()  # the run ends here
        raise
    if last:
        answer = answer_of(computation, state, encode_reply(reply), nonce, vault_key)
        if not done:
            from cape.report import append_sent

            line = reply_entry(answer["output"], type(reply.body).__name__)
            append_sent(call.output / "private", line)
        FileCache(call.working, call.party).forget()
        journal.clear()
        return answer
    return _answered(call, journal, computation, state, reply, nonce, vault_key, request)


def _has_receipt(journal: Journal) -> bool:
    try:
        journal.receipt()
    except CapeError:
        return False
    return True


def _answered(
    call: EngineRequest,
    journal: Journal,
    computation: Computation[Any],
    state: Run[Any],
    reply: Any,
    nonce: str,
    vault_key: bytes,
    request: str,
) -> Document:
    """Store the answer, then return it: charge, draw, journal, send."""
    seq = state.cursor.seq
    answer = answer_of(computation, state, encode_reply(reply), nonce, vault_key)
    # The key of the vault stands in the cache alone: never in a file beside the vault.
    journal.store(seq, request, _with_key(answer, b""))
    log_reply(journal, computation, state.config, answer["output"])
    return answer


def _with_key(answer: Document, vault_key: bytes) -> Document:
    """Return an answer with that vault key in its cache."""
    cache = {**answer["cache"]["cape"], "vault_key": vault_key.hex()}
    return {**answer, "cache": {"cape": cache}}


def _party(
    call: EngineRequest,
    computation: Computation[Any],
    config: Config,
    journal: Journal,
    given: Mapping[str, Any],
    vault_key: bytes,
    request: bytes,
) -> SiteContext:
    policy = read_policy(call.base, given, call.party)
    if "policy_at_join" in given:
        joined_with = SitePolicy.from_mapping(given["policy_at_join"])
        policy = joined_with.tightened(call.party, policy)

    def publish(result: SiteOutcome) -> None:
        from cape.report import write_site

        if "contents" in given:  # else `report` is repeated, and the files are there
            write_site(call.output, result, source.inside(policy, journal.all_sent()))

    source = FileSource(call.base, given, config, call.party, call.working)
    home = (policy_path(call.base, given) or call.base).parent
    all_runs = all_runs_of(policy, home, call.party, source, mapped=call.base)
    return SiteContext(
        site=call.party,
        computation=computation.name,
        config=config,
        noise=noise_of(policy),
        policy=policy,
        source=source,
        memo=FileCache(call.working, call.party, lambda: source.contents),
        request=request,
        on_charge=lambda line: journal.charge(dict(line)),
        keep=lambda name, secret: journal.keep(name, secret, vault_key, os.urandom(12)),
        secret=lambda name: journal.secret(name, vault_key),
        publish=publish,
        record=lambda result: write_record(call.output, result),
        card=given.get("card", ()),
        identity=lambda: unchanged_identity(
            own_folders(call.base), call.party, str(given.get("identity", ""))
        ),
        origin=Origin(owner=call.owner, digests=software(policy)),
        all_runs=all_runs,
    )


def _listing(base: Path) -> list[list[Any]]:
    """Return names, sizes and times of all files below: a changed file is another request.

    A link counts as itself and is not followed: a walk along links might not end, and what lies
    in the folder is listed where it lies.
    """
    found = []
    for folder, folders, names in os.walk(base):
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *linked):
            path = Path(folder, name)
            try:
                stat = path.lstat()
            except OSError:
                continue
            found.append([str(path.relative_to(base)), stat.st_size, stat.st_mtime_ns])
    return sorted(found)


def _digest(document: Any) -> str:
    return hashlib.sha256(wire.dumps(document)).hexdigest()
