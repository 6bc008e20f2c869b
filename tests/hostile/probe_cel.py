"""Probes of the expression engine: compile, evaluate, explain and lint one expression, and say what it took."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from dra_extender.cel import errors, program
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.environment import FUNCTIONS
from dra_extender.cel.explain.explain import explain
from dra_extender.cel.lint.lint import lint

from tests.hostile.measuring import NativeCalls, Stalls, forget_peak, peak, profiled_deadline, resident

_FRAMES: list[Any] = []


def describe(_: dict[str, Any]) -> dict[str, Any]:
    """Every overload of every declared function: name, whether it is a method, and the types of its parameters."""
    found = [
        {"name": item.name, "member": each.member, "parameters": [_type(kind) for kind in each.parameters]}
        for item in FUNCTIONS.values()
        for each in item.overloads
    ]
    return {"overloads": found}


def _type(kind: Any) -> dict[str, Any]:
    return {"kind": kind.kind, "name": kind.name, "parameters": [_type(each) for each in kind.parameters]}


def evaluate(job: dict[str, Any]) -> dict[str, Any]:
    """Evaluate a selector on a device with everything a device may have."""
    expression, device = job["expression"], _device()
    try:
        compiled = program.compile_expression(expression)
    except errors.CelCompileError as error:
        return {"values": {}, "note": f"refused: {error.reason}"[:200]}
    if compiled.fast_path is not None:
        return {"values": {}, "note": "asked directly"}
    return _measured(job, lambda deadline: compiled.evaluate(device, deadline=deadline))


def accepted(job: dict[str, Any]) -> dict[str, Any]:
    """Whether the compiler takes a selector."""
    try:
        program.compile_expression(job["expression"])
    except errors.CelCompileError as error:
        return {"values": {}, "note": f"refused: {error.reason}"}
    return {"values": {"accepted": 1.0}}


def compiling(job: dict[str, Any]) -> dict[str, Any]:
    """Compile a text."""
    expression = job["expression"]
    return _measured(job, lambda _: _compiled(expression))


def explaining(job: dict[str, Any]) -> dict[str, Any]:
    expression, device = job["expression"], _device()
    return _measured(job, lambda deadline: explain(expression, device, deadline=deadline))


def linting(job: dict[str, Any]) -> dict[str, Any]:
    expression = job["expression"]
    return _measured(job, lambda _: lint(expression))


def _compiled(expression: str) -> Any:
    for cached in _caches():
        cached.cache_clear()
    compiled = program.compile_expression(expression)
    compiled.costed_program()
    return compiled


@cache
def _caches() -> tuple[Any, ...]:
    """Everything the engine remembers by functools, so that each compilation is a first one."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("dra_extender.cel")]
    return tuple(
        value for module in modules for value in vars(module).values() if callable(getattr(value, "cache_clear", None))
    )


@cache
def _device() -> Any:
    """As many attributes as the API takes, with names alike and texts of 64 characters."""
    attributes = {f"{'a' * 30}{place:02}": Attribute(string_value="a" * 62 + f"{place:02}") for place in range(24)}
    capacity = {f"{'c' * 30}{place:02}": "1.5Gi" for place in range(8)}
    return prepare_device("gpu.example.com", attributes, capacity, allow_multiple_allocations=True)


def _measured(job: dict[str, Any], action: Callable[[Any], Any]) -> dict[str, Any]:
    if job.get("profile"):
        native = NativeCalls()
        native.run(lambda: action(profiled_deadline()))
        return {"values": {"native": native.longest}, "note": native.where}
    del _FRAMES[:]
    before = resident()
    forget_peak()
    deadline = Stalls()
    kept: Any = None
    try:
        kept = action(deadline)
        note = "value"
    except errors.CelError as error:
        note = type(error).__name__
    except Exception as error:  # noqa: BLE001 - nothing else may come out
        return {"values": {"broken": 1.0}, "note": f"{type(error).__name__}: {error}"[:300]}
    longest, total = deadline.end()
    grown = peak() - before
    values = {"stall": longest, "cpu": total, "grown": float(max(0, grown))}
    for frame in _FRAMES[:1]:
        values["charged"] = float(frame.work + frame.cost)
    del kept
    return {"values": values, "note": note}


def _remember_frames() -> None:
    """Keep the frame of an evaluation, which knows what was charged."""
    original = program.CostedProgram.frame

    def frame(*arguments: Any, **named: Any) -> Any:
        made = original(*arguments, **named)
        _FRAMES.append(made)
        return made

    program.CostedProgram.frame = frame  # type: ignore[method-assign]


_remember_frames()
