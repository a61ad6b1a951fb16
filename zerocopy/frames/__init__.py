"""One object as a short header and frames: bytes to send, and the memory that they describe.

``to_frames`` splits an array or a table of any framework into a header (bytes without pickle) and
frames that alias its memory; ``from_frames`` builds the object over any buffers with the same
content. `zerocopy.pickling`, `zerocopy.share` and the integrations send the two parts in their own ways.
"""

from zerocopy.frames.build import from_frames as from_frames
from zerocopy.frames.split import Frames as Frames, to_frames as to_frames

__all__ = ["Frames", "from_frames", "to_frames"]
