"""The parts of pages that a suite has alone: each is a function of results, named in a template of docs/."""
