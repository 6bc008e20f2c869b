import asyncio
from collections.abc import AsyncGenerator
from typing import Final, TypeVar

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError, RequestIntent, ResponseTooLongError
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.model.api_json import decode_any

T = TypeVar("T")

_AT_ONCE: Final = 2**18


async def in_turns(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Decode as `decode_any` does; long data in a thread, so that the event loop goes on."""
    if len(data) <= _AT_ONCE:
        return decode_any(decoder, data)
    return await asyncio.to_thread(decode_any, decoder, data)


_LOG = structlog.get_logger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page of a list: raw objects, in the server's order, and the version of the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(Page)


FIRST_PAGE: Final = 16
PAGE_BYTES: Final = 4 * 2**20
"""The target size of a page.  Servers limit pages by objects only, so the number follows from the sizes of earlier objects."""
MOST_BYTES: Final = 8 * PAGE_BYTES
"""The limit for a page of several objects; a longer page is requested again with fewer objects."""
_GROWTH: Final = 4
_SHRINKING: Final = 16


async def list_pages(
    transport: ApiTransport, kind: ResourceKind, path: str, limit: int, seconds: float
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a consistent list of everything at `path`, of `limit` objects at most.

    When the continue token expires (410 on a later page), the list begins again, unpaged.

    Raises:
        ApiCallError: the server did not answer with a page.
    """
    token, size = "", min(limit, FIRST_PAGE)
    selected = {"fieldSelector": kind.selector} if kind.selector else {}
    while True:
        query = {**selected, "limit": str(size), **({"continue": token} if token else {})}
        try:
            page, read = await _page(transport, kind, path, query, seconds, MOST_BYTES if size > 1 else 0)
        except ResponseTooLongError:
            # Objects before these were small, which says nothing of these.
            size = max(1, size // _SHRINKING)
            continue
        except ApiCallError as failed:
            if not (token and failed.gone):
                raise
            _LOG.info("continue token of a list expired, listing in one page", kind=kind.plural)
            page, _ = await _page(transport, kind, path, selected, seconds, 0)
            yield page
            return
        yield page
        token = page.metadata.next_page or ""
        if not token:
            return
        size = next_size(size, len(page.items or ()), read, limit)


def next_size(size: int, objects: int, read: int, limit: int) -> int:
    """Return the objects to ask for after a page of at most `size` objects that had so many objects in so many bytes."""
    fitting = PAGE_BYTES * objects // max(read, 1)
    return max(1, min(limit, _GROWTH * size, fitting))


async def _page(
    transport: ApiTransport, kind: ResourceKind, path: str, query: dict[str, str], seconds: float, most: int
) -> tuple[Page, int]:
    """Return a page, and the bytes that it took; raises ResponseTooLongError if these are more than `most` (0 for any number)."""
    intent = RequestIntent("list", kind.plural)
    body = await transport.send(ApiCall(intent, "GET", path, seconds, query=query, most=most))
    try:
        # The authors of the objects decide what decoding costs: a long page must not block the event loop.
        return await in_turns(_PAGE, body), len(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ApiCallError(intent, None, f"the answer is not a list: {problem}") from problem
