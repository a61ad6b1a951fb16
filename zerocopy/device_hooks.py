"""What a framework says of the memory that comes in, on the host and on devices."""

from __future__ import annotations

from typing import Any

from zerocopy.device import Device, parse_device
from zerocopy.errors import DeviceError, Reason, UnsupportedConversionError, lacking
from zerocopy.source import Source
from zerocopy.strided_view import StridedView


class DeviceHooks:
    """The part of :class:`zerocopy.Framework` about the memory that it takes, and where."""

    name: str = ""
    device_kinds: tuple[str, ...] = ("cpu",)

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        """Return why host memory so laid out cannot be aliased; an empty list if it can.

        A copy is row-major, at a multiple of 64 bytes, and has the same dtype.

        Parameters
        ----------
        view : StridedView
            The memory.

        Returns
        -------
        list of Reason
            Each with its remedy.

        Raises
        ------
        ZeroCopyError
            No copy would help either: the dtype is lacking, too many dimensions.
        """
        raise lacking(self.name, "reasons")

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        """As `reasons`, for device memory; refuses what the framework lacks.

        Parameters
        ----------
        view : StridedView
            The memory, on the host or on a device.

        Returns
        -------
        list of Reason
            Each with its remedy.

        Raises
        ------
        ZeroCopyError
            No copy would help either.
        """
        return self.copy_reasons(view)

    def from_device(self, source: Source, stream: int | None) -> Any:
        """Make an object that aliases device memory, ordered on the consumer's stream.

        Parameters
        ----------
        source : Source
            Of memory on a device, with no `device_copy_reasons` against it.
        stream : int or None
            The consumer's, as DLPack numbers them.

        Returns
        -------
        object
            One of the framework's, which keeps the memory alive.

        Raises
        ------
        UnsupportedConversionError
            It takes no memory on that device.
        """
        raise UnsupportedConversionError(
            f"to={self.name!r}",
            f"{self.name} takes no memory on {source.view.device}",
            "bring it to the host first",
        )

    def can_relay(self, view: StridedView) -> bool:
        """Whether `from_device` and a copy of what it returns are safe for such device memory.

        Asked before memory that is known by protocol alone is copied by way of the
        framework (``zerocopy.registry.relay``).

        Parameters
        ----------
        view : StridedView
            The memory.

        Returns
        -------
        bool
            Whether they are.
        """
        return not self.device_copy_reasons(view)

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        """Return a fresh copy of an own object on a device; never an alias.

        Parameters
        ----------
        obj : object
            One of the framework's.
        device : Device
            Where the copy is to be.
        stream : int or None
            The consumer's, as DLPack numbers them.

        Returns
        -------
        object
            One of the framework's.

        Raises
        ------
        UnsupportedConversionError
            It cannot.
        """
        raise UnsupportedConversionError(
            f"to={self.name!r}, device={str(device)!r}",
            f"{self.name} cannot move arrays to {device}",
            f"ask for one of its own devices: {', '.join(self.device_kinds)}",
        )

    def parse_device(self, spec: Any) -> Device:
        """Return the device of ``device=``; override to take the framework's own objects.

        Parameters
        ----------
        spec : object
            What the caller wrote.

        Returns
        -------
        Device
            Its DLPack pair.

        Raises
        ------
        DeviceError
            It is no device.
        """
        found = parse_device(spec)
        if found is None:
            raise DeviceError(
                f"to={self.name!r}, device={spec!r}",
                "it is no device",
                'write "cpu", "cuda", "cuda:1", or a DLPack pair such as (2, 0)',
            )
        return found

    def default_device(self, view: StridedView) -> Device:
        """Return where the result goes when nothing is asked: where it is, if it can be there.

        Parameters
        ----------
        view : StridedView
            The source's memory.

        Returns
        -------
        Device
            One of `device_kinds`.
        """
        if view.device.kind in self.device_kinds:
            return view.device
        return Device({"cpu": 1, "cuda": 2}[self.device_kinds[0]], 0)

    def check_device(self, device: Device) -> None:
        """Check that the framework can use a device.

        Parameters
        ----------
        device : Device
            One that was asked for, or that the memory is on.

        Raises
        ------
        DeviceError
            It cannot, or the device does not exist.
        """
        if device.kind not in self.device_kinds:
            raise DeviceError(
                f"to={self.name!r}, device={str(device)!r}",
                f"{self.name} has no arrays on {device.kind}",
                f"it has them on: {', '.join(self.device_kinds)}",
            )

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error that the framework raised says that there is no memory left.

        Parameters
        ----------
        error : Exception
            Raised while an object was made or copied; no ``MemoryError``, which says so itself.

        Returns
        -------
        bool
            True: ``convert`` raises ``MemoryError`` from it.
        """
        return False

    def devices(self) -> list[str]:
        """Return the devices that an imported framework sees, for people to read.

        Returns
        -------
        list of str
            ``"cpu"``, ``"cuda:0"``, ...
        """
        return list(self.device_kinds)
