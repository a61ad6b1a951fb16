"""One file a framework, or a folder where one is not enough, and nothing about it anywhere else.

Its name is the framework's import name; it defines ``FRAMEWORK``.
"""
