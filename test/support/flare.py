"""FLARE's part in a test without FLARE: `Calls` carries bytes between parties, and loses some."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cape.engines.flare.rounds import AggregatorRounds, RunState, SiteRounds
from cape.engines.flare.site_file import SiteFile
from cape.report import add_score
from cape.settings.documents import not_default, toml_text
from cape.simulation.simulate import compare_with_truth
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy

RUN = "0123456789abcdef" * 2


class Calls:
    """All sites in this process, made anew for every call, as if each had just been started."""

    def __init__(self, data: Path, work: Path, policy: SitePolicy) -> None:
        self.data, self.work = data, work
        self.own: dict[str, SiteFile] = {}
        for folder in sorted(p for p in data.iterdir() if p.is_dir()):
            home = work / folder.name
            home.mkdir(parents=True)
            (home / "site-policy.toml").write_text(toml_text(not_default(policy)))
            self.own[folder.name] = SiteFile(
                data=str(folder), runs=str(home), policy=str(home / "site-policy.toml")
            )
        self.operator = SitePlaces()
        self.asked: list[tuple[str, ...]] = []
        self.said: list[bytes] = []
        self.lose: Callable[[int, str], bool] = lambda call, site: False
        """Whether the answer of this site to this call (from 1) is lost on its way."""
        self.hang: Callable[[int, str], bool] = lambda call, site: False
        """Whether the site never gets this call."""

    def site(self, name: str) -> SiteRounds:
        return SiteRounds(name, lambda: self.own[name], self.operator)

    def ask(self, blobs: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes]]:
        del timeout
        self.asked.append(tuple(blobs))
        call = len(self.asked)
        for site in self.asked[-1]:
            if self.hang(call, site):
                continue
            answer = self.site(site).answer(blobs[site], "owner@cape.org")
            self.said.append(answer)
            if not self.lose(call, site):
                yield site, answer

    def aggregator(self, settings: Mapping[str, object]) -> AggregatorRounds:
        # As `simulate` fills them in, so that all settings are those of its run.
        counted = {"n_sites": len(self.own), "site_names": ",".join(self.own), **settings}
        return AggregatorRounds(RUN, counted, self.work / "remote")

    def play(self, settings: Mapping[str, object]) -> RunState:
        return self.aggregator(settings).play(self.own, self.ask, join=1.0, round=1.0)

    @property
    def results(self) -> Path:
        return self.work / "remote" / RUN / "results"

    def scored(self) -> dict[str, bytes]:
        """Results of a run after the step that `simulate` adds to those of every carrier."""
        folder, truth = self.work / "scored", self.data / "truth.npz"
        shutil.copytree(self.results, folder)
        q_ngi, correlation = compare_with_truth(truth, folder / "unmixing.npz")
        add_score(folder, q_ngi=q_ngi, map_correlation=correlation, synthetic=truth.is_file())
        return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder; those of results without the run's name, the engine's own."""
    results = folder / "results.json"
    name = json.loads(results.read_bytes())["run"].encode() if results.is_file() else b""

    def nameless(content: bytes) -> bytes:
        for length in (32, 16, 8) if name else ():  # as files, methods and pages show it
            content = content.replace(name[:length], b"0" * length)
        return content

    return {
        path.relative_to(folder).as_posix(): nameless(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
