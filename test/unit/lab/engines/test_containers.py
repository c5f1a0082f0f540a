"""Which image a simulation in containers starts, and what it says where there is none."""

import types

import pytest

from cape.errors import CapeError
from cape.lab.engines import containers
from cape.settings.config import VERSION


class AbsentError(Exception):
    """A service has no such image."""


class Service:
    """A container service that has images of these names."""

    def __init__(self, *names: str) -> None:
        self.names, self.closed = names, 0
        self.images = self

    def get(self, name: str) -> None:
        if name not in self.names:
            raise AbsentError(name)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def service(monkeypatch):
    def start(*names: str) -> Service:
        made = Service(*names)
        monkeypatch.setattr(containers, "connect", lambda: made)
        errors = types.SimpleNamespace(ImageNotFound=AbsentError)
        monkeypatch.setattr(containers, "_docker", lambda: types.SimpleNamespace(errors=errors))
        return made

    return start


def test_an_image_that_podman_built_is_found_under_the_name_that_podman_gave_it(service) -> None:
    """`make image` with podman, then `--through docker`: E290, there is no image coinstac-cape."""
    ours = f"localhost/coinstac-cape:{VERSION}"
    there = service(ours, f"localhost/coinstac-cape-papers:{VERSION}")
    assert containers.find_image({}) == ours
    assert containers.find_image({"computation": "djica"}).startswith("localhost/coinstac-cape-pap")
    assert there.closed == 2


def test_the_name_that_docker_gives_comes_first_and_one_that_is_given_is_taken(service) -> None:
    service(f"coinstac-cape:{VERSION}", f"localhost/coinstac-cape:{VERSION}", "own:1")
    assert containers.find_image({}) == f"coinstac-cape:{VERSION}"
    assert containers.find_image({}, "own:1") == "own:1"


def test_an_image_that_is_nowhere_is_named_as_it_would_be_built(service) -> None:
    there = service("coinstac-cape:0")
    with pytest.raises(CapeError, match=f"E290 there is no image coinstac-cape:{VERSION}; build"):
        containers.find_image({})
    assert there.closed == 1
