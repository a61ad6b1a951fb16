"""The HTML around the content of a page: its head, its style and the links to the other pages."""

from __future__ import annotations

#: A Jinja template with the variables `base` (Bokeh's), `heading`, `page` and `pages`.
PAGE = """
{% extends base %}
{% block preamble %}
<link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --line: #80808050; --link: #0550ae }
  @media (prefers-color-scheme: dark) { :root { --text: #d0d7de; --back: #0d1117; --link: #79b8ff } }
  html, body { margin: 0; background: var(--back); color: var(--text); font: 15px system-ui, sans-serif }
  header { padding: 10px 16px 0; border-bottom: 1px solid var(--line) }
  h1 { font-size: 18px; margin: 0 0 6px }
  nav { display: flex; flex-wrap: wrap; gap: 2px 14px; padding-bottom: 8px }
  nav a { color: var(--link); text-decoration: none; padding: 3px 0; border-bottom: 2px solid transparent }
  nav a:hover { border-color: var(--line) }
  nav a[aria-current] { color: var(--text); font-weight: 600; border-color: currentColor }
  nav a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
  main { padding: 8px 16px 32px; max-width: 1200px }
</style>
{% endblock %}
{% block contents %}
<header>
  <h1>zerocopy monitor: {{ heading }}</h1>
  <nav aria-label="Pages">
  {% for each in pages %}
    <a href="{{ './' ~ each.path }}"{% if each.path == page %} aria-current="page"{% endif %}>
      {{- each.title -}}
    </a>
  {% endfor %}
  </nav>
</header>
<main>{{ embed(roots[0]) }}</main>
{% endblock %}
"""
