"""The folders that COINSTAC's engine maps, before it is started (cape/lab/engines/coinstac.py)."""

import pytest

from cape.data.templates import file_of_maps
from cape.lab.engines.coinstac import _link_or_copy, _replace_maps


@pytest.mark.parametrize(
    ("name", "placed"),
    [
        ("neuromark.nii.gz", "group_maps.nii.gz"),
        ("sub-01.nii", "templates.nii"),
        ("out.dscalar.nii", "group_maps.dscalar.nii"),
        ("maps.npy", "templates.npy"),
        ("maps.txt", "templates.csv"),
    ],
)
def test_named_maps_stand_for_those_of_a_site_whose_own_folder_stays(tmp_path, name, placed):
    """Under a name of maps: by its own it might be read as somebody's images."""
    site, base, maps = tmp_path / "site", tmp_path / "base", tmp_path / name
    maps.write_bytes(b"named")
    for folder in (site, base):
        folder.mkdir()
    for own in ("templates.nii.gz", "templates.csv", "group_maps.csv"):
        (site / own).write_bytes(b"own")
        _link_or_copy(str(site / own), str(base / own))
    _replace_maps(base, maps)
    assert file_of_maps(base) == base / placed
    assert [path.name for path in base.iterdir()] == [placed]
    assert (base / placed).read_bytes() == b"named"
    assert {path.read_bytes() for path in site.iterdir()} == {b"own"}
