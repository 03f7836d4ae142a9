"""The version of the package: a module of its own, so that nobody imports the package root for it."""

__version__ = "0.1.0"
