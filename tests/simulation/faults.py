"""Faults of the next requests of a kind, and what was asked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.http_server import HttpRequest

ALWAYS: Final = -1


@dataclass(slots=True)
class _Planned:
    verb: str
    what: str
    fault: Fault | Callable[[], Fault | None]
    times: int


class Faults:
    """The faults of one API server; `seen` has every request that it understood, in their order."""

    def __init__(self, server: ApiServer) -> None:
        self.seen: list[HttpRequest] = []
        self._asked: list[ApiRequest] = []
        self._planned: list[_Planned] = []
        server.fault = self._next
        server.requests.append(self._note)

    def plan(self, verb: str, what: str, fault: Fault | Callable[[], Fault | None], times: int = 1) -> None:
        """Let this go wrong with the next `times` requests for `what`: plural, plural/subresource, or a path.

        What was planned for these requests for always is forgotten, and what was planned for some comes first.
        """
        always = (verb, what, ALWAYS)
        self._planned = [each for each in self._planned if (each.verb, each.what, each.times) != always]
        self._planned.append(_Planned(verb, what, fault, times))

    def clear(self) -> None:
        """Forget what was planned."""
        self._planned.clear()

    def requests(self, verb: str, what: str) -> list[HttpRequest]:
        return [each.http for each in self._asked if each.verb == verb and what in _names(each)]

    def _note(self, request: ApiRequest) -> None:
        self._asked.append(request)
        self.seen.append(request.http)

    def _next(self, request: ApiRequest) -> Fault | None:
        for each in self._planned:
            if each.times and each.verb == request.verb and each.what in _names(request):
                if each.times != ALWAYS:
                    each.times -= 1
                return each.fault if isinstance(each.fault, Fault) else each.fault()
        return None


def _names(request: ApiRequest) -> tuple[str, str]:
    subresource = f"/{request.subresource}" if request.subresource else ""
    return f"{request.plural}{subresource}", request.http.path
