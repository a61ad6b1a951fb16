"""Calls in the messages of the pool and of the monitor work when pasted, with ``zc`` alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zerocopy as zc


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    yield
    if (pool := zc.installed_pool()) is not None:
        pool.close()


def closed_pool() -> Any:
    pool = zc.install_pool(host="off")
    pool.close()
    return pool


def recording() -> None:
    record = zc.monitor.record()
    with record, record:
        pass


CALLS: dict[str, Callable[[], Any]] = {
    "refresh": lambda: closed_pool().refresh(),
    "limit of a closed pool": lambda: closed_pool().set_limit("1GiB"),
    "other options": lambda: (zc.install_pool(host="off"), zc.install_pool(host="recycle")),
    "limit of no host memory": lambda: zc.install_pool(host="off").set_limit("1GiB", device="host"),
    "snapshot": lambda: zc.monitor.snapshot(),
    "stop": lambda: zc.monitor.stop(),
}


@pytest.mark.parametrize("name", [*CALLS])
def test_calls_of_messages_work_two_steps_deep(name: str) -> None:
    with pytest.raises(zc.ZeroCopyError) as caught:
        CALLS[name]()
    codes = re.findall(r"zc(?:\.\w+(?:\([^()]*\))?)+", caught.value.remedy)
    assert codes
    for code in codes:
        for _ in range(2):
            try:
                result = eval(code, {"zc": zc})
            except zc.ZeroCopyError as error:
                (code,) = re.findall(r"zc(?:\.\w+(?:\([^()]*\))?)+", error.remedy)
                continue
            if code == "zc.monitor.start()":
                result.stop()
            break
        else:
            pytest.fail(code)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "rrm"), ("kind", 3), ("host", "alignd"), ("host", 3), ("limit", "8g"), ("limit", "x"),
        ("fraction", 2), ("devices", -1), ("devices", []), ("frameworks", "torhc"),
        ("track", "x"), ("strict", 3),
    ],
)  # fmt: skip
def test_the_value_that_a_message_names_is_valid(name: str, value: Any) -> None:
    from zerocopy.pool.settings import Settings

    with pytest.raises(zc.errors.OptionError) as caught:
        Settings.read(**{name: value})
    first = re.search(r"[\"']([^\"']+)[\"']|\b(True|\d[\d.]*|auto|rmm)\b", caught.value.remedy)
    assert first is not None
    text = first[1] or first[2]
    literals = {"True": True}
    Settings.read(**{name: literals.get(text, float(text) if name == "fraction" else text)})
