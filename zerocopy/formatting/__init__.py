"""Numbers, units and names as text for reports."""
