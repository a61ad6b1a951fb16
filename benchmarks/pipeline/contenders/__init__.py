"""Who runs the pipeline: the same stages and the same work; the borders alone differ.

One table, which the clock, the memory and the tests share.
"""

from benchmarks.pipeline.contenders import by_hand, copies, ours
from benchmarks.pipeline.contenders.method import Method

METHODS = (
    Method("zerocopy", "ours", ours.BORDERS),
    Method("as people write it", "idiom", copies.BORDERS),
    Method("aliases by hand", "narrow", by_hand.BORDERS),
)
