"""Other libraries that use zerocopy once their module's ``install`` was called.

Importing a module of this package imports neither its library nor a framework.
"""
