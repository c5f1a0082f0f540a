"""A run and a charge as the ledger of all runs knows them."""

from typing import Any

from cape.privacy.spending import Charge, RunSpending


def run(name: str = "one", **changes: Any) -> RunSpending:
    values: dict[str, Any] = {
        "run": name,
        "dataset": "D",
        "people": frozenset({"a b", "c"}),
        "computation": "capedjica",
        "date": "2026-01-01",
        "epsilon": 1.0,
        "delta": 1e-5,
        "promised": True,
        "key": "k",
    }
    return RunSpending(**{**values, **changes})


def charge(round: int = 1, mu2: str = "1/4", part: Any = "") -> Charge:
    return Charge.of(phase="pca", round=round, field="total", mu2=mu2, part=part)
