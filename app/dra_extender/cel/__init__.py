"""The CEL engine: compile a device selector once, evaluate it for many devices.

    program_cache  text of an expression -> Program, kept within a bound of bytes per namespace
    program        one compiled expression: `matches` a device, or yields an `attribute`
    runtime        `device.prepare_device` wraps a device; a `budget.Budget` limits many evaluations together
    support.errors the tree of exceptions

Answers, costs and limits are those of cel-go with the libraries of Kubernetes.
"""
