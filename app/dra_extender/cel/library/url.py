"""The Kubernetes library of URLs."""

from typing import Final

from dra_extender.cel.cost import EvaluationFrame, first_traversed
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import TEXT, NativeFunction
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import BOOL, STRING, URL, list_of, map_of
from dra_extender.cel.values.network import Url, UrlError, check_url, parse_url, url_work

_QUERY_WORK: Final = 60
_CHARACTER_WORK: Final = 5


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except UrlError as error:
        raise CelRuntimeError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        check_url(text)
    except UrlError:
        return False
    return True


def _parameters(frame: EvaluationFrame, url: Url) -> dict[str, list[str]]:
    frame.spend(_QUERY_WORK + _CHARACTER_WORK * len(url.query))
    return url.parameters()


def _text_work(text: str) -> int:
    return url_work(text) >> 1


READ: Final = NativeFunction("url", (TEXT,), _url, url_work)
ASK: Final = NativeFunction("isURL", (TEXT,), _is_url, _text_work)

FUNCTIONS: Final = (
    function("url", overload((STRING,), URL, READ), extra=first_traversed),
    function("isURL", overload((STRING,), BOOL, ASK)),
    function("getScheme", method((URL,), STRING, lambda url: url.scheme)),
    function("getHost", method((URL,), STRING, lambda url: url.host)),
    function("getHostname", method((URL,), STRING, lambda url: url.split_host()[0])),
    function("getPort", method((URL,), STRING, lambda url: url.split_host()[1])),
    function("getEscapedPath", method((URL,), STRING, lambda url: url.path)),
    function("getQuery", method((URL,), map_of(STRING, list_of(STRING)), _parameters, metered=True)),
)
