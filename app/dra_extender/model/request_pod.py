from typing import Annotated, Final

import msgspec

from dra_extender.model.base import ModelError, Value, decode
from dra_extender.model.pod import Pod, read_pod


class _Identity(Value, frozen=True):
    name: Annotated[str, msgspec.Meta(max_length=253)] = ""
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""
    uid: Annotated[str, msgspec.Meta(max_length=128)] = ""
    resource_version: str = ""


class _Head(Value, frozen=True):
    metadata: _Identity = _Identity()


_DIGITS: Final = 20
_DECODER: Final = msgspec.json.Decoder(_Head)


class RequestPod:
    """A pod as a caller sent it: who it is, and everything else unread until it is asked for.

    The caller need not be kube-scheduler, so that what it says of the pod beyond the identity decides nothing.
    """

    __slots__ = ("_raw", "name", "namespace", "resource_version", "uid")

    def __init__(self, raw: bytes) -> None:
        """Read the identity in `raw` (API JSON).

        Raises:
            ModelError: not an object, or a field of the identity is no string; the message names the field.
        """
        head = decode("Pod", _DECODER, raw).metadata
        self._raw = raw
        self.namespace, self.name = head.namespace, head.name
        self.uid, version = head.uid, head.resource_version
        self.resource_version = version if len(version) <= _DIGITS and version.isascii() else ""

    @property
    def size(self) -> int:
        """Bytes that the caller sent."""
        return len(self._raw)

    def read(self) -> Pod:
        """The whole pod, as sent.

        Raises:
            ModelError: a field has the wrong type.
        """
        try:
            return read_pod(self._raw)
        except RecursionError as problem:
            raise ModelError("Pod: expected JSON of sensible depth") from problem
