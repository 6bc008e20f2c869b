"""Reasons why selectors do not match a device: the first one that is false, with the values on both sides."""

from collections.abc import Hashable, Iterator
from math import inf
from typing import Final

from dra_extender.allocator.demand.demand import is_read, reads_of_programs
from dra_extender.allocator.demand.selectors import Deadline, SelectorList, activation_of, evaluation_limits
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelDeadlineError, CelRuntimeError, quoted
from dra_extender.cel.explain.evaluation import ExplainableExpression
from dra_extender.cel.explain.explain import explain
from dra_extender.cel.explain.nearness import distance, required_driver
from dra_extender.cel.explain.values import shortened
from dra_extender.cel.program import Program
from dra_extender.model.resource_slice import ResourceSlice

_LONGEST: Final = 500
CUT: Final = "the values were not looked up: the limit for explanations was reached"


class UnmetSelectors:
    """Tells which selector is false on a device, and why; an expression is prepared for that once for all devices."""

    def __init__(self, selectors: SelectorList, deadline: Deadline | None) -> None:
        """Explain these selectors; a `Budget` as deadline is charged for it, and says when it has to be cut."""
        self._selectors = selectors
        self._deadline = deadline
        self._budget = deadline if isinstance(deadline, Budget) else None
        self._prepared: dict[str, ExplainableExpression] = {}
        self._reads = reads_of_programs(selectors.programs)

    @property
    def driver(self) -> str | None:
        """The driver that a device must have, as far as a selector says so and the budget suffices to find out."""
        programs = (program for program in self._selectors.programs if isinstance(program, Program))
        try:
            names = (required_driver(self._explainable(program)) for program in programs)
            return next((name for name in names if name is not None), None)
        except (CelBudgetError, CelCompileError):
            return None

    def first_unmet(self, published: ResourceSlice, position: int) -> int | None:
        """Return the index of the first selector that is not true on the device; None if there is none."""
        activation = activation_of(published, published.devices[position])
        for index, program in enumerate(self._selectors.programs):
            try:
                if not isinstance(program, Program) or not program.matches(
                    activation, **evaluation_limits(self._deadline)
                ):
                    return index
            except (CelBudgetError, CelDeadlineError, CelRuntimeError):
                return index
        return None

    def read_content(self, published: ResourceSlice, position: int) -> Hashable:
        """Return a value that is equal for devices in which the selectors read the same."""
        device, reads = published.devices[position], self._reads
        attributes = device.attributes
        if reads is not None:
            attributes = tuple(attribute for attribute in attributes if is_read(reads, published.driver, attribute[0]))
        return (published.driver, attributes, device.capacity, device.allow_multiple_allocations)

    def message(self, published: ResourceSlice, position: int) -> str:
        """Return for example `device.attributes["x"].model is "A100", wanted "H100"`; empty if no selector is false there.

        The first selector that is false decides, a class's before a request's.
        """
        return next((text for _, text in self.messages(published, position)), "")

    def messages(self, published: ResourceSlice, position: int) -> Iterator[tuple[int, str]]:
        """Yield the index and the message of each selector that is false on the device, up to the first that fails."""
        activation = activation_of(published, published.devices[position])
        for index, program in enumerate(self._selectors.programs):
            if not isinstance(program, Program):
                return
            try:
                if program.matches(activation, **evaluation_limits(self._deadline)):
                    continue
                text = self._explain(program, activation)
            except (CelBudgetError, CelDeadlineError):
                text = ""
            except (CelRuntimeError, CelCompileError):
                return
            yield index, text or f"{quoted(program.expression)}: {CUT}"

    def failure(self, published: ResourceSlice, position: int) -> str:
        """Return what the first selector that is false or fails on the device reads in vain; empty if that is not known."""
        index = self.first_unmet(published, position)
        program = None if index is None else self._selectors.programs[index]
        if not isinstance(program, Program):
            return ""
        try:
            return self._explain(program, activation_of(published, published.devices[position]))
        except (CelBudgetError, CelDeadlineError, CelRuntimeError, CelCompileError):
            return ""

    def distance(self, published: ResourceSlice, position: int) -> float:
        """Return how far the device is from satisfying all selectors (`cel.explain.nearness`); infinite without budget."""
        activation = activation_of(published, published.devices[position])
        programs = (program for program in self._selectors.programs if isinstance(program, Program))
        try:
            return sum(distance(self._explainable(program), activation, self._budget) for program in programs)
        except CelBudgetError:
            return inf

    def _explain(self, program: Program, activation: DeviceActivation) -> str:
        """Return what is false and why; empty if the budget does not suffice to tell."""
        budget = self._budget
        if budget is not None and budget.remaining < program.units:
            return ""
        prepared = self._explainable(program)
        deadline = None if budget is not None else self._deadline
        text = explain(prepared, activation, deadline=deadline, budget=budget)
        return "" if budget is not None and budget.remaining <= 0 else shortened(text, _LONGEST)

    def _explainable(self, program: Program) -> ExplainableExpression:
        prepared = self._prepared.get(program.expression)
        if prepared is None:
            prepared = self._prepared[program.expression] = ExplainableExpression(
                program.expression, program.emulate, self._budget
            )
        return prepared
