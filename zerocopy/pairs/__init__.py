"""The matrix: conversions between every pair of frameworks, with a check of each promise."""
