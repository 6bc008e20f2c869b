"""The OpenAPI document as a page to read: one file, without scripts, so that it needs nothing from anywhere else."""

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace}pre{overflow:auto;padding:.5rem;border:1px solid #8888}"
    "h2{margin-top:2.5rem}table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}"
    ":root{color-scheme:light dark}"
)


def add_docs(app: FastAPI, document: Callable[[], Mapping[str, Any]]) -> None:
    """Serve GET /docs; `document` is the OpenAPI document."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        """The operations and their messages."""
        return HTMLResponse(page_of(document()), headers={"Content-Security-Policy": _POLICY})


def page_of(document: Mapping[str, Any]) -> str:
    """The page for an OpenAPI document."""
    info = document["info"]
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    body = "\n".join(
        (
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            f"<p>{escape(info.get('summary', ''))}. The same for programs: <a href='openapi.json'>openapi.json</a></p>",
            *(line for each in operations for line in _operation(*each)),
            "<h2>Messages</h2>",
            *(line for name, schema in document["components"]["schemas"].items() for line in _schema(name, schema)),
        )
    )
    head = f"<meta charset='utf-8'><title>{escape(info['title'])}</title><style>{_STYLE}</style>"
    return f"<!doctype html>\n<html lang='en'><head>{head}</head><body>\n{body}\n</body></html>\n"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
    yield from (f"<p>{escape(part)}</p>" for part in operation.get("description", "").split("\n\n") if part)
    request = _message(operation.get("requestBody", {}))
    if request:
        yield f"<p>Request: {request}</p>"
    yield "<table><tr><th>status</th><th>response</th><th>meaning</th></tr>"
    for status, answer in operation.get("responses", {}).items():
        meaning = escape(answer.get("description", ""))
        yield f"<tr><td>{escape(status)}</td><td>{_message(answer) or 'text'}</td><td>{meaning}</td></tr>"
    yield "</table>"


def _message(holder: Mapping[str, Any]) -> str:
    """Links to the schemas of a request or a response; empty where it is no JSON."""
    schema = holder.get("content", {}).get("application/json", {}).get("schema", {})
    inner = schema.get("items", schema).get("$ref", "")
    name = escape(inner.rpartition("/")[2])
    if not name:
        return ""
    link = f"<a href='#{name}'>{name}</a>"
    return f"list of {link}" if "items" in schema else link


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{escape(name)}'>{escape(name)}</h3>"
    if schema.get("description"):
        yield f"<p>{escape(schema['description'])}</p>"
    shown = {key: value for key, value in schema.items() if key not in ("title", "description")}
    yield f"<pre>{escape(json.dumps(shown, indent=2))}</pre>"
