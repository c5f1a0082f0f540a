"""The harness of the papers' figures: found by listing, resumed, written with its settings."""

import csv
import json

import pytest

pytest.importorskip("matplotlib")


@pytest.fixture
def harness():
    import figures_lib
    import figures_lib._figure as engine
    import figures_lib._style as style

    return figures_lib, engine, style


def test_no_curve_of_a_whole_grid_lies_below_its_axis(harness) -> None:
    """The quick grid of 002-fig7 ends at q .008; the whole one fell below the panel, unseen."""
    figure = harness[0].figures()["002-fig7"]
    found = {"q": 0.0034, "epsilon": 20.0, "epsilon_colluders": 24.0}
    canvas = figure.draw([{**point, **found} for point in figure.points("full")])
    assert canvas.axes[0].get_ylim()[0] < 0.0034 / 1.2


def test_figure_5_compares_a_tail_bound_with_the_classic_formula(harness) -> None:
    from figures_lib.calculators import paper_deltas

    found = paper_deltas(epsilon=0.5, n_sites=10, colluders=3, noise=4.0)
    assert found["cape_printed"] == pytest.approx(0.134, abs=5.1e-4)
    assert found["pooled_classic"] == pytest.approx(0.169, abs=5.1e-4)
    assert found["cape_printed"] < found["pooled_classic"]  # the claim of the paper
    assert found["pooled"] == pytest.approx(2.7e-3, abs=5.1e-5)
    assert found["cape"] == pytest.approx(1.9e-2, abs=5.1e-4)
    assert found["conventional"] == pytest.approx(0.156, abs=5.1e-4)
    for n_sites, colluders in ((10, 8), (3, 2)):
        senseless = paper_deltas(epsilon=0.5, n_sites=n_sites, colluders=colluders, noise=4.0)
        assert "cape_printed" not in senseless
    assert paper_deltas(epsilon=0.1, n_sites=4, colluders=1, noise=0.5)["pooled_classic"] == 1.0


@pytest.fixture
def example(harness):
    """Return a figure of four points, and the list of points measured so far."""
    _, engine, style = harness
    asked: list[dict[str, float]] = []

    def measure(point):
        asked.append(dict(point))
        return {"y": point["epsilon"] * 2.0}

    def draw(rows):
        canvas, axes = style.canvas(1, 1)
        x, y = style.means(rows, "epsilon", "y", method="cape")
        style.curve(axes[0, 0], x, y, "cape", "cape")
        style.log_ticks(axes[0, 0], x)
        style.second_axis(axes[0, 0], x, [4.0 * e for e in x], "exact epsilon")
        style.legend_below(canvas, axes[0, 0], 1)
        return canvas

    def points(grid):
        some = (0.1, 1.0) if grid == "quick" else (0.1, 1.0, 10.0)
        return [{"epsilon": e, "method": "cape", "seed": s} for e in some for s in (1, 2)]

    figure = engine.Figure(
        name="example", title="An example", points=points, measure=measure, draw=draw,
        data="none", privacy="none", caption="nothing", share=("seed",),
    )  # fmt: skip
    return figure, asked


def test_every_figure_has_points_that_are_json_and_differ(harness) -> None:
    lib, _, _ = harness
    for name, figure in lib.figures().items():
        assert name == figure.name
        for text in (figure.title, figure.data, figure.privacy, figure.caption):
            assert len(text) > 10
        for grid in ("quick", "full"):
            points = [json.dumps(p, sort_keys=True) for p in figure.points(grid)]
            assert points
            assert len(set(points)) == len(points)


def test_measured_points_are_never_measured_again(harness, example, tmp_path) -> None:
    """Stopped after two points, the next run measures the rest; the full grid only what is new."""
    _, engine, _ = harness
    figure, asked = example
    engine.measure(figure, figure.points("quick")[:2], tmp_path)
    assert len(asked) == 2
    todo = engine.batches(figure, figure.points("quick"), tmp_path)
    assert [len(batch) for batch in todo] == [1, 1]  # one batch per seed
    for batch in todo:
        engine.measure(figure, batch, tmp_path)
    assert len(asked) == 4
    engine.measure(figure, figure.points("full"), tmp_path)
    assert len(asked) == 6
    assert engine.batches(figure, figure.points("full"), tmp_path) == []


def test_a_changed_measurement_forgets_its_points(harness, example, tmp_path) -> None:
    _, engine, _ = harness
    figure, asked = example
    engine.measure(figure, figure.points("quick"), tmp_path)
    newer = type(figure)(**{**vars(figure), "version": 2})
    engine.measure(newer, figure.points("quick"), tmp_path)
    assert len(asked) == 8


def test_a_figure_is_written_with_its_table_and_its_settings(harness, example, tmp_path) -> None:
    _, engine, _ = harness
    figure, _ = example
    with pytest.raises(RuntimeError, match="not measured"):
        engine.write(figure, "quick", tmp_path / "cache", tmp_path)
    engine.measure(figure, figure.points("quick"), tmp_path / "cache")
    picture, table, sidecar = engine.write(figure, "quick", tmp_path / "cache", tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["y"] for row in rows] == ["0.2", "0.2", "2.0", "2.0"]
    settings = json.loads(sidecar.read_text())
    assert settings["seeds"] == [1, 2]
    assert settings["settings"]["epsilon"] == [0.1, 1.0]
    assert settings["data"] == "none"
    assert settings["versions"]["numpy"]


def test_the_look_of_the_figures_ends_with_the_figure(harness):
    """It was set for the whole process once, and pages drawn later failed on its layout."""
    import matplotlib as mpl

    _, _, style = harness

    assert mpl.rcParams["figure.constrained_layout.use"] is False
    with mpl.rc_context(dict(style.PAPER)):
        assert mpl.rcParams["figure.constrained_layout.use"] is True
