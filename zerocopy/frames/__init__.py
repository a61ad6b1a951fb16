"""One object as a header and frames: a few bytes that describe it, and its memory.

``to_frames`` splits an array or a table of any framework into a header, which contains no pickle, and
frames. A frame is a contiguous array of bytes that aliases the object's memory. ``from_frames`` builds the
object over buffers with the same content. `zerocopy.pickling`, `zerocopy.share` and the integrations send
headers and frames, each by its own transport.
"""

from zerocopy.frames.objects import Frames as Frames, from_frames as from_frames, to_frames as to_frames

__all__ = ["Frames", "from_frames", "to_frames"]
