"""Whole runs of comparisons, of tables in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cape.algorithms.design import people_rows
from cape.computations import load
from cape.protocol.messages import FeatureSpace
from cape.simulation.memory import MemoryTransport
from cape.site.policy import SitePolicy
from support.neighbours import KINDS, VARIABLES, Study, Table


@dataclass(frozen=True)
class TableSource:
    """People of a table, as a site reads them."""

    study: Study
    table: Table
    lacks: tuple[str, ...]

    @property
    def space(self) -> FeatureSpace:
        names = tuple(one.name for one in self.study.question.outcomes)
        return FeatureSpace.of_matrix(self.study.K, (), names)

    @property
    def n_subjects(self) -> int:
        return len(self.table.names)

    def reduced(self, n_basis: int) -> Iterator[tuple[str, np.ndarray]]:
        table, question = self.table, self.study.question
        u = np.where(np.isfinite(table.u), np.clip(table.u, -1e6, 1e6), np.nan)
        missing = [one.name in self.lacks for one in question.outcomes]
        u[:, missing] = np.nan
        order, rows = people_rows(question, table.names, u, table.codes)
        for i, row in zip(order.tolist(), rows, strict=True):
            yield table.names[i], row[:, None]


def run_of(kind: str, study: Study, epsilon: float, *, seed: int = -1) -> MemoryTransport:
    """Return a run of a study; `seed` of all noise, by default from the operating system."""
    formula, ask, public, levels, K, more = KINDS[kind]
    settings = {
        "epsilon": epsilon, "delta": 1e-5, "n_sites": len(study.tables), "min_sites": 2,
        "formula": formula, "ask": ask, "public": public, "variables": levels + VARIABLES,
        "outcomes": ", ".join(f"o{k} -2:2" for k in range(K)), "accept_low_quality": True,
        "assumed_colluders": 1, **more,
    }  # fmt: skip
    computation = load("capecontrast")
    names = [one.name for one in study.question.outcomes]
    sources = {
        f"site{s}": TableSource(study, table, tuple(np.array(names)[~study.has[s]].tolist()))
        for s, table in enumerate(study.tables)
    }
    config = computation.config.from_input(settings)
    policy = SitePolicy.of_simulation(simulation_seed=seed)
    return MemoryTransport(computation, config, sources, policy, None)
