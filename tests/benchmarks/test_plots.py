"""The pictures of results: which are drawn, what they show, that the same results give the same file."""

import html
import re

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("click")

from benchmarks.page import newest
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
SIZES = [
    Case("numpy -> torch", [entry("4 B", 500), entry("1 GiB", 510)]),
    Case("numpy -> jax", [entry("4 B", 2500), entry("1 GiB", 2600)]),
    Case("copy", [entry("np.copyto, 4 B", 60, "reference"), entry("np.copyto, 1 GiB", 2e8, "reference")]),
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
    Case("arrays that JAX takes", figures={"arrays": 24, "without": 3, "host='aligned'": 24}),
    Case("64 MB to JAX", [entry("without", 1e6, "idiom"), entry("host='aligned'", 700)]),
]
STAGES = [  # work, a border, the whole
    Case(
        name,
        [entry("zerocopy", ours * 1e6), entry("as people write it", theirs * 1e6, "idiom")],
        {"bytes copied, zerocopy": 0, "bytes copied, as people write it": copied << 20},
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
        figures={"bytes at the peak, zerocopy": 90 << 20, "bytes at the peak, as people write it": 2 << 30},
    )
]

GOALS = [Goal("recycle: nothing below 0.95 times the speed", "sort", 1.3, 1.05, "x")]


def results(**sections):
    """Return results with those sections, whose slashes are written as two underscores."""
    cases = {name.replace("__", "/").replace("_", "-"): cases for name, cases in sections.items()}
    suites = list(dict.fromkeys(name.partition("/")[0] for name in cases))
    return Results(cases, GOALS, {**FACTS, "suites": suites}, complete=True)


#: By picture: results that it can be drawn from, and texts that it has to have.
PICTURES = {
    "conversion-grid": (
        results(conversion__grid=GRID),
        ["505 ns", "594 ns", "12 µs", "copies", "–", "refused", "110 ns", "diagonal: x itself"],
    ),
    "conversion-sizes": (
        results(conversion__sizes=SIZES),
        ["to torch", "to jax", "np.copyto", "1 GiB", "10 µs"],
    ),
    "layouts": (results(layout__to_columns=LAYOUT), ["21.0", "zerocopy", "ordinary copy", "(12 bytes)"]),
    "pool": (
        results(pool__recycle=POOL, pool__aligned=ALIGNED),
        [
            "copy 64 MB",
            "0.25x",
            "1.30x",
            "0.00070x",
            'arrays that JAX takes: 3 of 24 without, 24 of 24 with host="aligned"',
        ],
    ),
    "pipeline": (
        results(pipeline__stages=STAGES, pipeline__memory=MEMORY),
        [
            "Arrow → polars",
            "work, the same in all: read Parquet",
            "51 ms",
            "82 ms, 1.61x",
            "60 ms, 2.00x",
            "40 MiB",
            "90 MiB",
            "2.0 GiB, 23x",
        ],
    ),
}


def texts(path):
    """Return what a picture says: matplotlib writes each text beside its outlines."""
    return [html.unescape(text).strip() for text in re.findall(r"<!--(.*?)-->", path.read_text(), re.DOTALL)]


@pytest.fixture
def draw():
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    return draw


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_the_results_say(draw, tmp_path, name):
    found, expected = PICTURES[name]
    files = draw(found, tmp_path / "new" / "folder")
    assert [path.name for path in files] == [f"{name}.svg", f"{name}.png"]
    said = texts(files[0])
    assert [text for text in expected if text not in said] == []
    assert "Some CPU, 2 cores of a virtual machine, 2026-01-02, quick run" in said
    assert any(line.startswith("Python 3.11.7, zerocopy 0.1.0, numpy 2.4.6") for line in said)
    assert files[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_results_give_the_same_file_on_nothing(draw, tmp_path, name):
    found, _ = PICTURES[name]
    # What a user has set changes nothing.
    import matplotlib
    from matplotlib.image import imread

    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        once = draw(found, tmp_path / "once")
    again = draw(found, tmp_path / "again")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
    assert b"<dc:date>" not in once[0].read_bytes()
    pixels = imread(once[1])
    assert pixels.shape[1] == 1400
    # Nothing is cut: no ink on the rim. And nothing is filled behind the picture.
    rim = [pixels[0, :, 3], pixels[-1, :, 3], pixels[:, 0, 3], pixels[:, -1, 3]]
    assert [side.max() for side in rim] == [0, 0, 0, 0]


def test_what_is_missing_has_no_picture(draw, tmp_path):
    failed = [Case("numpy", failed="ValueError: no")]
    found = results(pool__recycle=POOL, conversion__grid=failed, tables__frames=PAIRS, pool__aligned=[])
    assert {path.stem for path in draw(found, tmp_path)} == {"pool"}
    assert {path.stem for path in tmp_path.iterdir()} == {"pool"}
    with pytest.raises(ValueError, match=r"nothing to draw.*conversion/grid.*pipeline/stages"):
        draw(results(conversion__grid=failed, pipeline__memory=MEMORY), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_without_the_grid_the_pairs_are_drawn(draw, tmp_path):
    said = texts(draw(results(conversion__pairs=PAIRS), tmp_path)[0])
    assert {"777 ns", "888 ns"} <= set(said)
    assert "400 ns" not in said
    assert "copies" not in said
    said = texts(draw(results(conversion__pairs=PAIRS, conversion__grid=GRID), tmp_path)[0])
    assert "505 ns" in said
    assert "777 ns" not in said


def test_results_of_an_interrupted_run_are_drawn(draw, tmp_path):
    """A task that failed, a mode that was not reached, stages without the whole."""
    broken = Case("broken", failed="RuntimeError: no")
    found = results(
        conversion__sizes=[*SIZES[:1], broken],
        layout__to_rows=[
            broken,
            Case("8 x f4 (32 bytes)", [entry("zc.soa_to_aos(c, dtype, out=r)", 1000)], LAYOUT[0].figures),
        ],
        pool__recycle=[broken, Case("sort", [entry("host='recycle'", 10)]), POOL[0]],
        pipeline__stages=[STAGES[0], broken],
    )
    found.complete = False
    drawn = {path.stem: texts(path) for path in draw(found, tmp_path) if path.suffix == ".svg"}
    assert set(drawn) == {"conversion-sizes", "layouts", "pool", "pipeline"}
    assert all(any("incomplete run" in line for line in said) for said in drawn.values())
    assert "sort" not in drawn["pool"]
    assert "Memory at the peak" not in drawn["pipeline"]
    assert "broken" not in drawn["pipeline"]
    # There is no border among them: then the work has colours.
    assert "read Parquet, pyarrow" in drawn["pipeline"]


def test_one_time_is_enough(draw, tmp_path):
    found = results(
        conversion__grid=[Case("numpy", [entry("torch", 500)])],
        conversion__sizes=[Case("numpy -> torch", [entry("4 B", 500)])],
        pool__recycle=POOL[:1],
        pipeline__stages=[Case("read", [entry("zerocopy", 100)])],
    )
    assert len(draw(found, tmp_path)) == 8


def kept():
    """Return the pictures of each run that is kept under benchmarks/results."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    runs = [(path, read(path)) for path in files if '"sections"' in path.read_text()]
    pictures = [(path, {picture.name for picture in TABLE if picture.drawable(run)}) for path, run in runs]
    return [pytest.param(path, names, id=path.stem) for path, names in pictures if names]


@pytest.mark.parametrize(("path", "names"), kept())
def test_results_that_are_kept_can_be_drawn(draw, tmp_path, path, names):
    assert {file.stem for file in draw(read(path), tmp_path)} == names


def test_pages_show_pictures_that_there_are():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "benchmarks/pages").glob("*.py")]
    shown = {
        name
        for page in pages
        for name in re.findall(r'(?:\bpictures/|\bpicture\(")([\w-]+)', page.read_text(encoding="utf-8"))
    }
    assert {"layouts", "pool"} <= shown <= {picture.name for picture in TABLE}


def test_the_command_draws_from_files(draw, tmp_path):
    from click.testing import CliRunner

    from benchmarks.plots.__main__ import main

    pool, tables, bad = tmp_path / "pool.json", tmp_path / "tables.json", tmp_path / "bad.json"
    PICTURES["pool"][0].save(pool)
    results(tables__frames=PAIRS).save(tables)
    bad.write_text("{}")
    out = tmp_path / "out"
    done = CliRunner().invoke(main, [str(tables), str(pool), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == ["pool.png", "pool.svg"]
    assert "tables.json: nothing to draw" in done.output
    assert CliRunner().invoke(main, [str(tables), "--out", str(out)]).exit_code == 1
    refused = CliRunner().invoke(main, [str(bad), "--out", str(out)])
    assert refused.exit_code == 2
    assert "holds no results of benchmarks" in refused.output


def test_without_matplotlib_it_says_how_to_get_it(run_python, tmp_path):
    PICTURES["pool"][0].save(tmp_path / "pool.json")
    done = run_python(f"""
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
        done = CliRunner().invoke(main, [str(file)])
        print(done.exit_code, done.output)
    """)
    assert done.stdout.count("pip install matplotlib") == 3, done.stderr
    assert "1 Error: cannot draw pictures" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["pool.json"]


def test_pictures_are_asked_for_without_importing_matplotlib(run_python):
    """What is timed after that has nothing of it in its process."""
    done = run_python("""
        import sys
        from benchmarks.plots import require
        try:
            require()
        except ImportError:
            pass
        assert not any(name.partition(".")[0] == "matplotlib" for name in sys.modules)
    """)
    assert done.returncode == 0, done.stderr


def test_words_that_pictures_look_for_are_those_of_the_suites():
    from benchmarks.conversion.grid import COUNT
    from benchmarks.pipeline import contest, memory
    from benchmarks.pipeline.stages import WHOLE, cpu, stages
    from benchmarks.plots import grid, pipeline, pool
    from benchmarks.pool.recycle import MODES
    from benchmarks.pool.sides import WITHOUT, label

    assert f"{COUNT:,} values of float32" == grid.WHAT
    assert [pool.WITHOUT, *pool.MODES] == [label(mode) for mode in MODES]
    assert MODES[0] == WITHOUT
    assert (pipeline.WHOLE, pipeline.COPIED, pipeline.PEAK) == (WHOLE, contest.COPIED, memory.PEAK)
    assert [pipeline.BORDER in stage.name for stage in stages(cpu())] == [
        stage.border is not None for stage in stages(cpu())
    ]


def contrast(one, other):
    """Return the contrast of two colours, as WCAG 2.1 defines it."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted(map(light, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_are_seen_on_light_and_on_dark():
    from benchmarks.plots import style

    white, github, pydata = "#ffffff", "#0d1117", "#14181e"
    assert min(contrast(style.TEXT, page) for page in (white, github)) > 4.2
    assert contrast(style.TEXT, pydata) > 4.1
    for colour in (style.OURS, style.OTHER, style.SINGLE, *style.SERIES):
        assert min(contrast(colour, page) for page in (white, github, pydata)) >= 3, colour


def test_what_is_written_on_a_colour_is_read(draw):
    from matplotlib.colors import to_hex

    from benchmarks.plots import style
    from benchmarks.plots.grid import _Colours

    scale = _Colours([entry("", 100), entry("", 100_000)])
    colours = [to_hex(scale.at(part / 20)) for part in range(21)]
    for colour in (*colours, *style.SERIES):
        assert contrast(style.ink(colour), colour) > 4.5, colour


@pytest.mark.parametrize("picture", TABLE, ids=lambda picture: picture.name)
def test_the_pictures_of_the_documentation_are_those_of_the_newest_results(picture, draw, tmp_path):
    """Each text of them: figures, machine, date. Lines differ between versions of matplotlib."""
    folder = ROOT / "benchmarks" / "results"
    (results,) = (
        results
        for results in map(read, newest(folder).values())
        if any(section in results.cases for section in picture.sections)
    )
    draw(results, tmp_path)
    kept = texts(ROOT / "docs" / "pictures" / f"{picture.name}.svg")
    assert kept == texts(tmp_path / f"{picture.name}.svg")
    assert any(results.facts["started"][:10] in text for text in kept)
    assert not [text for text in kept if "quick run" in text or "incomplete" in text]
