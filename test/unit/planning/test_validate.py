"""Whether a folder is that of one site."""

from cape.data.folders import sites_below


def test_a_text_beside_the_folders_of_sites_makes_no_site_of_them(tmp_path) -> None:
    """Since .txt may hold series, a README.txt once made a person of a consortium's folder."""
    (tmp_path / "local0").mkdir()
    (tmp_path / "local0" / "sub-1.1D").write_text("1 2\n3 4\n")
    for name in ("README.txt", "truth.npz"):
        (tmp_path / name).write_bytes(b"1 2\n")
    assert list(sites_below(tmp_path).values()) == [tmp_path / "local0"]
    (tmp_path / "sub-1.1D").write_text("1 2\n3 4\n")
    assert not sites_below(tmp_path)
