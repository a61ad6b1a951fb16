"""HTML for notebooks."""
