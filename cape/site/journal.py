"""What a site writes down so that no round is ever released twice.

Below ``outputDirectory/.cape/``, readable by the site's own user only::

    receipt.json           nonce, seq, request digest: proof that a round was answered
    <nonce>/<seq>.json     request digest and the answer of the last round, without the vault key
    <nonce>/ledger.jsonl   charges, written before any noise of a round is drawn
    <nonce>/vault          the key of this run, sealed under a key that stands in the cache alone
    <nonce>/sent.jsonl     fields, bytes and SHA-256 of every reply
    <nonce>/given.json     what the site mapped (names of its files): private, stays here

A repeated request gets the stored bytes; another request for an answered round is refused; a
request that is older than the receipt ends in "state lost".  The folder is removed by `report`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cape.errors import ReplayError, StateLostError
from cape.secagg.seals import open_sealed, seal
from cape.site.atomic_files import appending, write_atomically

DAMAGED = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What reading a damaged file of ours raises."""
KEPT = 1
"""Answers kept: the engine can only ask for the last one again."""


class Journal:
    """The working folder of one site for one run."""

    def __init__(self, output: Path, site: str) -> None:
        self._root = output / ".cape"
        self._site = site
        self._nonce = ""

    def _lost(self, what: str) -> StateLostError:
        return StateLostError("E210", site=f"site {self._site}", what=what)

    @property
    def _folder(self) -> Path:
        return self._root / self._nonce

    def begin(self, nonce: str) -> None:
        """Start a run: what an earlier one left behind never matches and is removed."""
        self.clear()
        self._nonce = nonce
        self._folder.mkdir(parents=True, mode=0o700)

    def resume(self, nonce: str) -> None:
        """Go on with the run of that nonce."""
        self._nonce = nonce

    def receipt(self) -> dict[str, Any]:
        """Return nonce, seq and request digest of the last answer; StateLostError if gone."""
        try:
            receipt = json.loads((self._root / "receipt.json").read_bytes())
            nonce, seq = str(receipt["nonce"]), int(receipt["seq"])
            return {"nonce": nonce, "seq": seq, "request": str(receipt["request"])}
        except (OSError, *DAMAGED):
            raise self._lost("receipt") from None

    def first_answer(self, request: str) -> dict[str, Any] | None:
        """Return the stored answer of a first round that is asked again, else None: a new run."""
        try:
            receipt = self.receipt()
        except StateLostError:
            return None
        if receipt["seq"] != 1 or receipt["request"] != request:
            return None
        self._nonce = receipt["nonce"]
        try:
            return self._stored(1, request)
        except StateLostError:
            return None  # nothing was released in the first round: it may be answered afresh

    def answered(self, seq: int, request: str) -> dict[str, Any] | None:
        """Return the stored answer if round `seq` was answered, None if it may be computed.

        Raises
        ------
        ReplayError
            Another request for an answered round.
        StateLostError
            The cache is older than the receipt, or the stored answer is gone.
        """
        receipt = self.receipt()
        if receipt["nonce"] != self._nonce:
            raise self._lost("journal of this run")
        if receipt["seq"] == seq - 1:
            return None
        if receipt["seq"] != seq:
            raise self._lost(f"cache of round {receipt['seq']}")
        return self._stored(seq, request)

    def _stored(self, seq: int, request: str) -> dict[str, Any]:
        try:
            stored = json.loads((self._folder / f"{seq}.json").read_bytes())
            known, answer = str(stored["request"]), stored["answer"]
        except (OSError, *DAMAGED):
            raise self._lost(f"answer of round {seq}") from None
        if known != request:
            raise ReplayError("E203", seq=seq)
        return dict(answer)

    def store(self, seq: int, request: str, answer: dict[str, Any]) -> None:
        """Write down an answer before any byte of it leaves."""
        text = json.dumps({"request": request, "answer": answer}, allow_nan=False)
        write_atomically(self._folder / f"{seq}.json", text.encode())
        receipt = {"nonce": self._nonce, "seq": seq, "request": request}
        write_atomically(self._root / "receipt.json", json.dumps(receipt).encode())
        (self._folder / f"{seq - KEPT}.json").unlink(missing_ok=True)

    def charge(self, line: dict[str, Any]) -> None:
        """Append a charge, once: a crash between charge and answer spends nothing twice."""
        text = json.dumps(line, sort_keys=True).encode("ascii")
        try:
            with appending(self._folder / "ledger.jsonl", f"site {self._site}") as (lines, append):
                if text not in lines:
                    append(text)
        except FileNotFoundError:
            raise self._lost("journal of this run") from None

    def sent(self, line: dict[str, Any]) -> None:
        """Append a line on a reply, once."""
        text = json.dumps(line).encode("ascii")
        with appending(self._folder / "sent.jsonl", f"site {self._site}") as (lines, append):
            if text not in lines:
                append(text)

    def all_sent(self) -> tuple[dict[str, Any], ...]:
        """Return the lines on all replies so far; none if they are gone: they guard nothing."""
        try:
            lines = (self._folder / "sent.jsonl").read_text(encoding="ascii").splitlines()
            return tuple(dict(json.loads(line)) for line in lines)
        except (OSError, ValueError, TypeError):
            return ()

    def keep(self, name: str, secret: bytes, key: bytes, entropy: bytes) -> None:
        """Seal a secret of this run under a key that is not stored here."""
        sealed = seal(key, secret, context=self._context(name), nonce=entropy)
        write_atomically(self._folder / f"vault-{name}", sealed)

    def secret(self, name: str, key: bytes) -> bytes:
        """Return a sealed secret; StateLostError if it is gone or damaged."""
        try:
            sealed = (self._folder / f"vault-{name}").read_bytes()
            return open_sealed(key, sealed, context=self._context(name))
        except Exception:  # missing, damaged, another key: all the same to the run
            raise self._lost("key of this run") from None

    def _context(self, name: str) -> bytes:
        return f"cape/1/vault {self._nonce} {name}".encode()

    def give(self, given: dict[str, Any]) -> None:
        """Write down what the site mapped; asked for again if working files are lost."""
        write_atomically(self._folder / "given.json", json.dumps(given).encode())

    def given(self) -> dict[str, Any]:
        """Return what the site mapped; StateLostError if it is gone."""
        try:
            return dict(json.loads((self._folder / "given.json").read_bytes()))
        except (OSError, *DAMAGED):
            raise self._lost("list of mapped files") from None

    def burn(self) -> None:
        """Remove the secrets of this run: it ends here."""
        for path in self._folder.glob("vault-*") if self._nonce else ():
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything, receipt included."""
        shutil.rmtree(self._root, ignore_errors=True)
