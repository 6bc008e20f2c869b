"""Derived attributes (DRADerivedAttributes): values that a request computes from a device by CEL, for constraints alone."""

from dataclasses import dataclass

from dra_extender.allocator.demand.selectors import activation_of, within
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.cel.cost import Deadline
from dra_extender.cel.device import Attribute
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelDeadlineError, CelRuntimeError, quoted
from dra_extender.cel.program import Program
from dra_extender.model.resource_slice import ResourceSlice


@dataclass(frozen=True, slots=True, eq=False)
class PreparedAttribute:
    """An expression under the name of an attribute; it shadows what devices publish under that name."""

    claim: str
    request: str
    name: str
    expression: str
    program: Program | CelCompileError

    def evaluate(self, published: ResourceSlice, position: int, deadline: Deadline | None) -> Attribute:
        """Return the value for a device of a slice.

        Raises:
            SearchEndedError: the expression does not compile, fails on this device, returns something that is no attribute, or
                the deadline passed.
        """
        if isinstance(self.program, CelCompileError):
            raise SearchEndedError(self.problem())
        device = published.devices[position]
        try:
            return self.program.attribute(activation_of(published, device), **within(deadline))
        except (CelBudgetError, CelDeadlineError) as problem:
            detail = "time was up while a derived attribute was computed"
            raise SearchEndedError(Rejection(code=Code.SEARCH_LIMIT, detail=detail)) from problem
        except CelRuntimeError as problem:
            where = f"{published.driver}/{published.pool}/{device.name}"
            message = f"{self.name}: {quoted(self.expression)} on {where}: {problem}"
            raise SearchEndedError(self._rejection(Code.ATTRIBUTE_FAILED, message, device.name)) from problem

    def problem(self) -> Rejection:
        """Return the rejection for an expression that does not compile."""
        return self._rejection(Code.ATTRIBUTE_INVALID, f"{self.name}: {quoted(self.expression)}: {self.program}")

    def _rejection(self, code: Code, detail: str, device: str = "") -> Rejection:
        return Rejection(code=code, claim=self.claim, request=self.request, device=device, detail=detail)
