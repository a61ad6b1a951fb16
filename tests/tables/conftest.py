"""Each conversion of these tests is checked for the extent of its result's storage."""

from __future__ import annotations

from helpers.extent_plugin import checked_extents as checked_extents
