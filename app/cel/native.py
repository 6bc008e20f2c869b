"""Calls into native code, whose time depends on their arguments: what each takes at worst is charged before it runs."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from app.cel.cost import Frame

TEXT: Final = "text"
BYTES: Final = "bytes"
LIST: Final = "list"
INDEX: Final = "index"
ANY: Final = "any"


class Native(msgspec.Struct, frozen=True):
    """A call and its worst case.

    Attributes:
        name: What a refusal names, unique among all entries.
        takes: The kinds of the arguments of `run`, each TEXT, BYTES, LIST, INDEX or ANY.
        run: The call itself, without a frame. It may raise CelRuntimeError.
        work: From the same arguments to units of work (UNIT_NANOSECONDS each), at least twice what was measured at worst.
            It takes constant time itself.
    """

    name: str
    takes: tuple[str, ...]
    run: Callable[..., Any]
    work: Callable[..., int]

    def __call__(self, frame: Frame, *arguments: Any) -> Any:
        """Charge the worst case, then run.

        Raises:
            CelCostError: It takes longer than one call may, or the evaluation has not that much left; nothing was run.
        """
        work = self.work(*arguments)
        if work:
            frame.begin_call(self.name, work)
        return self.run(*arguments)
