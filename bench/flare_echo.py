"""The parties of `bench/flare.py`: a run, and after each exchange its bytes once more, echoed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab

import cape.engines.flare.collab as ours


def _now() -> tuple[float, float]:
    """Return the wall and the CPU time of this process, s."""
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = _now()
    return wall - began[0], cpu - began[1]


class Site(ours.Site):
    def __init__(self) -> None:
        super().__init__()
        self._spent: list[tuple[float, float]] = []

    @collab.publish
    def answer(self, blob: bytes) -> bytes:
        began = _now()
        answer: bytes = self._of_this_job().answer(blob, "")
        self._spent.append(_since(began))
        return answer

    @collab.publish
    def echo(self, blob: bytes, size: int) -> bytes:
        return b"0" * size

    @collab.publish
    def spent(self) -> list[tuple[float, float]]:
        return self._spent


class Aggregator(ours.Aggregator):
    @collab.main
    def play(self) -> None:
        calls: list[dict[str, Any]] = []
        ask = ours.ask
        names = sorted(client.name for client in collab.clients)

        def echo() -> None:
            """End the exchange before, and send its bytes once more: under the same load."""
            call = calls[-1]
            call["run"], call["aggregator_cpu"] = _since(call.pop("began"))
            began = _now()
            waiting = collab.get_clients(names)(blocking=False, timeout=60.0)
            for _ in waiting.echo(call["blob"], call["size"]):
                pass
            call["echo"], call["echo_cpu"] = _since(began)

        def recorded(blobs, timeout):
            if calls:
                echo()
            call: dict[str, Any] = {"blob": next(iter(blobs.values())), "began": _now()}
            calls.append(call)
            for site, raw in ask(blobs, timeout):
                call["size"] = len(raw)
                call["asked"] = time.perf_counter() - call["began"][0]
                yield site, raw

        ours.ask = recorded
        self._play()
        echo()
        spent = dict(collab.get_clients(names)(timeout=60.0).spent())
        rows = [
            {
                **{name: value for name, value in call.items() if name not in ("blob", "size")},
                "bytes": [len(call["blob"]), call["size"]],
                "site_wall": [times[number][0] for times in spent.values()],
                "site_cpu": [times[number][1] for times in spent.values()],
            }
            for number, call in enumerate(calls)
        ]
        Path(self._settings_file()).write_text(json.dumps(rows))

    def _settings_file(self) -> str:
        return str(Path(collab.workspace.get_root_dir()) / "bench.json")
