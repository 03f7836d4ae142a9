"""The subcommands of `openprompt-meta`, a module each: parse, call, print.

Nothing heavy is imported before a command runs, so that `--help` and a refused argument are quick.
"""
