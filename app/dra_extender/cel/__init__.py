"""The CEL engine: compile a device selector once, ask it about many devices.

Callers use `ProgramCache.compile`, `prepare_device`, `Program.matches` and, for derived attributes, `Program.attribute`; a
`Budget` limits many evaluations together. The exceptions form a tree (see `errors`).
"""

from dra_extender.cel.library.environment import Release as Release
from dra_extender.cel.program import Program as Program
from dra_extender.cel.program import compile_expression as compile_expression
from dra_extender.cel.program_cache import ProgramCache as ProgramCache
from dra_extender.cel.runtime.budget import Budget as Budget
from dra_extender.cel.runtime.device import DeviceActivation as DeviceActivation
from dra_extender.cel.runtime.device import prepare_device as prepare_device
from dra_extender.cel.support.errors import CelBudgetError as CelBudgetError
from dra_extender.cel.support.errors import CelCompileError as CelCompileError
from dra_extender.cel.support.errors import CelCostError as CelCostError
from dra_extender.cel.support.errors import CelDeadlineError as CelDeadlineError
from dra_extender.cel.support.errors import CelError as CelError
from dra_extender.cel.support.errors import CelRuntimeError as CelRuntimeError
