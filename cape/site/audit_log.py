"""A list of what left a site: one line per reply, without its content.

The line is the site's proof of what it sent: phase, round, message, the bytes of every field, and
the SHA-256 of the whole document.  It stays at the site.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from cape.config import Config
from cape.protocol import wire
from cape.protocol.phases import Computation
from cape.site.journal import Journal


def reply_entry(document: Mapping[str, Any], message: str) -> dict[str, Any]:
    """Return the line of a reply; its keys are `cape.report.private_summary.SENT_FIELDS`.

    Parameters
    ----------
    document : mapping
        The encoded reply.
    message : str
        Name of the type of its body.
    """
    whole = wire.dumps(document)
    return {
        "seq": document["seq"],
        "phase": document["phase"],
        "round": document["round"],
        "message": message,
        "fields": {name: len(wire.dumps(value)) for name, value in document["body"].items()},
        "bytes": len(whole),
        "sha256": hashlib.sha256(whole).hexdigest(),
    }


def log_reply(
    journal: Journal, computation: Computation[Any], config: Config, document: Mapping[str, Any]
) -> None:
    """Put a reply on the list that the site keeps in its journal."""
    message = computation.bind(config).phases[document["phase"]].reply.__name__
    journal.sent(reply_entry(document, message))
