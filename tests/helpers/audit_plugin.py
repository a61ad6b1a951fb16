"""A framework of a plugin with one function that copies; its audit hook lists that function."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from helpers.box_framework import Box, Boxes
from zerocopy.audit.hook import AuditHook, CopyCall


def boxed(values: Any) -> Box:
    """Return a copy of an array."""
    return Box(np.copy(values))


class AuditedBoxes(Boxes):
    """The framework of `Box`."""


class Audit(AuditHook):
    """The calls of `AuditedBoxes`."""

    def calls(self) -> list[CopyCall]:
        return [CopyCall(sys.modules[__name__], "boxed", "boxes.boxed", "boxes", keyword="values")]
