"""The commands, one module each: its name is the command's, its `command` is a function or a group of typer.

A command parses arguments, calls one function of another package, and prints.  Its docstring is its help and lists its exit
codes.  `cli.app` finds the modules by their names and imports one when its command runs.
"""
