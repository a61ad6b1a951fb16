"""Dask: workers send arrays and tables as frames, and as handles within one machine.

`install` registers serializers and a worker plugin. When workers connect, they announce to each other
which formats they read. All other processes receive objects as Dask sends them without zerocopy.
"""

from zerocopy.integrations.dask.installation import install as install, uninstall as uninstall

__all__ = ["install", "uninstall"]
