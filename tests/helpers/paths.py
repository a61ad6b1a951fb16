"""Paths of this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Where tests build the site for: the sitemap and cards of other sites have its address.
SITE_ADDRESS = "https://docs.example/en/latest/"
