"""Conversions between records (AoS) and columns (SoA)."""
