"""Ways of a simulation: what is there when the parties of a run begin."""

from contextlib import contextmanager

import pytest

from cape.lab.synthetic.consortium import Request, write_consortium
from cape.simulation.ways import Play, Way, in_documents
from support.simulation import simulate


class BegunError(Exception):
    """All parties have begun; nothing more is of interest."""


def test_parties_begin_when_their_folders_and_policies_are_there(tmp_path) -> None:
    # Containers once began before: what was mounted as site-policy.toml became a folder.
    write_consortium(
        tmp_path / "data",
        Request(preset="paper", site_sizes=(4, 3, 3), n_timepoints=40, n_networks=3, seed=5),
    )
    seen = []

    def play(play: Play) -> None:
        @contextmanager
        def parties():
            for party in (*play.sites, "remote"):
                home = play.work / party
                seen.append((home / "site-policy.toml").is_file() and (home / "output").is_dir())
            raise BegunError
            yield

        in_documents(play, parties())

    with pytest.raises(BegunError):
        simulate(
            tmp_path / "data",
            out=tmp_path / "out",
            settings={"private": False, "n_components": 3},
            find_way=lambda through: Way(play=play),
        )
    assert seen == [True] * 4
