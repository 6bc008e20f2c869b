"""The CEL engine: compile a device selector once, evaluate it for many devices; README.md says how.

`cost` limits one evaluation, `budget` all evaluations of one call.
"""
