"""The CEL engine: compile a device selector once, evaluate it for many devices; README.md says how."""
