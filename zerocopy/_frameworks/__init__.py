"""One file or folder per framework; nothing about a framework is anywhere else.

Its name is the framework's import name, and it defines ``FRAMEWORK``. `_obstacles` has the reasons
and refusals that several of them share.
"""
