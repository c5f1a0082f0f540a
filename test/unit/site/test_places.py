"""What the operator of a site names (cape/site/places.py)."""

from pathlib import Path

import pytest

from cape.site.places import VARIABLES, SitePlaces

ALL = {
    "CAPE_SITE_POLICY": "/own/p.toml", "CAPE_SITE_IDENTITY": "/own/keys",
    "CAPE_SITE_HOME": "/own/home", "CAPE_IMAGE_DIGEST": "sha256:1",
    "CAPE_CACHE": "/own/kept", "CAPE_SITE_MAPS": "/own/maps.nii.gz",
    "CAPE_SIMULATED_SITE": "local0",
}  # fmt: skip


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_that_is_empty_or_missing_names_nothing(name) -> None:
    found = SitePlaces.from_environment({name: ALL[name]})
    assert found == SitePlaces.from_environment(dict.fromkeys(VARIABLES, "") | {name: ALL[name]})
    named = (found.policy, found.identity, found.home, found.image, found.store, found.maps)
    assert [str(v) for v in (*named, found.place) if v] == [ALL[name]]


def test_a_process_that_is_started_gets_these_places_and_no_others() -> None:
    own = SitePlaces(policy=Path("/site/p.toml"))
    assert own.environment({**ALL, "PATH": "/bin"}) == {
        "CAPE_SITE_POLICY": "/site/p.toml", "PATH": "/bin",
    }  # fmt: skip
    assert SitePlaces.from_environment(ALL).environment({}) == ALL


def test_what_was_read_is_kept_where_it_is_named_else_at_the_site_else_for_this_user() -> None:
    run = Path("/run/.cape-site")
    for user, kept in (
        ({"XDG_CACHE_HOME": "/user/cache", "HOME": "/user"}, Path("/user/cache/cape")),
        ({"HOME": "/user"}, Path("/user/.cache/cape")),
        ({}, None),
    ):
        assert SitePlaces.from_environment(user).store_folder() == kept
        assert SitePlaces.from_environment(user).store_folder(run) == run / "data"
    assert SitePlaces(home=Path("/own")).store_folder(run) == Path("/own/data")
    assert SitePlaces(home=Path("/own"), store="/kept").store_folder(run) == Path("/kept")
    assert SitePlaces(home=Path("/own"), store="none").store_folder(run) is None
