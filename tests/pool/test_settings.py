"""Options of ``install_pool``: sizes, kinds, devices, the environment variable, and refusals."""

from __future__ import annotations

import fractions

import numpy as np
import pytest
from helpers.pool_stand_ins import HostAllocator
from hypothesis import given, settings as hypothesis_settings, strategies as st

import zerocopy as zc
from zerocopy.formatting import format_bytes, shown
from zerocopy.pool.attachments import framework_names
from zerocopy.pool.settings import KINDS, Settings, device_number
from zerocopy.pool.sizes import parse_size

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
def test_sizes_are_parsed(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "8 GiB free", "-1", "1e9", "8Gb/s", "1,5GiB", "nan", "inf", "٨GiB"]
)
def test_invalid_size_text_is_refused(text: str) -> None:
    with pytest.raises(zc.errors.OptionError, match=r"limit=.*\n  To fix: write it as"):
        parse_size(text, "limit")


@pytest.mark.parametrize(
    "value",
    [
        -1,
        True,
        1.5,
        None,
        b"8GiB",
        [8],
        "99999999999TiB",
        2**63,
        10**30,
        pytest.param(10**5000, id="huge"),
        pytest.param("9" * 5000, id="long"),
    ],
)
def test_invalid_size_value_is_refused(value) -> None:
    with pytest.raises(zc.errors.OptionError):
        parse_size(value)


def test_largest_size_is_accepted() -> None:
    assert parse_size(2**63 - 1) == parse_size(f"{2**63 - 1}") == parse_size(np.int64(2**63 - 1)) == 2**63 - 1
    with pytest.raises(zc.errors.OptionError, match="exceeds the address space"):
        parse_size(str(2**63))


def test_values_in_messages_are_short() -> None:
    assert shown(10**5000) == "an integer of 16610 bits"
    assert len(shown("x" * 1000)) == 200
    assert "\n" not in shown(np.zeros((9, 9)))
    failing = type("Failing", (), {"__repr__": lambda self: 1 // 0})
    assert shown([failing()]) == "<list>"


def test_single_letter_unit_is_refused() -> None:
    with pytest.raises(zc.errors.OptionError, match='write "8GiB" or "8GB"'):
        parse_size("8G")


@hypothesis_settings(deadline=None)
@given(st.integers(0, 2**50))
def test_whole_numbers_round_trip(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size
    shown, unit = format_bytes(size).split()
    assert float(shown) <= 1024
    assert parse_size(f"{shown} {unit}") == pytest.approx(size, rel=0.05, abs=1)


def test_environment_text_equals_keyword_options() -> None:
    settings = Settings.from_text(
        "rmm:arena, limit=8GiB,devices=0+1,frameworks=torch+cupy,track=1,host=aligned"
    )
    assert settings == Settings.read(
        "rmm:arena", limit=8 * GIB, devices=[0, 1], frameworks=("torch", "cupy"), track=True, host="aligned"
    )
    assert Settings.from_text(str(settings)) == settings


@hypothesis_settings(deadline=None)
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
            "frameworks": st.lists(st.sampled_from(framework_names())),
        },
    ),
    st.sampled_from(["auto", "rmm", "rmm:binning", "managed"]),
)
def test_settings_round_trip_through_text(options, kind: str) -> None:
    settings = Settings.read(kind, **options)
    assert Settings.from_text(str(settings)) == settings


def test_empty_and_boolean_environment_values_are_parsed() -> None:
    for text in ("", " ", "off", "0", "no"):
        assert Settings.from_environment({"ZEROCOPY_POOL": text}) is None
    assert Settings.from_environment({}) is None
    for text in ("auto", "1", "true", " YES ", "On"):
        assert Settings.from_environment({"ZEROCOPY_POOL": text}) == Settings()
    assert Settings.from_text("1,limit=1").limit == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rrm", "did you mean 'rmm'"),
        ("rmm,limt=8GiB", "did you mean 'limit'"),
        ("limit=8GiB,rmm", "write the kind first"),
        ("rmm,limit=", "'limit=': it has no value"),
        ("rmm,limit=1,limit=2", "occurs twice"),
        ("rmm,limit=8 apples", "it is not a size"),
        ("rmm,fraction=half", "it is not a number"),
        ("rmm,devices=zero", "a device is a number"),
        ("rmm,track=perhaps", "it is not a bool"),
        ("rmm,frameworks=tocrh", "did you mean 'torch'"),
        ("rmm,host=algined", "did you mean 'aligned'"),
        ("rmm,=1", "'=1': it has no name"),
        ("rmm,cls=1", "no such option"),
        ("rmm,limit=1,5GiB", "'5GiB': it is not an option"),
        ("rmm,allocator=mine", "an object cannot be given as text"),
        ("resource=mine", "an object cannot be given as text"),
    ],
)
def test_invalid_environment_text_is_refused(text: str, why: str) -> None:
    with pytest.raises(zc.errors.OptionError, match=why) as caught:
        Settings.from_text(text)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(f"ZEROCOPY_POOL={text!r}: ")


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "driver", "limit": 1},
        {"kind": "driver", "fraction": 0.5},
        {"kind": "driver", "reserve": 1},
        {"kind": "rmm", "release_threshold": 1},
        {"resource": HostAllocator},
        {"resource": object()},
        {"resource": HostAllocator(), "allocator": HostAllocator()},
        {"resource": HostAllocator(), "kind": "rmm"},
        {"resource": HostAllocator(), "initial": 1},
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
        {"frameworks": 5},
        {"frameworks": [5]},
        {"frameworks": b"torch"},
        {"frameworks": np},
        {"frameworks": ""},
        {"frameworks": "torch+"},
        {"limit": 10**30},
        {"limit": 2**63},
        {"reserve": 2**64},
        {"track": np.array([1, 0])},
        {"track": [1]},
        {"strict": np.array([])},
        {"cls": 1},
        {"self": 1},
        {"limit": 0},
        {"devices": b"0"},
        {"devices": bytearray(b"0")},
        {"devices": 10**30},
        {"devices": 2**31},
        {"devices": "cpu"},
        {"devices": zc.Device(1, 0)},
        {"devices": True},
        {"devices": [0, "cuda:0"]},
        {"devices": "0,,1"},
        {"devices": np.array([0.5])},
        {"fraction": np.array([0.5])},
        {"fraction": np.float32("nan")},
        {"fraction": 10**400},
        {"allocator": HostAllocator},
        {"allocator": HostAllocator(), "initial": 1},
        {"allocator": HostAllocator(), "release_threshold": 1},
        {"allocator": HostAllocator(), "kind": "driver"},
    ],
)
def test_invalid_and_contradictory_options_are_refused(options) -> None:
    with pytest.raises(zc.errors.OptionError):
        Settings.read(**options)


def test_unknown_option_suggests_similar_names() -> None:
    with pytest.raises(zc.errors.OptionError, match="did you mean 'limit'"):
        zc.install_pool("rmm", limits="8GiB")
    for value in (None, False):
        with pytest.raises(zc.errors.OptionError, match="did you mean 'limit'"):
            zc.install_pool(limits=value)
    with pytest.raises(zc.errors.OptionError):
        zc.install_pool(False)
    with pytest.raises(zc.errors.OptionError, match=r"did you mean 'managed'.*driver"):
        zc.install_pool("manged")


def test_every_kind_is_accepted() -> None:
    for kind in KINDS:
        more = {"allocator": HostAllocator()} if kind == "custom" else {"initial": 1}
        assert Settings.read(kind, **more).kind in (kind, "rmm")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        (np.int64(1), 1),
        (np.uint8(1), 1),
        ("1", 1),
        (" cuda:1 ", 1),
        ("cuda", 0),
        (zc.Device(2, 1), 1),
        (zc.Device("cuda", 1), 1),
        (2**31 - 1, 2**31 - 1),
        (2**31, None),
        (-1, None),
        (True, None),
        (1.0, None),
        (b"1", None),
        ("cpu", None),
        ("cuda:", None),
        ("1_0", None),
        ("-1", None),
        (zc.Device(1, 0), None),
        (None, None),
        ([0], None),
    ],
)
def test_every_form_of_a_device_is_parsed(value, number) -> None:
    assert device_number(value) == number
    if number is not None:
        assert Settings.read(devices=value) == Settings.read(devices=[value]) == Settings.read(devices=number)


def test_every_form_of_several_devices_is_parsed() -> None:
    for value in (
        "0+1",
        "0,1",
        "cuda:0, cuda:1",
        [0, "cuda:1"],
        np.array([0, 1]),
        range(2),
        (zc.Device(2, 0), 1),
    ):
        assert Settings.read(devices=value).devices == (0, 1)
    assert Settings.read(devices=[1, 0]).devices == (1, 0)


def test_torch_device_is_parsed() -> None:
    torch = pytest.importorskip("torch")
    assert device_number(torch.device("cuda:1")) == 1
    assert device_number(torch.device("cpu")) is None


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float64(0.5), fractions.Fraction(1, 2), "0.5"])
def test_every_numeric_type_is_a_fraction(value) -> None:
    assert Settings.read(fraction=value) == Settings.read(fraction=0.5)
    assert type(Settings.read(fraction=value).fraction) is float


def test_equivalent_options_are_equal() -> None:
    allocator = HostAllocator()
    for one, other in (
        ({"host": "Recycle"}, {"host": "recycle"}),
        ({"host": "recycle+aligned+recycle"}, {"host": "aligned + recycle"}),
        ({"host": False}, {"host": " OFF "}),
        ({"frameworks": ["torch", "jax", "torch"]}, {"frameworks": "jax+torch"}),
        ({"frameworks": {"jax", "torch"}}, {"frameworks": ("torch", "jax")}),
        ({"frameworks": []}, {"frameworks": "none"}),
        ({"kind": "custom", "allocator": allocator}, {"allocator": allocator}),
        ({"track": np.True_}, {"track": "yes"}),
        ({"limit": np.int64(1 << 20)}, {"limit": "1MiB"}),
    ):
        assert Settings.read(**one) == Settings.read(**other)
        assert str(Settings.read(**one)) == str(Settings.read(**other))
    assert Settings.read(frameworks=[]) != Settings.read()


def test_options_are_listed_in_order() -> None:
    with pytest.raises(zc.errors.OptionError, match="known: kind, host, devices, limit, fraction"):
        Settings.read(nonsense=1)


def test_host_modes_are_parsed_without_numpy(run_python) -> None:
    completed = run_python(
        """
        import sys
        from zerocopy.pool.settings import Settings
        Settings.from_text("auto,host=aligned+recycle+pinned,devices=0+1,fraction=0.5")
        print(sorted({"numpy", "torch"} & set(sys.modules)))
        """
    )
    assert completed.stdout == "[]\n", completed.stderr


def test_host_modes_from_list() -> None:
    assert Settings.read(host=["aligned", "pinned"]).host == "aligned+pinned"


def test_host_mode_as_kind_is_refused() -> None:
    with pytest.raises(zc.errors.OptionError, match='pass the mode of host memory as host="aligned"'):
        zc.install_pool("aligned")


def test_kubernetes_size_units_are_parsed() -> None:
    assert parse_size("8Gi") == 8 * GIB
