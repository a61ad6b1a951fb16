"""How much a pool may take of a card: the least of what is asked and what is given."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from zerocopy.errors import PoolOptionError
from zerocopy.pool import advice, hook
from zerocopy.pool.cards import Card
from zerocopy.pool.settings import Settings
from zerocopy.pool.sizes import show_size

#: Read by the MPS server for its clients (NVIDIA MPS guide, "Environment Variables").
MPS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Limit:
    """The cap of one device: an entry of `Pool.limits`.

    Attributes
    ----------
    nbytes : int
        The most that the pool may take, in bytes.
    source : str
        Where it comes from: the option, or the variable of the environment.

    Examples
    --------
    >>> print(Limit(8 << 30, "limit="))
    8 GiB (from limit=)
    """

    nbytes: int
    source: str

    def __str__(self) -> str:
        return f"{show_size(self.nbytes)} (from {self.source})"


def limit(settings: Settings, card: Card | None, environ: Mapping[str, str] = os.environ) -> Limit | None:
    """Return the cap for one card; None where nothing asks for one.

    Parameters
    ----------
    card : Card or None
        None for an allocator of one's own on a machine without a card.

    Raises
    ------
    PoolOptionError
        ``limit=`` or ``initial=`` is more than the card has, or `reserve` leaves nothing.
    """
    found = []
    if settings.limit is not None:
        found.append(Limit(settings.limit, "limit="))
    if card is not None:
        found += _of_card(settings, card)
        pinned = _mps(environ.get(MPS), card.index)
        if pinned is not None:
            found.append(Limit(pinned, MPS))
    elif settings.fraction is not None or settings.reserve is not None:
        raise PoolOptionError(
            ", ".join(settings.caps()), "there is no card to take a part of", "write limit= in bytes"
        )
    least = min(found, key=lambda cap: cap.nbytes, default=None)
    if least is not None and settings.initial is not None and settings.initial > least.nbytes:
        raise PoolOptionError(
            f"initial={settings.initial}",
            f"it is more than the pool may have: {least}",
            "ask for less, or raise the limit",
        )
    return least


def _of_card(settings: Settings, card: Card) -> list[Limit]:
    """Return the caps that are reckoned from a card's total."""
    for name in ("limit", "initial", "reserve"):
        asked = getattr(settings, name)
        # Managed memory is for using more than the card has.
        if (
            asked is not None
            and asked > card.total
            and not (settings.kind == "managed" and name != "reserve")
        ):
            raise PoolOptionError(
                f"{name}={asked}",
                f"{card.name} (device {card.index}) has {show_size(card.total)}",
                "ask for less; kind='managed' can use more than the card has",
            )
    if settings.reserve == card.total:
        raise PoolOptionError(
            f"reserve={settings.reserve}",
            f"{card.name} (device {card.index}) has no more than that",
            "leave something for the pool",
        )
    found = []
    if settings.fraction is not None:
        found.append(Limit(int(settings.fraction * card.total), f"fraction={settings.fraction}"))
    if settings.reserve is not None:
        found.append(Limit(card.total - settings.reserve, f"reserve={show_size(settings.reserve)}"))
    return found


def _mps(text: str | None, index: int) -> int | None:
    """Read ``"0=1G,1=512MB"``; None if it says nothing of a device, the least if it says several things."""
    found = [_mps_part(part) for part in (text or "").split(",")]
    return min((part[1] for part in found if part is not None and part[0] == index), default=None)


def _mps_part(part: str) -> tuple[int, int] | None:
    """Return a device and its limit, of ``"0=1G"``; None for what is not written so."""
    match = re.fullmatch(r"\s*(\d+)\s*=\s*(\d+)\s*([KMG])B?\s*", part, re.IGNORECASE)
    return (int(match[1]), int(match[2]) * _UNITS[match[3].upper()]) if match is not None else None


def unread(environ: Mapping[str, str] = os.environ) -> str:
    """Return what is to be said of a limit of MPS that is set and cannot be read here; nothing if all can."""
    text = environ.get(MPS, "")
    parts = [part.strip() for part in text.split(",") if part.strip() and _mps_part(part) is None]
    if not parts:
        return ""
    what = " and ".join(map(repr, parts))
    return (
        f"{MPS} has {what}, which is not read here: the driver may hold this process to a limit of which "
        'the pool knows nothing; write it as "0=10G,1=512M", devices by their numbers'
    )


def sharing(card: Card, cap: Limit | None, environ: Mapping[str, str] = os.environ) -> tuple[str, bool]:
    """Return what is to be said of a card that others may use too, and whether it is seen that they do.

    Nothing where a cap is set, or a MIG slice gives each its own.
    """
    if cap is not None or card.mig:
        return "", False
    if card.others:
        ways = ["by MPS or MIG", f"by kind='rmm' and limit= for {advice.under_a_cap()}"]
        return (
            f"other processes use {show_size(card.others)} of device {card.index} ({card.name}), and the "
            "pool has no limit: give each process its part, "
            + "; ".join([*ways, *advice.own_caps(hook.of_frameworks())]),
            True,
        )
    if "KUBERNETES_SERVICE_HOST" in environ and "CUDA_MPS_PIPE_DIRECTORY" not in environ:
        # The device plugin's time-slicing shows each pod the whole card, and isolates nothing
        # (NVIDIA k8s-device-plugin, "Shared Access to GPUs").
        return (
            "this is Kubernetes, and a card that is shared by time-slicing looks like one's own: "
            "if it may be, see docs/pool.md, Sizes on shared GPUs",
            False,
        )
    return "", False
