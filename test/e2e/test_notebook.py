"""The notebook of the examples in a fresh kernel.  Belongs to `cape/python/notebook.py`."""

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def shown_by(name: str, place: Path) -> dict[str, dict[str, Any]]:
    """Return what each cell shows, by its last line: the forms by their MIME types."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(EXAMPLES / name, as_version=4)
    assert all(not cell.outputs for cell in book.cells if cell.cell_type == "code")
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": place}}).execute()
    return {
        cell.source.splitlines()[-1]: output.get("data", {"text/plain": output.get("text", "")})
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type != "stream"
    }


@pytest.mark.document
@pytest.mark.filterwarnings("default")
def test_a_fresh_kernel_shows_pictures_sentences_and_tables(tmp_path: Path) -> None:
    """A figure was `<Figure size 640x480>`, a result the name of its class."""
    shown = shown_by("notebook.ipynb", tmp_path)
    plot = shown["result.plot()"]
    assert plot["image/png"].startswith("iVBORw0KGgo")  # a PNG in base64
    for cell in ("result", "model.fit(folders)"):
        page = shown[cell]["text/html"]
        assert "data:image/png;base64," in page
        assert "NOT PRIVATE" in page
        assert "<td>C02</td>" in page
    plan = shown["cape.budget(subjects=12, sites=3, epsilon=8.0, components=2)"]
    assert "<table>" in plan["text/html"]
    assert len(shown["result"]["text/plain"]) < 100
    assert "(62, 2)" in shown["[course.shape for course in courses]"]["text/plain"]


@pytest.mark.document
@pytest.mark.filterwarnings("default")
def test_a_comparison_shows_its_sentence_and_its_effects(tmp_path: Path) -> None:
    shown = shown_by("groups.ipynb", tmp_path)
    first = 'cape.compare_groups(sites, "dx + age", private=False, **question)'
    for cell, privacy in ((first, "NOT PRIVATE"), ("found", "epsilon 4.000 at delta")):
        page = shown[cell]["text/html"]
        assert "SZ and control differ in hippocampus: -" in page  # 9 standard errors
        assert privacy in page
        assert "<td>hippocampus</td>" in page
    assert (tmp_path / "answer/consortium/index.html").is_file()
