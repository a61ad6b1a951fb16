"""One file a framework, and nothing about it anywhere else.

The file's name is the framework's import name; it defines ``FRAMEWORK``.
"""
