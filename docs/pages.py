"""Sphinx extension: pages for phones, dark screens and screen readers, and notebooks to download.

An SVG of ``benchmarks.plots`` has the colours of both kinds of pages. Pictures are at least 700 pixels wide;
on a narrow screen they scroll. A PNG may have a twin, ``NAME-dark.png``; the page shows the one for its
theme.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class Pictures(SphinxTransform):
    """Put pictures into an element that scrolls, and the dark twin after each PNG that has one."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for image in [*self.document.findall(nodes.image)]:
            uri = Path(image["uri"])
            twin = uri.with_name(f"{uri.stem}-dark{uri.suffix}")
            if isinstance(image.parent, nodes.paragraph):
                # An element that scrolls must have the focus of the keyboard.
                start = nodes.raw("", '<div class="picture" tabindex="0">', format="html")
                end = nodes.raw("", "</div>", format="html")
                image.parent.replace_self([start, image.parent, end])
            if (folder / twin).is_file():
                dark = image.copy()
                dark["uri"] = twin.as_posix()
                for shown, theme in ((image, "light"), (dark, "dark")):
                    shown["classes"] = [*shown["classes"], f"only-{theme}"]
                image.replace_self([image, dark])


class NotebookDownload(SphinxTransform):
    """Put a link to the file below the title of a notebook's page."""

    default_priority = 6  # after conf.py's links, which lead to pages; before Sphinx collects downloads

    def apply(self, **options: Any) -> None:
        path = Path(self.env.doc2path(self.env.docname))
        title = next(iter(self.document.findall(nodes.title)), None)
        if path.suffix == ".ipynb" and title is not None:
            link = addnodes.download_reference(
                "", "Download this notebook", reftarget=path.name, refdoc=self.env.docname
            )
            title.parent.insert(title.parent.index(title) + 1, nodes.paragraph("", "", link))


def parameters_without_list(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Replace the lists of parameters in signatures: Sphinx writes <dd> elements without <dt>."""

    def blocks(parameters: re.Match[str]) -> str:
        lines = re.sub(r"<dd>(.*?)</dd>", r'<span class="sig-line">\1</span>', parameters[1], flags=re.DOTALL)
        return f'<span class="sig-lines">{lines}</span>'

    if "body" in context:
        pattern = r'<dl>\s*(<dd><em class="sig-param">.*?)</dl>'
        context["body"] = re.sub(pattern, blocks, context["body"], flags=re.DOTALL)


def anchors_of_sources(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Correct links from source code to pages: viewcode has one prefix for all names of a module."""

    def corrected(link: re.Match[str]) -> str:
        path, name, anchor = link.groups()
        return f'href="{path}{name}.html#{anchor if anchor.startswith(name) else name}"'

    if page.startswith("_modules/"):
        pattern = r'href="([^"#]*/api/generated/)([\w.]+)\.html#([\w.]+)"'
        context["body"] = re.sub(pattern, corrected, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transforms and the functions above; Sphinx calls it."""
    app.connect("html-page-context", parameters_without_list)
    app.connect("html-page-context", anchors_of_sources)
    app.add_transform(Pictures)
    app.add_transform(NotebookDownload)
    return {"parallel_read_safe": True}
