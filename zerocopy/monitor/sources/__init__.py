"""Where the figures of a sample come from: one file per source."""
