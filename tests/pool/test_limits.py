"""How much of a card a pool may take: whole cards, slices, MPS, and others on it."""

from __future__ import annotations

import pytest
from helpers.pool_stand_ins import FakeNVML

import zerocopy as zc
from zerocopy.pool import cards, limits
from zerocopy.pool.cards import Card
from zerocopy.pool.settings import Settings

GIB = 1 << 30
A100 = Card(0, "A100", 80 * GIB)


def _cap(card=A100, environ=None, **options):
    return limits.limit(Settings.read("rmm", **options), card, environ or {})


def test_no_cap_unless_one_is_asked_for() -> None:
    assert _cap() is None


def test_the_least_of_them_and_where_it_comes_from() -> None:
    assert _cap(limit="8GiB").source == "limit="
    assert _cap(limit="60GiB", fraction=0.5) == limits.Limit(40 * GIB, "fraction=0.5")
    assert _cap(reserve="4GiB", limit="79GiB") == limits.Limit(76 * GIB, "reserve=4 GiB")
    cap = _cap(limit="8GiB", environ={limits.MPS: "0=2G,1=512MB"})
    assert cap == limits.Limit(2 * GIB, limits.MPS)
    assert "2 GiB (from CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)" in str(cap)


def test_mps_alone_is_a_cap() -> None:
    assert _cap(environ={limits.MPS: "1=512MB"}) is None
    assert _cap(Card(1, "A100", 80 * GIB), {limits.MPS: "0=1G, 1=512MB"}).nbytes == 512 << 20


@pytest.mark.parametrize(
    ("text", "cap", "unread"),
    [
        ("", None, []),
        ("0=10G", 10 * GIB, []),
        (" 0 = 512m , 1=1GB,", 512 << 20, []),
        ("1=1G", None, []),
        ("0=2G,0=1G", GIB, []),
        ("10G", None, ["10G"]),
        ("0=10", None, ["0=10"]),
        ("0=1.5G", None, ["0=1.5G"]),
        ("GPU-abc=1G,0=2G", 2 * GIB, ["GPU-abc=1G"]),
        ("all=1G, x", None, ["all=1G", "x"]),
    ],
)
def test_a_limit_of_mps_is_read_or_spoken_of(text: str, cap, unread) -> None:
    found = _cap(environ={limits.MPS: text})
    assert (found and found.nbytes) == cap
    note = limits.unread({limits.MPS: text})
    assert bool(note) == bool(unread)
    assert all(repr(part) in note for part in [*unread] if note)
    assert limits.unread({}) == ""


def test_a_reserve_of_all_there_is() -> None:
    with pytest.raises(zc.PoolOptionError, match="leave something for the pool"):
        _cap(reserve="80GiB")


def test_a_fraction_is_of_the_slice() -> None:
    assert _cap(Card(0, "A100 MIG 1g.10gb", 10 * GIB, mig=True), fraction=0.5).nbytes == 5 * GIB


@pytest.mark.parametrize("option", ["limit", "initial", "reserve"])
def test_more_than_the_card_has(option: str) -> None:
    with pytest.raises(zc.PoolOptionError, match=r"A100 \(device 0\) has 80 GiB"):
        _cap(**{option: "81GiB"})


def test_managed_memory_may_be_more_than_the_card() -> None:
    settings = Settings.read("managed", limit="200GiB")
    assert limits.limit(settings, A100, {}).nbytes == 200 * GIB


def test_no_more_at_the_beginning_than_at_all() -> None:
    with pytest.raises(zc.PoolOptionError, match="more than the pool may have"):
        _cap(initial="3GiB", environ={limits.MPS: "0=2G"})


def test_without_a_card_there_is_nothing_to_take_a_part_of() -> None:
    allocator = type("A", (), {"allocate": print, "deallocate": print})()
    with pytest.raises(zc.PoolOptionError, match="no card"):
        limits.limit(Settings.read(allocator=allocator, fraction=0.5), None, {})


def test_others_on_the_card() -> None:
    busy = Card(0, "A100", 80 * GIB, others=5 * GIB)
    note, seen = limits.sharing(busy, None, {})
    assert seen
    assert "5 GiB of device 0" in note
    assert limits.sharing(busy, limits.Limit(GIB, "limit="), {}) == ("", False)
    assert limits.sharing(A100, None, {}) == ("", False)
    note, seen = limits.sharing(A100, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert not seen
    assert "time-slicing" in note
    slice_of = Card(0, "A100 MIG", 10 * GIB, mig=True, others=GIB)
    assert limits.sharing(slice_of, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == ("", False)


# -- the cards, as NVML has them ------------------------------------------------------------

WHOLE = [
    {"name": "A100", "uuid": "GPU-a", "total": 80 * GIB},
    {"name": "A30", "uuid": "GPU-b", "total": 24 * GIB, "used": 100 << 20},
]


@pytest.fixture
def nvml(monkeypatch):
    def put(*arguments, **more):
        library = FakeNVML(*arguments, **more)
        monkeypatch.setattr(cards, "_nvml", lambda: library)

    return put


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["A100", "A30"]),
        ("1,0", ["A30", "A100"]),
        ("GPU-b", ["A30"]),
        ("0,7,1", ["A100"]),
        ("0,-1,1", ["A100"]),
        ("GPU-unknown", []),
        ("", []),
    ],
)
def test_visible_devices(nvml, visible, names) -> None:
    nvml(WHOLE)
    found, reason = cards.cards({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [card.name for card in found] == names
    assert [card.index for card in found] == list(range(len(names)))
    assert (reason is None) == bool(names)


def test_what_others_use(nvml) -> None:
    nvml(WHOLE)
    assert [card.others for card in cards.cards({})[0]] == [0, 100 << 20]
    nvml([WHOLE[0] | {"used": 10 << 20}], processes=1)
    assert cards.cards({})[0][0].others == 10 << 20


def test_slices(nvml) -> None:
    part = {"name": "A100 MIG 1g.10gb", "uuid": "MIG-x", "total": 10 * GIB}
    nvml(WHOLE[:1], slices={0: part})
    for visible in ({}, {"CUDA_VISIBLE_DEVICES": "MIG-x"}, {"CUDA_VISIBLE_DEVICES": "0"}):
        (card,), reason = cards.cards(visible)
        assert (card.name, card.total, card.mig, reason) == ("A100 MIG 1g.10gb", 10 * GIB, True, None)


def test_no_driver_at_all(monkeypatch) -> None:
    monkeypatch.setattr(cards, "_nvml", lambda: None)
    monkeypatch.setattr(cards.cuda_driver, "driver", lambda: None)
    found, reason = cards.cards({})
    assert found == []
    assert "no NVIDIA driver" in reason.why
