from typing import Final

import msgspec
import structlog

from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.resources import DEVICE_CLASSES, micro_time
from dra_extender.kube.client.retry import perform
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.scheduling.ports.cluster import Clock, NotFoundError, RequestRejectedError

WAKE_UP_CLASS: Final = "wake-up.dra-extender.io"
WOKEN_AT_ANNOTATION: Final = "dra-extender.io/woken-at"

_LOG = structlog.get_logger(__name__)


class KubeWaker:
    """Requeues rejected pods (`scheduling.ports.SchedulerWaker`) by changing an annotation of a DeviceClass made for this.

    kube-scheduler requeues every pod that an extender rejected when any DeviceClass changes; slices alone requeue none.
    While the class or the right to patch it is missing, `last_error` says so and `wake` returns: pods then wait for
    kube-scheduler's own retry, at most five minutes.
    """

    def __init__(self, transport: ApiTransport, settings: KubeSettings, clock: Clock) -> None:
        self.last_error: str | None = None
        self._transport = transport
        self._clock = clock
        self._seconds = settings.timeouts.write
        self._query = {"fieldManager": settings.identity}

    async def wake(self) -> None:
        """One write.  Raises ServerUnavailableError or ConflictError, after which it may be tried again."""
        intent = RequestIntent("patch", DEVICE_CLASSES.plural, WAKE_UP_CLASS)
        change = {"metadata": {"annotations": {WOKEN_AT_ANNOTATION: micro_time(self._clock.now())}}}
        call = ApiCall(
            intent,
            "PATCH",
            DEVICE_CLASSES.path(name=WAKE_UP_CLASS),
            self._seconds,
            query=self._query,
            body=msgspec.json.encode(change),
            content_type=MERGE_PATCH,
        )
        try:
            await perform(self._transport, call)
        except NotFoundError:
            self._report(
                f"rejected pods cannot be woken: DeviceClass {WAKE_UP_CLASS} does not exist (apply it from deploy/); "
                "they wait for kube-scheduler's own retry"
            )
        except RequestRejectedError as refused:
            self._report(f"rejected pods cannot be woken: {refused}; they wait for kube-scheduler's own retry")
        else:
            self.last_error = None

    def _report(self, problem: str) -> None:
        if problem != self.last_error:
            _LOG.warning("rejected pods were not requeued", problem=problem)
        self.last_error = problem
