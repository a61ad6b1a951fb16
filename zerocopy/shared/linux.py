"""Modules of Linux that shared memory needs; on other systems, importing this one raises ``ImportError``."""

from __future__ import annotations

import os

try:
    import fcntl as fcntl
    import resource as resource

    _has_memfd = hasattr(os, "memfd_create")
except ImportError:  # Windows
    _has_memfd = False

if not _has_memfd:
    raise ImportError(
        "zerocopy.share: the Python of this process has no memfd_create(2), which needs Linux.\n"
        "  To fix: send the object's bytes: zerocopy.pickling.dumps(x)"
    )
