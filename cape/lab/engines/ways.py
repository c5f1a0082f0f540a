"""Ways to play a simulated run that need engines or containers.

``docker``   as ``process``, in containers without network, one per site and one for the aggregator
``coinstac`` in COINSTAC's own engine
``nvflare``  in FLARE's own simulator
"""

from cape.lab.engines.coinstac import simulate_in_engine
from cape.lab.engines.containers import Containers, find_image
from cape.settings.wings import FLARE, require
from cape.simulation import ways
from cape.simulation.ways import Play, Way, in_documents


def find_any_way(through: str) -> Way:
    """Return a way of this module or of `cape.simulation.ways`; ConfigError E011: unknown."""
    if through == "nvflare":
        require(FLARE, "through=nvflare")
    return ways.find_way(through, {**ways.WAYS, **ENGINE_WAYS})


def _in_containers(play: Play) -> None:
    setup = play.setup
    image, memory = find_image(setup.settings, setup.image), setup.memory or "4g"
    parties = Containers(
        play.sites, play.work, play.logs, image=image, memory=memory, maps=play.maps
    )
    in_documents(play, parties)


def _in_flare(play: Play) -> None:
    from cape.lab.engines.flare import simulate_in_flare

    simulate_in_flare(play)


ENGINE_WAYS = {
    "docker": Way(play=_in_containers, sees_ledgers=False),
    "coinstac": Way(play=simulate_in_engine, sees_ledgers=False, drops_sites=False),
    "nvflare": Way(play=_in_flare, drops_sites=False),
}
