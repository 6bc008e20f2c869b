"""The CEL engine: compile a device selector once, ask it about many devices.

Callers use `ProgramCache.compile`, `prepare_device`, `Program.matches` and, for derived attributes, `Program.attribute`; a
`Budget` limits many evaluations together. The exceptions form a tree (see `errors`).
"""

from app.cel.budget import Budget as Budget
from app.cel.cache import ProgramCache as ProgramCache
from app.cel.device import DeviceActivation as DeviceActivation
from app.cel.device import prepare_device as prepare_device
from app.cel.environment import Release as Release
from app.cel.errors import CelBudgetError as CelBudgetError
from app.cel.errors import CelCompileError as CelCompileError
from app.cel.errors import CelCostError as CelCostError
from app.cel.errors import CelDeadlineError as CelDeadlineError
from app.cel.errors import CelError as CelError
from app.cel.errors import CelRuntimeError as CelRuntimeError
from app.cel.program import Program as Program
from app.cel.program import compile_expression as compile_expression
