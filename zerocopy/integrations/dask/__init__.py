"""Dask: workers send arrays and tables as frames, and as handles within one machine.

`install` registers serializers and a worker plugin. Workers announce to each other what they can
read when they connect; to all other processes objects are sent as Dask does without zerocopy.
"""

from zerocopy.integrations.dask.installation import install as install, uninstall as uninstall

__all__ = ["install", "uninstall"]
