"""The command line that prints what a view shows, ready for a shell."""

from shlex import join
from typing import Final

PROGRAM: Final = ("kubectl", "dra")
_DEFAULT_NAMESPACE: Final = "default"


class CommandLines:
    """Command lines that ask the same cluster or snapshot as the page."""

    def __init__(self, source: tuple[str, ...] = ()) -> None:
        """`source` are the options that name it, such as `("--snapshot", "cluster.tar.gz")`."""
        self._source = source

    def waiting(self) -> str:
        """All pods that wait."""
        return self._line("why")

    def why(self, namespace: str, name: str) -> str:
        """Why one pod waits."""
        return self._line("why", name, *(() if namespace == _DEFAULT_NAMESPACE else ("-n", namespace)))

    def devices(self, node: str = "", driver: str = "") -> str:
        """The devices of a node, or of all; of one driver, or of all."""
        return self._line("devices", *((node,) if node else ()), *(("--driver", driver) if driver else ()))

    def audit(self) -> str:
        """Whether the cluster is sound."""
        return self._line("audit")

    def _line(self, *arguments: str) -> str:
        # What begins with a minus sign would be taken for an option.
        guarded = [each for each in arguments if not each.startswith("-") or each in ("-n", "--driver")]
        return join((*PROGRAM, *guarded, *self._source))
