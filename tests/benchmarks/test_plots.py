"""Pictures of results: which are drawn, which figures they show, and that they are reproducible."""

import html
import re

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("click")

from benchmarks.conversion.goals import PURE
from benchmarks.page import newest
from benchmarks.pages import compiled_core
from benchmarks.plots import PICTURES as TABLE
from benchmarks.results import Results, read
from benchmarks.suite import Case, Entry, Goal
from benchmarks.timing import Timing

FACTS = {
    "started": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "Some CPU", "cores": 2, "virtual": True, "python": "CPython 3.11.7"},
    "versions": {
        "numpy": "2.4.6",
        "tensorflow-cpu": "2.21.0",
        "torch": "2.13.0+cpu",
        "zerocopy": "0.1.0+abc",
    },
    "settings": {"quick": True},
}


def entry(label, nanoseconds=None, role="ours", **more):
    return Entry(label, role, None if nanoseconds is None else Timing.of([float(nanoseconds)]), **more)


GRID = [
    Case("numpy", [entry("torch", 505), entry("tensorflow", 12_300, note="copies")]),
    Case("torch", [entry("torch", 110), entry("numpy", 594), entry("tensorflow", left_out="it refuses")]),
    Case(
        "nanoarrow",
        [entry(name, 700) for name in ("jax", "pandas", "polars", "pyarrow", "duckdb", "nanoarrow")],
    ),
]
PAIRS = [
    Case("numpy -> torch", [entry("zc.convert", 777), entry("torch.from_numpy", 400, "idiom")]),
    Case("torch -> numpy", [entry("zc.convert", 888)]),
]
TABLES_GRID = [
    Case(f"{pair}, {kind}", [entry("ours", ours), entry("hand", 1000, "idiom")])
    for pair, kind, ours in [
        ("polars -> pyarrow", "series", 500),
        ("polars -> pyarrow", "table", 2000),
        ("pyarrow -> jax", "table", 750),
    ]
]
SIZES = [
    Case("numpy -> torch", [entry("4 B", 500), entry("1 GiB", 510)]),
    Case("numpy -> jax", [entry("4 B", 2500), entry("1 GiB", 2600)]),
    Case("copy", [entry("np.copyto, 4 B", 60, "reference"), entry("np.copyto, 1 GiB", 2e8, "reference")]),
]
CORE = [
    Case(
        name,
        [entry("ours", ours), entry("hand", 1000, "idiom"), entry("python", 900, "reference", note=PURE)],
    )
    for name, ours in [("numpy -> torch", 600), ("torch -> jax", 150), ("torch -> torch", 20)]
]
LAYOUT = [
    Case(
        "x, y, z: f4 (12 bytes)",
        [entry("zc.aos_to_soa(r, out=o)", 1000), entry("copy(w, raw)", 2000, "reference")],
        {"bytes a record": 12, "records": 1750},
    )
]
POOL = [
    Case("copy 64 MB", [entry("without", 1000, "idiom"), entry("host='recycle'", 250)]),
    Case("sort", [entry("without", 1000, "idiom"), entry("host='recycle'", 1300)]),
    Case("kept after large blocks", figures={"bytes without": 1, "bytes host='recycle'": 2}),
]
ALIGNED = [
    Case("arrays that JAX aliases", figures={"arrays": 24, "without": 3, "host='aligned'": 24}),
    Case("64 MB to JAX", [entry("without", 1e6, "idiom"), entry("host='aligned'", 700)]),
]
STAGES = [  # work, a border, the whole
    Case(
        name,
        [entry("zerocopy", ours * 1e6), entry("documented calls", theirs * 1e6, "idiom")],
        {"bytes copied, zerocopy": 0, "bytes copied, documented calls": copied << 20},
    )
    for name, ours, theirs, copied in [
        ("read Parquet, pyarrow", 20, 21, 0),
        ("Arrow -> polars", 30, 60, 40),
        ("whole pipeline", 51, 82, 40),
    ]
]
MEMORY = [
    Case(
        "peak",
        figures={"bytes at the peak, zerocopy": 90 << 20, "bytes at the peak, documented calls": 2 << 30},
    )
]

GOALS = [Goal("recycle: nothing below 0.95 times the speed", "sort", 1.3, 1.05, "x")]


def results(**sections):
    """Return results with sections named by keywords, where two underscores stand for a slash."""
    cases = {name.replace("__", "/").replace("_", "-"): cases for name, cases in sections.items()}
    suites = list(dict.fromkeys(name.partition("/")[0] for name in cases))
    return Results(cases, GOALS, {**FACTS, "suites": suites}, complete=True)


#: By picture: results that it can be drawn from, and texts that it must contain.
PICTURES = {
    "conversion-grid": (
        results(conversion__grid=GRID),
        [
            *("505 ns", "594 ns", "12 µs", "copies", "–", "refused", "110 ns", "diagonal: x itself"),
            "1,000 float32 values, 64-byte-aligned input. From the left to the top.",
            "if aligned",
            '"if aligned": most arrays of nanoarrow are not 64-byte-aligned, and are copied.',
        ],
    ),
    "conversion-core": (
        results(conversion__core=CORE),
        ["numpy -> torch", "torch -> jax", "by hand", "pure Python", "0.2x", "1x"],
    ),
    "tables-grid": (
        results(grid__cells=TABLES_GRID),
        [
            *("polars", "pyarrow", "jax", "1.00x", "0.50 to 2.00", "0.75x", "0.25x"),
            "Less is better. 3 cells: mean 0.91x, 1 above 1.05x.",
        ],
    ),
    "conversion-sizes": (
        results(conversion__sizes=SIZES),
        [
            *("to torch", "to jax", "np.copyto", "1 GiB", "10 µs"),
            "x: a 64-byte-aligned float32 array of numpy. Flat: no bytes are copied. "
            "The copy is for comparison.",
        ],
    ),
    "layouts": (results(layout__to_columns=LAYOUT), ["21.0", "zerocopy", "ordinary copy", "(12 bytes)"]),
    "pool": (
        results(pool__recycle=POOL, pool__aligned=ALIGNED),
        [
            "copy 64 MB",
            "4.0x faster",
            "1.3x slower",
            "1,400x faster",
            'arrays that JAX aliases: 3 of 24 without, 24 of 24 with host="aligned"',
        ],
    ),
    "pipeline": (
        results(pipeline__stages=STAGES, pipeline__memory=MEMORY),
        [
            "read Parquet 20 ms",
            "Arrow → polars 60 ms",
            "work, the same for all",
            "conversion to a table",
            "51 ms",
            "82 ms, 1.61x",
            "60 ms, 2.00x",
            "40 MiB",
            "90 MiB",
            "2.0 GiB, 23x",
        ],
    ),
}


PICTURES["pipeline-copies"] = (
    PICTURES["pipeline"][0],
    ["documented calls", "40 MiB copied", "zerocopy", "0 copied", "Arrow", "polars", "40 MiB", "alias"],
)


def texts(path):
    """Return the texts of a picture: matplotlib writes each as a comment next to its outlines."""
    return [html.unescape(text).strip() for text in re.findall(r"<!--(.*?)-->", path.read_text(), re.DOTALL)]


@pytest.fixture
def draw():
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    return draw


@pytest.mark.parametrize("name", PICTURES)
def test_picture_contains_figures_of_results(draw, tmp_path, name):
    measured, expected = PICTURES[name]
    files = [path for path in draw(measured, tmp_path / "new" / "folder") if path.stem == name]
    assert [path.name for path in files] == [f"{name}.svg", f"{name}.png"]
    shown = texts(files[0])
    assert [text for text in expected if text not in shown] == []
    assert "Some CPU, 2 cores of a virtual machine, 2026-01-02, quick run" in shown
    assert any(line.startswith("Python 3.11.7, zerocopy 0.1.0, numpy 2.4.6") for line in shown)
    assert files[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
@pytest.mark.parametrize("name", PICTURES)
def test_same_results_give_same_file_with_empty_margins(draw, tmp_path, name):
    measured, _ = PICTURES[name]
    # The user's matplotlibrc has no effect.
    import matplotlib
    from matplotlib.image import imread

    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        once = draw(measured, tmp_path / "once")
    again = draw(measured, tmp_path / "again")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
    assert b"<dc:date>" not in once[0].read_bytes()
    pixels = imread(once[1])
    assert pixels.shape[1] == 1400
    # Nothing is cut off: the rim has the background's colour alone, and is opaque.
    rim = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    assert [side.min() for side in rim] == [1, 1, 1, 1]


def test_sections_without_times_have_no_picture(draw, tmp_path):
    failed = [Case("numpy", failed="ValueError: no")]
    measured = results(pool__recycle=POOL, conversion__grid=failed, tables__frames=PAIRS, pool__aligned=[])
    assert {path.stem for path in draw(measured, tmp_path)} == {"pool"}
    assert {path.stem for path in tmp_path.iterdir()} == {"pool"}
    with pytest.raises(ValueError, match=r"nothing to draw.*conversion/grid.*pipeline/stages"):
        draw(results(conversion__grid=failed, pipeline__memory=MEMORY), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_pairs_are_drawn_if_grid_is_missing(draw, tmp_path):
    shown = texts(draw(results(conversion__pairs=PAIRS), tmp_path)[0])
    assert {"777 ns", "888 ns"} <= set(shown)
    assert "400 ns" not in shown
    assert "copies" not in shown
    shown = texts(draw(results(conversion__pairs=PAIRS, conversion__grid=GRID), tmp_path)[0])
    assert "505 ns" in shown
    assert "777 ns" not in shown


def test_results_of_interrupted_run_are_drawn(draw, tmp_path):
    """Includes a failed task, a mode without a time, and stages without the whole pipeline."""
    broken = Case("broken", failed="RuntimeError: no")
    measured = results(
        conversion__sizes=[*SIZES[:1], broken],
        layout__to_rows=[
            broken,
            Case("8 x f4 (32 bytes)", [entry("zc.soa_to_aos(c, dtype, out=r)", 1000)], LAYOUT[0].figures),
        ],
        pool__recycle=[broken, Case("sort", [entry("host='recycle'", 10)]), POOL[0]],
        pipeline__stages=[STAGES[0], broken],
    )
    measured.complete = False
    drawn = {path.stem: texts(path) for path in draw(measured, tmp_path) if path.suffix == ".svg"}
    assert set(drawn) == {"conversion-sizes", "layouts", "pool", "pipeline"}
    assert all(any("incomplete run" in line for line in shown) for shown in drawn.values())
    assert "sort" not in drawn["pool"]
    assert "Peak memory" not in drawn["pipeline"]
    assert "broken" not in drawn["pipeline"]
    # Without borders among the stages their panel is missing.
    assert "read Parquet 20 ms" in drawn["pipeline"]
    assert "Time of the conversions alone" not in drawn["pipeline"]


def test_picture_needs_one_time_only(draw, tmp_path):
    measured = results(
        conversion__grid=[Case("numpy", [entry("torch", 500)])],
        conversion__sizes=[Case("numpy -> torch", [entry("4 B", 500)])],
        pool__recycle=POOL[:1],
        pipeline__stages=[Case("read", [entry("zerocopy", 100)])],
    )
    assert len(draw(measured, tmp_path)) == 8


#: The runs in benchmarks/results. A test reads its own file: all together take a second in each process.
RESULTS = [
    path for path in sorted(ROOT.glob("benchmarks/results/*.json")) if '"sections"' in path.read_text()
]
EACH_RESULT = pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)


def test_results_have_pictures():
    assert any(picture.drawable(measured) for measured in map(read, RESULTS) for picture in TABLE)


@pytest.mark.full
@EACH_RESULT
def test_kept_results_can_be_drawn(draw, tmp_path, path):
    measured = read(path)
    names = {picture.name for picture in TABLE if picture.drawable(measured)}
    if not names:
        pytest.skip("no picture shows this suite")
    assert {file.stem for file in draw(measured, tmp_path)} == names


@EACH_RESULT
def test_picture_has_at_most_five_series(draw, path):
    from matplotlib.colors import to_hex

    from benchmarks.plots.style import style_context

    measured = read(path)
    with style_context():
        figures = [
            (picture.name, picture.draw(measured))
            for picture in TABLE
            # Tables have no series.
            if picture.drawable(measured) and picture.name not in ("conversion-grid", "tables-grid")
        ]
    for name, figure in figures:
        for axis in figure.axes:
            marked = {to_hex(line.get_color()) for line in axis.lines if line.get_marker() != "None"}
            bars = {to_hex(patch.get_facecolor()) for patch in axis.patches}
            assert len(marked) <= 5, name
            assert len(bars) <= 5, name


def test_pages_show_existing_pictures():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "benchmarks/pages").glob("*.py")]
    shown = {
        name
        for page in pages
        for name in re.findall(r'(?:\bpictures/|\bpicture\(")([\w-]+)', page.read_text(encoding="utf-8"))
    }
    screenshots = {path.stem for path in (ROOT / "docs/pictures").glob("monitor-*.png")}
    assert {"layouts", "pool"} <= shown <= {picture.name for picture in TABLE} | screenshots


def test_command_draws_from_files(draw, tmp_path):
    from click.testing import CliRunner

    from benchmarks.plots.__main__ import main

    pool, tables, bad = tmp_path / "pool.json", tmp_path / "tables.json", tmp_path / "bad.json"
    PICTURES["pool"][0].save(pool)
    results(tables__frames=PAIRS).save(tables)
    bad.write_text("{}")
    out = tmp_path / "out"
    completed = CliRunner().invoke(main, [str(tables), str(pool), "--out", str(out)])
    assert completed.exit_code == 0, completed.output
    assert sorted(path.name for path in out.iterdir()) == ["pool.png", "pool.svg"]
    assert "tables.json: nothing to draw" in completed.output
    assert CliRunner().invoke(main, [str(tables), "--out", str(out)]).exit_code == 1
    refused = CliRunner().invoke(main, [str(bad), "--out", str(out)])
    assert refused.exit_code == 2
    assert "does not contain benchmark results" in refused.output


def test_missing_matplotlib_error_names_install_command(run_python, tmp_path):
    PICTURES["pool"][0].save(tmp_path / "pool.json")
    completed = run_python(f"""
        import sys
        sys.modules["matplotlib"] = None
        from pathlib import Path
        from benchmarks.plots import draw, require
        from benchmarks.plots.__main__ import main
        from benchmarks.results import read
        from click.testing import CliRunner

        file = Path({str(tmp_path)!r}, "pool.json")
        for attempt in (require, lambda: draw(read(file), file.parent)):
            try:
                attempt()
            except ImportError as error:
                print(error)
        completed = CliRunner().invoke(main, [str(file)])
        print(completed.exit_code, completed.output)
    """)
    assert completed.stdout.count("pip install matplotlib") == 3, completed.stderr
    assert "1 Error: cannot draw pictures" in completed.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["pool.json"]


def test_require_does_not_import_matplotlib(run_python):
    """The process that is timed afterwards should not contain matplotlib."""
    completed = run_python("""
        import sys
        from benchmarks.plots import require
        try:
            require()
        except ImportError:
            pass
        assert not any(name.partition(".")[0] == "matplotlib" for name in sys.modules)
    """)
    assert completed.returncode == 0, completed.stderr


def test_labels_that_pictures_look_up_exist_in_suites():
    from benchmarks.conversion.grid import COUNT
    from benchmarks.pipeline import contest, memory
    from benchmarks.pipeline.contenders import METHODS
    from benchmarks.pipeline.stages import WHOLE, cpu, stages
    from benchmarks.plots import copies, grid, pipeline, pool
    from benchmarks.pool.recycle import MODES
    from benchmarks.pool.sides import WITHOUT, label

    assert [name for name, _ in copies.ROWS] == [METHODS[1].label, METHODS[0].label]
    assert grid.INPUT.startswith(f"{COUNT:,} float32 values")
    assert [pool.WITHOUT, *pool.MODES] == [label(mode) for mode in MODES]
    assert MODES[0] == WITHOUT
    assert (pipeline.WHOLE, pipeline.COPIED, pipeline.PEAK) == (WHOLE, contest.COPIED, memory.PEAK)
    assert [pipeline.BORDER in stage.name for stage in stages(cpu())] == [
        stage.border is not None for stage in stages(cpu())
    ]


def test_cells_marked_if_aligned_copy_unaligned_arrays():
    """The grid is measured with aligned memory; the mark must agree with `explain` for other memory."""
    np = pytest.importorskip("numpy")
    import zerocopy as zc
    from benchmarks.plots.grid import ALIGNED_TARGETS

    memory = np.zeros(4096, np.uint8)
    start = -memory.ctypes.data % 64 + 16
    unaligned = memory[start : start + 400].view(np.float32)
    for name, framework in zc.frameworks().items():
        if name in ("torch", "pandas", *ALIGNED_TARGETS) and framework.installed:
            assert zc.explain(unaligned, name).zero_copy == (name not in ALIGNED_TARGETS), name


def contrast(one, other):
    """Return the contrast of two colours, as WCAG 2.1 defines it."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted(map(light, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_colours_have_contrast():
    from benchmarks.plots import layouts, pipeline, style

    for colour in (style.TEXT, style.OURS, style.OTHER, *style.SERIES):  # labels have these colours
        assert contrast(style.BACKGROUND, colour) >= 4.5, colour
    for colour in (style.NEUTRAL, *pipeline.COLORS.values(), *layouts.COLORS.values()):
        assert contrast(style.BACKGROUND, colour) >= 3, colour
        assert contrast(style.ink(colour), colour) >= 4.5, colour


def test_text_on_colours_has_contrast(draw):
    from matplotlib.colors import to_hex

    from benchmarks.plots import style
    from benchmarks.plots.grid import _Colours

    scale = _Colours([entry("", 100), entry("", 100_000)])
    colours = [to_hex(scale.at(part / 20)) for part in range(21)]
    for colour in (*colours, *style.SERIES):
        assert contrast(style.ink(colour), colour) > 4.5, colour


def test_svg_has_colours_for_dark_pages_and_no_background(draw, tmp_path):
    from benchmarks.plots import layouts, pipeline, style

    for name, (measured, _) in PICTURES.items():
        drawn = {path.name: path for path in draw(measured, tmp_path)}[f"{name}.svg"].read_text()
        assert drawn.count(style.dark_rules()) == 1, name
        background = re.search(r'<g id="patch_1">\s*<path d="M 0 [\d.]+ [^"]*" style="([^"]*)"', drawn)
        assert background is None or background[1].startswith("fill: none"), name
    for colour in style.DARK.values():
        assert contrast(style.DARK_BACKGROUND, colour) >= 4.5, colour
    for colour in (style.NEUTRAL, *pipeline.COLORS.values(), *layouts.COLORS.values()):
        assert contrast(style.DARK_BACKGROUND, style.DARK.get(colour, colour)) >= 3, colour


def test_readme_states_bytes_of_its_picture():
    (line,) = [
        line for line in (ROOT / "README.md").read_text().splitlines() if "pipeline-copies.svg" in line
    ]
    shown = texts(ROOT / "docs" / "pictures" / "pipeline-copies.svg")
    totals = [text.split()[0] for text in shown if text.endswith(" MiB copied")]
    stated = re.findall(r"([\d.]+) MiB", line)
    assert len(totals) == 2
    assert [float(total) for total in totals] == [float(total) for total in stated]


@pytest.mark.full
@pytest.mark.parametrize("picture", TABLE, ids=lambda picture: picture.name)
def test_pictures_in_docs_match_newest_results(picture, draw, tmp_path):
    """Compares each text: figures, machine, date. Outlines differ between versions of matplotlib."""
    folder = ROOT / "benchmarks" / "results"
    if picture.name == compiled_core.PICTURE:
        files = [path for path in [compiled_core.newest(folder)] if path]
        if not files:
            pytest.skip("there are no results of a compiled build yet")
    else:
        files = [*newest(folder).values()]
    (results,) = (
        results
        for results in map(read, files)
        if any(section in results.cases for section in picture.sections)
    )
    draw(results, tmp_path)
    committed = texts(ROOT / "docs" / "pictures" / f"{picture.name}.svg")
    assert committed == texts(tmp_path / f"{picture.name}.svg")
    assert any(results.facts["started"][:10] in text for text in committed)
    assert not [text for text in committed if "quick run" in text or "incomplete" in text]
