"""The site: ``python -m sphinx -W -b html docs docs/_build`` (the ``docs`` extra has what it needs).

The map of the pages is written once, in ``index.md``: each of its sections with a table is a part
of the navigation. The reference is made from the docstrings; no framework is imported for it.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpydoc.xref
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package that is documented is the one beside these pages

import zerocopy  # noqa: E402

project = "zerocopy"
author = "the zerocopy developers"
release = version = zerocopy.__version__
FORGE = "https://github.com/zerocopy/zerocopy"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.linkcode",
    "numpydoc",
    "sphinx_copybutton",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# What is copied can be pasted: without prompts, and without the output below them.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Types are in the docstrings, with their shapes and units; in signatures they would be there twice.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autosummary_generate = True
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88
numpydoc_show_class_members = False  # the template of classes shows them with their docstrings
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {name: f"zerocopy.{name}" for name in zerocopy.__all__}
numpydoc_xref_ignore = "all"  # no links but those
numpydoc.xref.DEFAULT_LINKS.clear()  # nor its own to Python's pages, which would have to be fetched

html_theme = "pydata_sphinx_theme"
html_title = f"zerocopy {release}"
html_static_path = ["_static"]
html_css_files = ["zerocopy.css"]
html_sidebars = {"**": ["all-pages.html"]}
html_show_sourcelink = False
html_copy_source = False
html_context = {
    "default_mode": "auto",
    "github_user": "zerocopy",
    "github_repo": "zerocopy",
    "github_version": "main",
    "doc_path": "docs",
}
html_theme_options = {
    "logo": {"text": f"zerocopy {release}"},
    "github_url": FORGE,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_center": [],  # the sidebar has all pages, under the names of their sections
    "use_edit_page_button": True,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
project_copyright = "the zerocopy developers, Apache License 2.0"

# A page of a name that is public no more would stay, and belong nowhere.
for page in (ROOT / "docs" / "api" / "generated").glob("zerocopy.*.rst"):
    if page.stem.removeprefix("zerocopy.") not in zerocopy.__all__:
        page.unlink()

#: Pages of the site that show a file of the repository.
SHOWN = {"CONTRIBUTING.md": "project/contributing", "CHANGELOG.md": "project/changes"}

#: What the pages are made of that nobody writes.
MADE = {
    "conversions": "docs/conversions.in",
    "benchmarks": "benchmarks/pages/conversion.py",
    "tables-benchmarks": "benchmarks/pages/tables.py",
    "layouts-benchmarks": "benchmarks/pages/layout.py",
    "pool-benchmarks": "benchmarks/pages/pool.py",
    "pipeline-benchmarks": "benchmarks/pages/pipeline.py",
}
# What a GPU did is on a page of its own, where there are results of one.
MADE |= {f"gpu-{name}": made for name, made in MADE.items() if name.endswith("benchmarks")}


def put_the_map_in_the_sidebar(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make a toctree of each section of the index, of the pages that its table links to.

    The sidebar calls a page as the table does. A toctree in the page itself would be a block of code on
    a forge, where it is read too.
    """
    if docname != root_doc:
        return
    sections = re.split(r"^## (.+)$", source[0], flags=re.MULTILINE)
    trees = []
    for caption, text in zip(sections[1::2], sections[2::2], strict=True):
        links = re.findall(r"(^\| )?\[([^\]]+)\]\(([^)#:]+)\)", _rows(text), flags=re.MULTILINE)
        pages = [(first, title, SHOWN.get(page.removeprefix("../"), page)) for first, title, page in links]
        entries = [f"{title} <{page}>" if first else page for first, title, page in pages]
        if entries:
            trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"]))
    source[0] = "\n\n".join([source[0], *trees])


def _rows(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


class LinksToTheForge(SphinxTransform):
    """Links to files that are no pages: on a forge they lead to the file, and here to the forge."""

    default_priority = 5  # before Sphinx collects files for download

    def apply(self, **options: Any) -> None:
        docname = self.env.docname
        # A page that shows a file of the repository has that file's links.
        base = ROOT if docname in SHOWN.values() else Path(self.env.doc2path(docname)).parent
        links: list[Any] = [*self.document.findall(addnodes.download_reference)]
        links += [node for node in self.document.findall(addnodes.pending_xref) if node["reftype"] == "myst"]
        for link in links:
            if link.get("refdomain") == "doc" and link["reftarget"] in self.env.found_docs:
                continue
            path, _, anchor = link["reftarget"].partition("#")
            there = (base / path).resolve()
            if link.get("refdomain") == "doc":  # a page's name, or what would be one outside of docs/
                there, anchor = Path(f"{there}.md"), link["reftargetid"] or ""
            if not path or not there.exists() or ROOT not in there.parents:
                continue  # Sphinx warns of it
            link.replace_self(self._link(link, there, anchor))

    def _link(self, link: nodes.Element, there: Path, anchor: str) -> nodes.Element:
        name = there.relative_to(ROOT).as_posix()
        page = SHOWN.get(name) or self.env.path2doc(there)
        if page in self.env.found_docs:
            return addnodes.pending_xref(
                "",
                *link.children,
                refdomain="doc",
                reftype="myst",
                reftarget=page,
                reftargetid=anchor or None,
                refdoc=self.env.docname,
                refexplicit=True,
            )
        kind = "tree" if there.is_dir() else "blob"
        where = f"{FORGE}/{kind}/main/{name}" + (f"#{anchor}" if anchor else "")
        return nodes.reference("", "", *link.children, refuri=where, internal=False)


#: Where code in a cell may be broken: behind a dot, a parenthesis, a comma, and between words of a name.
JOINT = re.compile(r"(?<=[.(,/])(?=[^\W\d])|(?<=[a-z])(?=[A-Z])")


class Tables(SphinxTransform):
    """Mark what the style sheet is to look after: tables of many columns, figures, short code.

    Longer code may be broken between its words, which a style sheet cannot find.
    """

    default_priority = 500

    def apply(self, **options: Any) -> None:
        for table in self.document.findall(nodes.tgroup):
            if table["cols"] > 5:
                table.parent["classes"].append("many-columns")
        for cell in self.document.findall(nodes.entry):
            if re.fullmatch(r"\d.{0,11}", cell.astext()):
                cell["classes"].append("figure-in-table")
            for code in cell.findall(nodes.literal):
                words = JOINT.split(code.astext())
                if len(code.astext()) <= 20:
                    code["classes"].append("short")
                elif len(words) > 1 and all(isinstance(child, nodes.Text) for child in code.children):
                    code.clear()
                    for word in words:
                        code += [nodes.Text(word), nodes.raw("", "<wbr>", format="html")]


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what the class's own docstring has: fields of tuples and of dataclasses with slots."""
    made = (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")
    return True if made or inspect.ismemberdescriptor(obj) else None


def source_of(name: str) -> tuple[Path, int, int] | None:
    """Return the file of a public object, and its first and last lines; None for what has no lines."""
    found: Any = zerocopy
    for part in name.split("."):
        found = getattr(found, part, None)
    found = inspect.unwrap(found.fget if isinstance(found, property) else found)
    try:
        file = Path(inspect.getfile(found)).resolve()
        lines, first = inspect.getsourcelines(found)
    except TypeError:
        return None
    return file.relative_to(ROOT), first, first + len(lines) - 1


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return where the source of an object of the reference is on the forge."""
    found = source_of(info["fullname"]) if info["module"] == "zerocopy" else None
    return found and f"{FORGE}/blob/main/{found[0].as_posix()}#L{found[1]}-L{found[2]}"


def edit_what_is_shown(app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Point "edit on GitHub" at what a page is made of: a docstring, a template, a file outside of docs/."""
    made = pagename.removeprefix("api/generated/zerocopy.")
    shown = {**MADE, **{page: name for name, page in SHOWN.items()}}.get(pagename)
    if made != pagename:
        found = source_of(made)
        shown = found[0].as_posix() if found else "zerocopy/__init__.py"
    if shown is not None:
        context["get_edit_provider_and_url"] = lambda: ("GitHub", f"{FORGE}/edit/main/{shown}")


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("source-read", put_the_map_in_the_sidebar)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("html-page-context", edit_what_is_shown, priority=900)  # after the theme's own
    app.add_transform(LinksToTheForge)
    app.add_transform(Tables)
