"""Configuration of the site: ``python -m sphinx -W -b html docs docs/_build`` (group ``docs``).

``index.md`` lists the pages; each row of its last table becomes a group of the sidebar, with the titles of
the pages themselves. The pages that ``measurements.md`` lists are below it. The reference is
generated from docstrings, without importing any framework.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpydoc.xref
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # document this working tree, not an installed package

import zerocopy  # noqa: E402

project = "zerocopy"
author = "the zerocopy developers"
release = version = zerocopy.__version__

extensions = [
    "myst_nb",  # includes myst_parser
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_llms_txt",
    "sphinxext.opengraph",
    "notfound.extension",
    "docs.pages",
]
root_doc = "index"
# The first suffix is that of generated pages.
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # notebooks are stored with their output, which tests compare
exclude_patterns = ["_build"]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Copied examples can be pasted: no prompts, no output.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Docstrings have the types, with shapes and units; signatures would repeat them.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autosummary_generate = True
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88
numpydoc_show_class_members = False  # the class template shows members with their docstrings
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {name: f"zerocopy.{name}" for name in zerocopy.__all__}
_errors = [name for name in vars(zerocopy.errors) if name.endswith("Error")]
numpydoc_xref_aliases |= {name: f"zerocopy.errors.{name}" for name in _errors}
numpydoc_xref_aliases |= {name: name for name in ("numpy.dtype", "numpy.ndarray", "torch.Tensor")}
numpydoc_xref_ignore = "all"  # only these links
numpydoc.xref.DEFAULT_LINKS.clear()  # links to Python's pages would need the network

# The address of the site, which Read the Docs sets: sitemap.xml and the cards of other sites need it.
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
if html_baseurl:
    extensions.append("sphinx_sitemap")
sitemap_url_scheme = "{link}"
sitemap_excludes = ["404.html", "search.html", "genindex.html", "py-modindex.html", "_modules/*"]
ogp_site_url = html_baseurl
ogp_image = "_static/pipeline-copies.png"
ogp_image_alt = "Bytes copied in a pipeline: by documented calls, by hand, and by zerocopy"
ogp_custom_meta_tags = ('<meta name="twitter:card" content="summary_large_image" />',)
notfound_urls_prefix = urlsplit(html_baseurl).path or "/"
notfound_context = {
    "title": "Page not found",
    "body": f"""<h1>Page not found</h1>
<p>The site has no page with this address.
The <a href="{notfound_urls_prefix}index.html">first page</a> lists all pages.</p>
<form action="{notfound_urls_prefix}search.html" method="get" role="search">
<label for="words">Words or an error message:</label>
<input type="search" id="words" name="q" class="form-control" autofocus>
</form>""",
}

#: The documentation of other projects. Our inventories have the pages of the names that these pages use, so
#: that a build needs no network.
PROJECTS = {
    "jax": "https://docs.jax.dev/en/latest/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "polars": "https://docs.pola.rs/api/python/stable/",
    "pyarrow": "https://arrow.apache.org/docs/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}
intersphinx_mapping = {name: (address, f"inventories/{name}.inv") for name, address in PROJECTS.items()}

html_theme = "pydata_sphinx_theme"
html_title = f"zerocopy {release}"
html_static_path = ["_static", "pictures/pipeline-copies.png"]
html_css_files = ["zerocopy.css"]
html_favicon = "_static/logo.svg"
html_search_scorer = str(ROOT / "docs" / "search_scores.js")
html_sidebars = {"**": ["all-pages.html"], "404": []}  # the theme's links are relative
html_show_sourcelink = False
html_copy_source = True  # llms.txt lists the Markdown of the pages
html_sourcelink_suffix = ""
llms_txt_full_file = False
llms_txt_uri_template = "_sources/{docname}{suffix}"
llms_txt_exclude = ["api/generated/*", "project/*"]  # files that only name what the page shows
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {
        "text": f"zerocopy {release}",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "alt_text": "",
    },
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_center": [],  # the sidebar lists all pages by section
    "show_prev_next": True,
    "icon_links": [],
    "footer_start": ["copyright"],
    "footer_end": [],
}
settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
repository = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
if repository:
    html_theme_options["icon_links"] = [
        {"name": "Repository", "url": repository, "icon": "fa-brands fa-github"}
    ]
project_copyright = "the zerocopy developers, Apache License 2.0"

# Remove generated pages of names that are not public anymore.
for page in (ROOT / "docs" / "api" / "generated").glob("zerocopy.*.rst"):
    if page.stem.removeprefix("zerocopy.") not in zerocopy.__all__:
        page.unlink()

#: Files of the repository that the site shows as pages.
INCLUDED = {
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changes",
    "SECURITY.md": "project/security",
    "GOVERNANCE.md": "project/governance",
    "CODE_OF_CONDUCT.md": "project/conduct",
}


#: The pages whose tables list other pages, besides those with a folder of their name.
LISTS = {root_doc, "measurements"}


def add_toctrees_to_lists(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add toctrees to a list of pages: one for each row of the first page's last table, or one for all rows.

    A row of the first page links all pages of a group. A row of another list begins with its page. The
    sidebar has the table's short names of notebooks.

    The pages themselves have no toctrees, because GitHub would show them as code.
    """
    if docname not in LISTS and not (ROOT / "docs" / docname).is_dir():
        return
    if docname == root_doc:
        table = source[0].partition("\n| part | pages |\n")[2]
        groups = re.findall(r"^\| ([^|]+) \| (\[.+) \|$", table, flags=re.MULTILINE)
    else:
        rows = re.findall(r"^\| (\[[^\]]+\]\([^)#:]+\)) \|", source[0], flags=re.MULTILINE)
        groups = [("", " ".join(rows))]
    for caption, text in groups:
        pages = [
            f"{title} <{page}>" if page.endswith(".ipynb") else INCLUDED.get(page.removeprefix("../"), page)
            for title, page in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", text)
        ]
        options = [":hidden:", f":caption: {caption}" if caption else ""]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *filter(None, options), "", *pages, "```"])


class LinksToFiles(SphinxTransform):
    """Links to files that are not pages: on GitHub they open the file; on the site they download it."""

    default_priority = 5  # before Sphinx collects downloads

    def apply(self, **options: Any) -> None:
        docname = self.env.docname
        folder = Path(self.env.doc2path(docname)).parent
        # A page that includes a file of the repository has that file's links.
        base = ROOT if docname in INCLUDED.values() else folder
        links: list[Any] = [*self.document.findall(addnodes.download_reference)]
        links += [node for node in self.document.findall(addnodes.pending_xref) if node["reftype"] == "myst"]
        for link in links:
            if link.get("refdomain") == "doc" and link["reftarget"] in self.env.found_docs:
                continue
            path, _, anchor = link["reftarget"].partition("#")
            target = (base / path).resolve()
            if link.get("refdomain") == "doc":  # a page's name without its suffix
                target, anchor = Path(f"{target}.md"), link["reftargetid"] or ""
            if path and target.exists() and ROOT in target.parents:  # Sphinx warns about other paths
                link.replace_self(self._link(link, target, anchor, folder))

    def _link(self, link: nodes.Element, target: Path, anchor: str, folder: Path) -> list[nodes.Node]:
        page = INCLUDED.get(target.relative_to(ROOT).as_posix()) or self.env.path2doc(target)
        common = {"refdoc": self.env.docname, "refexplicit": True}
        if page in self.env.found_docs:
            where = {"reftarget": page, "reftargetid": anchor or None}
            return [
                addnodes.pending_xref("", *link.children, refdomain="doc", reftype="myst", **where, **common)
            ]
        if target.is_dir():
            return link.children
        path = Path(os.path.relpath(target, folder)).as_posix()
        return [addnodes.download_reference("", "", *link.children, reftarget=path, reftype="myst", **common)]


SHORT = {"np": "numpy", "pd": "pandas", "pl": "polars", "pa": "pyarrow", "jnp": "jax.numpy"}
INVENTORIES = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "inventories").glob("*.inv")]
#: Names that an inventory has.
ELSEWHERE = {
    line.split()[0] for text in INVENTORIES for line in text.splitlines() if not line.startswith("#")
}


class LinksToProjects(SphinxTransform):
    """Link names and calls of other projects in code to their documentation."""

    default_priority = 5  # before Sphinx resolves references

    def apply(self, **options: Any) -> None:
        for code in [*self.document.findall(nodes.literal)]:
            name = re.match(r"([a-z]\w*)((?:\.\w+)+)(?:\(.*\))?$", code.astext())
            target = SHORT.get(name[1], name[1]) + name[2] if name else ""
            if target in ELSEWHERE and isinstance(
                code.parent, nodes.paragraph | nodes.emphasis | nodes.strong
            ):
                about = {"refdomain": "py", "reftype": "obj", "reftarget": target, "refexplicit": True}
                link = addnodes.pending_xref("", refdoc=self.env.docname, refwarn=True, **about)
                code.replace_self(link)
                link += code


#: Positions for line breaks in code: after a dot, a parenthesis or a comma, and between words of a name.
JOINT = re.compile(r"(?<=[.(,/])(?=[^\W\d])|(?<=[a-z])(?=[A-Z])")


#: The words of the conversion table, which get colours.
HOW_SHARED = {"alias": "always", "1-D": "often", "aligned": "often", "copy": "never"}


class Tables(SphinxTransform):
    """Add classes for the style sheet: wide tables, figures, short code; and line breaks in long code.

    Markdown's tables must have a header; one without text is left out.
    """

    default_priority = 500

    def apply(self, **options: Any) -> None:
        for table in self.document.findall(nodes.tgroup):
            if table["cols"] > 3:
                table.parent["classes"].append("sticky-column")
            if table["cols"] > 5:
                table.parent["classes"].append("many-columns")
            for head in [*table.findall(nodes.thead)]:
                if not head.astext().strip():
                    table.remove(head)
        for cell in self.document.findall(nodes.entry):
            if cell.astext() in HOW_SHARED:
                cell["classes"].append(f"shared-{HOW_SHARED[cell.astext()]}")
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


class Tracebacks(SphinxTransform):
    """Mark blocks with tracebacks: their long messages wrap, and other output scrolls."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        for block in self.document.findall(nodes.literal_block):
            if re.search(r"^(Traceback \(|\S*Error: )", block.astext(), re.MULTILINE):
                block["classes"].append("traceback")


#: The words of each page.
SEARCH_WORDS = tomllib.loads((ROOT / "docs" / "search_words.toml").read_text(encoding="utf-8"))


class SearchWords(SphinxTransform):
    """Add the words of ``search_words.toml`` to their pages: entries of the index, and words of the text."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        words = SEARCH_WORDS.get(self.env.docname)
        if words and self.document.children:
            # Without a target the search shows the page once.
            entries = [("single", word, "", "main", None) for word in words.split(", ")]
            section = self.document.children[0]
            section.insert(1, addnodes.index(entries=entries))
            section.insert(
                1, nodes.meta(name="keywords", content=", ".join(sorted({*re.findall(r"[^\s,]+", words)})))
            )


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip fields of named tuples and of dataclasses with slots; the class docstring describes them."""
    generated = (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")
    return True if generated or inspect.ismemberdescriptor(obj) else None


def setup(app: Sphinx) -> None:
    """Register the functions above; Sphinx calls it."""
    app.connect("source-read", add_toctrees_to_lists)
    app.connect("autodoc-skip-member", skip_fields)
    app.add_transform(LinksToFiles)
    app.add_transform(LinksToProjects)
    app.add_transform(Tables)
    app.add_transform(Tracebacks)
    app.add_transform(SearchWords)
