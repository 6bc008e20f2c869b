"""The commands of `dra-extender`: they parse arguments, call one function of another package, and print.

Each module registers its command in `app`.  Exit codes are part of each command's help text.
"""
