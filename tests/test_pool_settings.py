"""What is asked of ``install_pool``: sizes, options, the variable, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zerocopy as zc
from zerocopy.pool.settings import KINDS, Settings
from zerocopy.pool.sizes import parse_size, show_size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * GIB),
        ("8 gib", 8 * GIB),
        ("512 MB", 512_000_000),
        ("1.5GiB", GIB * 3 // 2),
        ("4096", 4096),
        ("0", 0),
        ("1TiB", 1 << 40),
        (".5 KiB", 512),
        ("100 B", 100),
        (7, 7),
    ],
)
def test_sizes(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "8 GiB free", "-1", "1e9", "8Gb/s", "1,5GiB", "nan", "inf", "٨GiB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(zc.PoolOptionError, match=r"limit=.*\n  To fix: write it as"):
        parse_size(text, "limit")


@pytest.mark.parametrize("value", [-1, True, 1.5, None, b"8GiB", [8], "99999999999TiB"])
def test_what_is_no_size_either(value) -> None:
    with pytest.raises(zc.PoolOptionError):
        parse_size(value)


def test_a_letter_alone_has_two_meanings() -> None:
    with pytest.raises(zc.PoolOptionError, match='write "8GiB" or "8GB"'):
        parse_size("8G")


@given(st.integers(0, 2**50))
def test_whole_numbers_come_through(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size
    shown, unit = show_size(size).split()
    assert float(shown) <= 1024
    assert parse_size(f"{shown} {unit}") == pytest.approx(size, rel=0.006, abs=1)


def test_the_variable_says_the_same_as_the_call() -> None:
    asked = Settings.from_text("rmm:arena, limit=8GiB,devices=0+1,frameworks=torch+cupy,track=1,host=aligned")
    assert asked == Settings.read(
        "rmm:arena", limit=8 * GIB, devices=[0, 1], frameworks=("torch", "cupy"), track=True, host="aligned"
    )
    assert Settings.from_text(str(asked)) == asked


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "limit": st.integers(1, 2**40),
            "fraction": st.floats(0.01, 1),
            "initial": st.integers(0, 1),
            "track": st.booleans(),
            "strict": st.booleans(),
            "devices": st.lists(st.integers(0, 7), min_size=1, unique=True),
            "host": st.sampled_from(["off", "aligned", "aligned+pinned"]),
        },
    ),
    st.sampled_from(["auto", "rmm", "rmm:binning", "managed"]),
)
def test_settings_survive_being_written_down(options, kind: str) -> None:
    asked = Settings.read(kind, **options)
    assert Settings.from_text(str(asked)) == asked


def test_nothing_in_the_environment() -> None:
    for text in ("", " ", "off", "0", "no"):
        assert Settings.from_environment({"ZEROCOPY_POOL": text}) is None
    assert Settings.from_environment({}) is None
    assert Settings.from_environment({"ZEROCOPY_POOL": "auto"}) == Settings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rrm", "did you mean 'rmm'"),
        ("rmm,limt=8GiB", "did you mean 'limit'"),
        ("limit=8GiB,rmm", "write the kind first"),
        ("rmm,limit=", "limit has no value"),
        ("rmm,limit=1,limit=2", "there twice"),
        ("rmm,limit=8 apples", "it is no size"),
        ("rmm,fraction=half", "it is no number"),
        ("rmm,devices=zero", "a device is a number"),
        ("rmm,track=perhaps", "it is yes or no"),
        ("rmm,frameworks=tocrh", "did you mean 'torch'"),
        ("rmm,host=algined", "did you mean 'aligned'"),
        ("rmm,allocator=mine", "an allocator is an object"),
    ],
)
def test_what_the_variable_must_not_say(text: str, why: str) -> None:
    with pytest.raises(zc.PoolOptionError, match=why) as caught:
        Settings.from_text(text)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "driver", "limit": 1},
        {"kind": "driver", "fraction": 0.5},
        {"kind": "driver", "reserve": 1},
        {"kind": "driver", "log": "x"},
        {"kind": "rmm", "release_threshold": 1},
        {"kind": "custom"},
        {"kind": "rmm:arena"},
        {"kind": "rmm", "initial": 2, "limit": 1},
        {"kind": "rmm", "allocator": type("A", (), {"allocate": 1, "deallocate": print})()},
        {"allocator": object()},
        {"allocator": type("A", (), {"allocate": print})()},
        {"fraction": 0},
        {"fraction": 1.01},
        {"fraction": True},
        {"fraction": float("nan")},
        {"devices": []},
        {"devices": [0, 0]},
        {"devices": -1},
        {"devices": 1.5},
        {"kind": 3},
        {"kind": None},
        {"host": 3},
        {"track": 2},
        {"frameworks": ["nothing"]},
    ],
)
def test_what_contradicts_itself(options) -> None:
    with pytest.raises(zc.PoolOptionError):
        Settings.read(**options)


def test_an_unknown_option_has_its_nearest_names() -> None:
    with pytest.raises(zc.PoolOptionError, match="did you mean 'limit'"):
        zc.install_pool("rmm", limits="8GiB")
    with pytest.raises(zc.PoolOptionError, match=r"did you mean 'managed'.*driver"):
        zc.install_pool("manged")


def test_every_kind_is_read() -> None:
    for kind in KINDS:
        allocator = type("A", (), {"allocate": print, "deallocate": print})() if kind == "custom" else None
        assert Settings.read(kind, allocator=allocator, initial=1).kind in (kind, "rmm")
