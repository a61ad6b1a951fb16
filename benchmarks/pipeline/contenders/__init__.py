"""Contenders of the pipeline: the stages and the work are the same, the borders differ."""

from benchmarks.pipeline.contenders import by_hand, copies, ours
from benchmarks.pipeline.contenders.method import Method

METHODS = (
    Method("zerocopy", "ours", ours.BORDERS),
    Method("documented calls", "idiom", copies.BORDERS),
    Method("aliases by hand", "narrow", by_hand.BORDERS),
)
