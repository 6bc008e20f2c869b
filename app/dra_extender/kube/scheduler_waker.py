"""Requeues of rejected pods, by an annotation of a DeviceClass."""

from typing import Final

import msgspec
import structlog

from dra_extender.kube.client.objects import DEVICE_CLASSES, ApiObjects, micro_time
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiTransport
from dra_extender.scheduling.ports.cluster import Clock, NotFoundError, RequestRejectedError

WAKE_UP_CLASS: Final = "wake-up.dra-extender.io"
WOKEN_AT_ANNOTATION: Final = "dra-extender.io/woken-at"

_LOG = structlog.get_logger(__name__)


class KubeSchedulerWaker:
    """Requeues rejected pods (`scheduling.ports.cluster.SchedulerWaker`) by changing an annotation of a DeviceClass made for this.

    kube-scheduler requeues every pod that an extender rejected when any DeviceClass changes; slices alone requeue none.
    While the class or the right to patch it is missing, `last_error` says so and `wake` returns: pods then wait for
    kube-scheduler's own retry, at most five minutes.
    """

    def __init__(self, transport: ApiTransport, settings: KubeSettings, clock: Clock) -> None:
        self.last_error: str | None = None
        self._api = ApiObjects(transport, settings)
        self._clock = clock

    async def wake(self) -> None:
        """Change the class once.  Raises ServerUnavailableError or ConflictError, after which it may be tried again."""
        change = {"metadata": {"annotations": {WOKEN_AT_ANNOTATION: micro_time(self._clock.now())}}}
        body = msgspec.json.encode(change)
        problem = None
        try:
            await self._api.perform(
                self._api.call("patch", DEVICE_CLASSES, None, WAKE_UP_CLASS, body, content_type=MERGE_PATCH)
            )
        except NotFoundError:
            problem = f"DeviceClass {WAKE_UP_CLASS} does not exist (apply it from deploy/)"
        except RequestRejectedError as refused:
            problem = str(refused)
        sentence = problem and f"rejected pods cannot be woken: {problem}; they wait for kube-scheduler's own retry"
        if sentence and sentence != self.last_error:
            _LOG.warning("rejected pods were not requeued", problem=sentence)
        self.last_error = sentence
