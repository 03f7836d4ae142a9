"""Recipes that are run once and whose results ship; not part of the package."""
