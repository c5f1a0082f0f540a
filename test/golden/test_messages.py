"""Messages of format 1, stored once: they decode for ever, and encode to the same bytes.

`messages_v1.json` is never written again after a release.  Before the first one,
``python test/golden/test_messages.py`` makes it anew.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.privacy.cost import Event
from cape.protocol import wire
from cape.protocol.messages import (
    FORMAT,
    Closing,
    Done,
    FeatureSpace,
    Fingerprint,
    KeyBook,
    Masked,
    Progress,
    PublicKey,
    SiteCard,
)
from cape.protocol.model import Roster, RosterEntry

GOLDEN = Path(__file__).with_name("messages_v1.json")

SPACE = FeatureSpace(
    kind="mask",
    shape=(2, 2, 2),
    affine=(-8.0, 0.0, 0.0, 90.0, 0.0, 8.0, 0.0, -126.0, 0.0, 0.0, 8.0, -72.0, 0.0, 0.0, 0.0, 1.0),
    packed="eNpjZGBgYIRiGGBEogEAhAAG",
    n_features=5,
    digest="00" * 32,
)
EVENT = Event(
    phase="pca",
    round=1,
    field="projector",
    shape="psd",
    size=5050,
    log2_gamma=17,
    clip_int=586171,
    delta_int=828994,
    variance=7970512855801,
    shares=3,
)
EXAMPLES: dict[str, Any] = {
    "FeatureSpace": SPACE,
    "SiteCard": SiteCard(
        protocol=1,
        version="0.1.0",
        computation="capedjica",
        settings='{"epsilon":1.0}',
        nonce="0f" * 16,
        n_subjects=12,
        space=SPACE,
        noise="os",
    ),
    "Roster": Roster(
        sites=(
            RosterEntry(site="local0", nonce="0f" * 16, n_subjects=12),
            RosterEntry(site="local1", nonce="f0" * 16, n_subjects=7),
        ),
        config="ab" * 32,
        space=SPACE,
        n_basis=4,
        colluders=1,
        survivors=2,
        seeded=False,
        plan=(EVENT,),
        warnings=("one", "two"),
    ),
    "PublicKey": PublicKey(public_key="cd" * 32),
    "KeyBook": KeyBook(public_keys=("cd" * 32, "ef" * 32)),
    "Masked": Masked(total=np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64), refused=False),
    "Fingerprint": Fingerprint(fingerprint="0123456789abcdef"),
    "Done": Done(written=True),
    "Closing": Closing(status="converged"),
    "Progress": Progress(
        phase="iterate",
        round=3,
        rounds=40,
        exchange=9,
        exchanges=47,
        mu=0.1,
        mu_budget=0.25,
        epsilon=0.34,
        step=0.5,
        stability=0.0,
    ),
}


def canonical(message: Any) -> str:
    return wire.dumps(wire.encode(message, type(message))).decode()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_message_of_format_1_decodes_and_encodes_to_the_same_bytes(name: str) -> None:
    stored = json.loads(GOLDEN.read_text())[name]
    message = EXAMPLES[name]
    back = wire.decode(wire.loads(stored), type(message))
    assert canonical(back) == stored == canonical(message)


def test_the_packed_labels_of_format_1_unpack() -> None:
    back = wire.decode(wire.loads(json.loads(GOLDEN.read_text())["FeatureSpace"]), FeatureSpace)
    assert back.labels().ravel().tolist() == [1, 1, 1, 0, 0, 1, 0, 1]


def test_the_format_of_the_golden_file_is_the_current_one() -> None:
    assert FORMAT == 1
    assert set(json.loads(GOLDEN.read_text())) == set(EXAMPLES)


if __name__ == "__main__":
    content = {name: canonical(message) for name, message in EXAMPLES.items()}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
