"""Claims, and alternatives of their requests, that ask for more devices than a claim may have: an API server stores them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dra_extender.allocator.demand.build import too_many_devices
from dra_extender.allocator.demand.demand import ALL
from dra_extender.cel.lint.findings import LintCode, warning
from dra_extender.lint.read import CLAIM_SPECS, LintFile, PlacedFinding, is_checked, list_at, object_label, value_at
from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import path_text

_REQUESTS: Final = "requests"
_FIRST_AVAILABLE: Final = "firstAvailable"


def device_count_findings(file: LintFile) -> Iterator[PlacedFinding]:
    """Yield a warning for each claim of the file that is never allocated, and for each alternative that is never taken."""
    for document in file.objects:
        item = document.value
        base = CLAIM_SPECS.get(str(item.get("kind"))) if is_checked(item) else None
        if base is None:
            continue
        devices = (*base, "devices")
        for path, sentence in excessive_requests(value_at(item, devices)):
            field = (*devices, *path)
            position, finding = document.position_of(field), warning(LintCode.NEVER_FITS, 0, sentence)
            yield PlacedFinding(file.name, position, object_label(item), finding, path_text(field))


def excessive_requests(devices: Any) -> Iterator[tuple[FieldPath, str]]:
    """Yield (path, sentence) of what no node can serve in `spec.devices` of a claim, whose fields need not have been checked.

    The path is that of all requests if the claim is never allocated, and otherwise that of an alternative that is never taken.
    """
    requests = [_device_counts(request) for request in list_at(devices, (_REQUESTS,))]
    too_many = too_many_devices(requests)
    if too_many:
        yield (_REQUESTS,), f"no node can serve the claim: it {too_many}"
        return
    for index, counts in enumerate(requests):
        for number, count in enumerate(counts if len(counts) > 1 else ()):
            too_many = too_many_devices([*requests[:index], [count], *requests[index + 1 :]])
            if too_many:
                sentence = f"this alternative is never taken: with it, the claim {too_many}"
                yield (_REQUESTS, index, _FIRST_AVAILABLE, number), sentence


def _device_counts(request: Any) -> Sequence[int]:
    """Return the number of devices of each alternative; v1beta1 has the fields of `exactly` in the request."""
    bodies = list_at(request, (_FIRST_AVAILABLE,)) or [value_at(request, ("exactly",)) or request]
    return [_device_count(body) for body in bodies]


def _device_count(body: Any) -> int:
    count = value_at(body, ("count",))
    if value_at(body, ("allocationMode",)) == "All":
        return ALL
    return (count or 1) if isinstance(count, int) or count is None else 0
