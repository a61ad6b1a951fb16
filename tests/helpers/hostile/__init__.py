"""Hostile inputs: one integer seed makes one conversion, which must succeed or be refused, never crash."""
