"""The parties of `bench/flare.py`: a run, and after it the same bytes once more, only echoed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab

import cape.flare.collab as ours


class Site(ours.Site):
    def __init__(self) -> None:
        super().__init__()
        self._spent: list[tuple[float, float]] = []

    @collab.publish
    def answer(self, blob: bytes) -> bytes:
        began, cpu = time.perf_counter(), time.process_time()
        answer: bytes = self._of_this_job().answer(blob, "")
        self._spent.append((time.perf_counter() - began, time.process_time() - cpu))
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

        def recorded(blobs, timeout):
            blob = next(iter(blobs.values()))
            call = {"began": time.perf_counter(), "blob": blob, "cpu": time.process_time()}
            calls.append(call)
            for site, raw in ask(blobs, timeout):
                call["size"] = len(raw)
                call["asked"] = time.perf_counter() - call["began"]
                yield site, raw

        ours.ask = recorded
        self._play()
        ours.ask = ask
        calls.append({"began": time.perf_counter(), "cpu": time.process_time()})
        names = sorted(client.name for client in collab.clients)
        echoes = []
        for call in calls[:-1]:
            began, cpu = time.perf_counter(), time.process_time()
            for _ in collab.get_clients(names)(blocking=False, timeout=60.0).echo(
                call["blob"], call["size"]
            ):
                pass
            echoes.append((time.perf_counter() - began, time.process_time() - cpu))
        spent = dict(collab.get_clients(names)(timeout=60.0).spent())
        rows = [
            {
                "run": after["began"] - call["began"],
                "aggregator_cpu": after["cpu"] - call["cpu"],
                "bytes": [len(call["blob"]), call["size"]],
                "echo": echo,
                "echo_cpu": echo_cpu,
                "asked": call["asked"],
                "site_wall": [times[number][0] for times in spent.values()],
                "site_cpu": [times[number][1] for times in spent.values()],
            }
            for number, (call, after, (echo, echo_cpu)) in enumerate(
                zip(calls, calls[1:], echoes, strict=False)
            )
        ]
        Path(self._settings_file()).write_text(json.dumps(rows))

    def _settings_file(self) -> str:
        return str(Path(collab.workspace.get_root_dir()) / "bench.json")
