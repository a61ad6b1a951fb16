"""One file or folder per framework; nothing about a framework is anywhere else.

The file or folder has the framework's import name and defines ``FRAMEWORK``. `_obstacles` has the
reasons and refusals that several frameworks share.
"""
