from collections.abc import AsyncGenerator

import msgspec
import structlog

from app.kube.errors import CallFailed, Intent
from app.kube.kinds import Kind
from app.kube.transport import Call, Transport
from app.model.json_cuts import decode_any

_LOG = structlog.get_logger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page of a list: raw objects, in the server's order, and the version of the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(Page)


async def list_pages(
    transport: Transport, kind: Kind, path: str, limit: int, seconds: float
) -> AsyncGenerator[Page, None]:
    """The pages of a consistent list of everything at `path`.

    A list that takes longer than the server remembers its version (410 on a later page) begins again, unpaged.

    Raises:
        CallFailed: a page cannot be had.
    """
    token = ""
    while True:
        query = {"limit": str(limit), "continue": token} if token else {"limit": str(limit)}
        try:
            page = await _page(transport, kind, path, query, seconds)
        except CallFailed as failed:
            if not (token and failed.gone):
                raise
            _LOG.info("a list took too long for the server to remember; listing in one page", kind=kind.plural)
            yield await _page(transport, kind, path, {}, seconds)
            return
        yield page
        token = page.metadata.next_page or ""
        if not token:
            return


async def _page(transport: Transport, kind: Kind, path: str, query: dict[str, str], seconds: float) -> Page:
    intent = Intent("list", kind.plural)
    body = await transport.send(Call(intent, "GET", path, seconds, query=query))
    try:
        return decode_any(_PAGE, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise CallFailed(intent, None, f"the answer is not a list: {problem}") from problem
