"""COINSTAC: one document in, one document out, the same for every way the engine calls us.

`run(role, document)` is the whole border; `program` and `serve` carry documents to it.  Here is
what a site does with a call; what the aggregator does is `cape.coinstac.aggregator`.  State
lives in the JSON cache under the one key ``cape`` (public values and the vault key), in the journal
below ``outputDirectory/.cape`` and, if it can be made again, below ``cacheDirectory``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cape.coinstac.aggregator import combined
from cape.coinstac.codec import (
    Document,
    answer_of,
    decode_envelope,
    decode_run,
    encode_reply,
    identity_of,
    request_digest,
)
from cape.coinstac.request import Call
from cape.coinstac.transfer import inline, offload
from cape.computations import load
from cape.config import Config
from cape.errors import CapeError, StoppedError, public_text
from cape.protocol import wire
from cape.protocol.outcome import SiteOutcome
from cape.protocol.phases import Computation, Run, accept, advance_site, start
from cape.site.atomic_files import only_one
from cape.site.audit_log import line_of, note
from cape.site.context import NO_REQUEST, Origin, SiteParty
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
from cape.site.site_data import FileMemo, FileSource

PRODUCT = "capedjica"
SITE_INPUTS = ("data", "manifest", "policy")
"""The only inputs that a site gives; all else is the owner's."""
MAX_DOCUMENT = 100 * 2**20


def run(role: str, document: Mapping[str, Any]) -> Document:
    """Answer one call of the engine.

    Parameters
    ----------
    role : {"local", "remote"}
        The engine's words for site and aggregator.
    document : mapping
        ``input``, ``cache``, ``state`` as the engine sends them.

    Returns
    -------
    dict
        ``output`` (always a mapping), ``cache``, ``success``.

    Raises
    ------
    CapeError
        Its public text may be shown to everybody; details are in the site's own files.
    """
    call = Call.of(role, document)
    party = f"site {call.party}" if role == "local" else "the aggregator"
    try:
        try:
            call.output.mkdir(parents=True, exist_ok=True)
            with only_one(call.output, party):
                call = dataclasses.replace(call, input=_arrived(call))
                answer = _site(call) if role == "local" else combined(call)
                return {**answer, "output": offload(answer["output"], call.transfer)}
        except OSError as err:  # not burnt: the same document may come again
            raise StoppedError("E261", party=party, detail=str(err)) from err
    except Exception as err:  # passed on
        _write_down(call, err)
        raise


def _arrived(call: Call) -> dict[str, Any]:
    """Return the input with the arrays that came as files beside it.

    The engine puts the files of a site into a folder of its name, those of the aggregator on top.
    """
    if call.cache is None and call.role == "local":
        return call.input  # the owner's settings
    if call.role == "local":
        return dict(inline(call.input, call.base))
    return {site: inline(reply, call.base / site) for site, reply in call.input.items()}


# -- a site --------------------------------------------------------------------------------------


def _site(call: Call) -> Document:
    journal = Journal(call.output, call.party)
    return _first_round(call, journal) if call.cache is None else _next_round(call, journal)


def _first_round(call: Call, journal: Journal) -> Document:
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
    memo = FileMemo(call.working, call.party)
    memo.forget()
    vault_key = os.urandom(32)
    party = _party(call, computation, config, journal, given, vault_key, NO_REQUEST)
    state, envelope = advance_site(computation, start(computation, config), None, party)
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


def _next_round(call: Call, journal: Journal) -> Document:
    """Answer a broadcast of the aggregator."""
    cache = call.cache or {}
    computation, nonce, vault_key = identity_of(cache, f"site {call.party}")
    state = decode_run(computation, cache, party=f"site {call.party}")
    journal.resume(nonce)
    request = _digest(call.input)
    last = call.input.get("phase") == list(computation.phases(state.config))[-1]
    if not last or _has_receipt(journal):  # the last phase draws nothing and may be done again
        stored = journal.answered(state.cursor.seq + 1, request)
        if stored is not None:
            note(journal, computation, state.config, stored["output"])
            return _with_key(stored, vault_key)
    broadcast = computation.phases(state.config)[state.cursor.phase].broadcast
    envelope = decode_envelope(call.input, broadcast, broadcast=True)
    done = last and not _has_receipt(journal)  # all files were written, the answer was lost
    given = {} if done else journal.given()
    digest = request_digest(envelope)
    party = _party(call, computation, state.config, journal, given, vault_key, digest)
    accept(computation, state, envelope, party)  # a message that does not belong ends nothing
    call.expect(state.cursor.seq + 1)
    try:
        state, reply = advance_site(computation, state, envelope, party)
    except StoppedError:
        raise  # it may be asked again
    except CapeError:
        journal.burn()  # the run ends here
        raise
    if last:
        answer = answer_of(computation, state, encode_reply(reply), nonce, vault_key)
        if not done:
            from cape.report import append_sent

            line = line_of(answer["output"], type(reply.body).__name__)
            append_sent(call.output / "private", line)
        FileMemo(call.working, call.party).forget()
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
    call: Call,
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
    note(journal, computation, state.config, answer["output"])
    return answer


def _with_key(answer: Document, vault_key: bytes) -> Document:
    """Return an answer with that vault key in its cache."""
    cache = {**answer["cache"]["cape"], "vault_key": vault_key.hex()}
    return {**answer, "cache": {"cape": cache}}


def _party(
    call: Call,
    computation: Computation[Any],
    config: Config,
    journal: Journal,
    given: Mapping[str, Any],
    vault_key: bytes,
    request: bytes,
) -> SiteParty:
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
    return SiteParty(
        site=call.party,
        computation=computation.name,
        config=config,
        noise=noise_of(policy),
        policy=policy,
        source=source,
        memo=FileMemo(call.working, call.party, lambda: source.contents),
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


# -- errors --------------------------------------------------------------------------------------


def _write_down(call: Call, err: Exception) -> None:
    """Leave what happened in the party's own folder: details never travel."""
    public = public_text(err)
    detail = err.detail if isinstance(err, CapeError) else traceback.format_exc()
    try:
        call.output.mkdir(parents=True, exist_ok=True)
        text = f"{public}\n\n{detail}".rstrip() + "\n"
        (call.output / "site-error.txt").write_text(text, encoding="utf-8")
    except OSError:
        return  # the public text still goes to the engine
