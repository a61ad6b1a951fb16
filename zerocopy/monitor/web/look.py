"""The style of texts and tables: the page's style does not apply in the shadow DOM of Bokeh's elements."""

from __future__ import annotations

STYLE = """
:host { color: #24292f }
p, table { font: 14px system-ui, sans-serif }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px }
p { margin: 4px 0; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; max-width: 1100px }
th, td { text-align: left; vertical-align: top; padding: 3px 12px 3px 0; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom: 1px solid #80808080; overflow-wrap: normal }
td code { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
tr.note td { padding: 0 0 8px 12px; border-bottom: 1px solid #80808040 }
code { font-family: ui-monospace, monospace; font-size: 13px }
.bad { color: #b35900; font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font: 13px system-ui, sans-serif }
.legend b { font-weight: 600 }
.legend span { overflow-wrap: anywhere }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px }
@media (prefers-color-scheme: dark) { :host { color: #d0d7de } .bad { color: #ffa657 } }
@media (max-width: 640px) {
  thead { display: none }
  table, tbody, tr, td { display: block }
  td code { white-space: normal }
  td.number { display: inline-block; text-align: left; white-space: normal }
  td[data-title]::before { content: attr(data-title) ": "; opacity: 0.75 }
  td:empty { display: none }
  tr { padding: 4px 0 }
}
"""
