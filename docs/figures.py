"""Sphinx extension: pictures that are legible on phones and on dark pages.

An SVG of ``benchmarks.plots`` has the colours of both kinds of pages. It is not shown smaller than it is
drawn; on a narrow screen it scrolls. A PNG may have a twin, ``NAME-dark.png``; the page shows the one for its
theme.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class Pictures(SphinxTransform):
    """Put SVGs into an element that scrolls, and the dark twin after each PNG that has one."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for image in [*self.document.findall(nodes.image)]:
            uri = Path(image["uri"])
            twin = uri.with_name(f"{uri.stem}-dark{uri.suffix}")
            if uri.suffix == ".svg" and isinstance(image.parent, nodes.paragraph):
                # An element that scrolls must have the focus of the keyboard.
                start = nodes.raw("", '<div class="picture" tabindex="0">', format="html")
                end = nodes.raw("", "</div>", format="html")
                image.parent.replace_self([start, image.parent, end])
            elif (folder / twin).is_file():
                dark = image.copy()
                dark["uri"] = twin.as_posix()
                for shown, theme in ((image, "light"), (dark, "dark")):
                    shown["classes"] = [*shown["classes"], f"only-{theme}"]
                image.replace_self([image, dark])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform; Sphinx calls it."""
    app.add_transform(Pictures)
    return {"parallel_read_safe": True}
