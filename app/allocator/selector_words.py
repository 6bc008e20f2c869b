"""Why a device is not one that a request means: the selector that is false there, with the values on both sides."""

from app.allocator.selectors import Deadline, SelectorList, activation_of, within
from app.cel import CelCompileError, CelRuntimeError, Program
from app.cel.explain import explain
from app.cel.explain_text import one_line
from app.model.resource_slice import ResourceSlice


def unmet_selector(selectors: SelectorList, published: ResourceSlice, position: int, deadline: Deadline | None) -> str:
    """E.g. `device.attributes["gpu.example.com"].model is "A100", wanted "H100"`; empty if no selector is false there.

    The first selector that is false decides, a class's before a request's.
    """
    activation = activation_of(published, published.devices[position])
    for program in selectors.programs:
        if not isinstance(program, Program):
            return ""
        try:
            if program.matches(activation, **within(deadline)):
                continue
            return one_line(explain(program, activation, deadline=deadline))
        except (CelRuntimeError, CelCompileError):
            return ""
    return ""
