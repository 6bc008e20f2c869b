"""What a request to an API server asks for, and the Status with which one is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from dra_extender.manifests.check import KINDS, wrong_fields
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.simulation.http_server import HttpRequest

_VERBS: Final = {"PUT": "update", "PATCH": "patch"}


class StatusError(Exception):
    """A refusal: HTTP code, reason, sentence, the causes (field, reason and message of each) and other details."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: Sequence[Json] = (),
        retry_after: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        details = {"causes": list(causes)} if causes else {}
        if retry_after is not None:
            details["retryAfterSeconds"] = retry_after  # type: ignore[assignment]
        self.code = code
        self.retry_after = retry_after
        self.body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": more.pop("metadata", {}),
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            "details": {**more, **details},
            "code": code,
        }


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as the API server understands it.

    `verb` is that of RBAC (get, list, watch, create, update, patch, delete).  `kind` is None for a path that is no resource,
    and `group_version` and `plural` name the resource otherwise.
    """

    http: HttpRequest
    user: str
    verb: str
    kind: StoredKind | None = None
    group_version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """The object that is asked for."""
        assert self.kind is not None
        return Key(self.kind, self.namespace, self.name)

    @property
    def agent(self) -> str:
        """The client's User-Agent."""
        return self.http.headers.get("user-agent", "")

    @property
    def manager(self) -> str:
        """The field manager of a write."""
        return self.http.query.get("fieldManager") or self.agent.partition("/")[0]

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.group_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Plural and group, as messages name a resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def writes(self) -> bool:
        """Whether something may be stored."""
        return self.verb not in ("get", "list", "watch")


def parse(http: HttpRequest, user: str, served: Mapping[tuple[str, str], StoredKind]) -> ApiRequest:
    """Understand a request; `served` has the kinds by group/version and plural.

    Raises:
        StatusError: 404 for a resource that is not served, 405 for a method that it does not have.
    """
    parts = [unquote(part) for part in http.raw_path.strip("/").split("/")]
    if parts[0] not in ("api", "apis") or len(parts) < (3 if parts[0] == "api" else 4):
        return ApiRequest(http, user, "get" if http.method == "GET" else http.method.lower())
    begin = 2 if parts[0] == "api" else 3
    group_version, rest = "/".join(parts[1:begin]), parts[begin:]
    namespace = ""
    # A namespace is an object itself, and has a status.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    kind = served.get((group_version, plural))
    if kind is None and (group_version, plural) not in REVIEWS:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    return ApiRequest(
        http, user, _verb(http, name, subresource), kind, group_version, plural, namespace, name, subresource
    )


REVIEWS: Final = {
    ("authentication.k8s.io/v1", "tokenreviews"): "TokenReview",
    ("authorization.k8s.io/v1", "subjectaccessreviews"): "SubjectAccessReview",
}


def _verb(http: HttpRequest, name: str, subresource: str) -> str:
    match http.method:
        case "GET":
            return "get" if name else "watch" if http.query.get("watch") in ("true", "1") else "list"
        case "POST" if not name or subresource:
            return "create"
        case "DELETE":
            return "delete" if name else "deletecollection"
        case "PUT" | "PATCH" if name:
            return _VERBS[http.method]
    raise StatusError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )


def decode_object(request: ApiRequest, body: bytes) -> Json:
    """The object in a body, which must be of the kind and at the place of the URL.

    Raises:
        StatusError: 400.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {request.plural}): {problem}"
        ) from problem
    if not isinstance(found, dict) or not isinstance(found.setdefault("metadata", {}), dict):
        raise bad_request("the object provided is unrecognized")
    kind = request.kind
    metadata = found["metadata"]
    if kind is not None and request.subresource != "binding":
        expected = (request.group_version, kind.singular)
        if (found.get("apiVersion", expected[0]), found.get("kind", expected[1])) != expected:
            raise bad_request(
                f"the API version in the data ({found.get('apiVersion')}) does not match the expected API version "
                f"({request.group_version}), or the kind ({found.get('kind')}) is another one"
            )
    if metadata.get("namespace") not in (None, "", request.namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if request.name and metadata.get("name", request.name) != request.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({request.name})"
        )
    if request.namespace:
        metadata["namespace"] = request.namespace
    if request.name:
        metadata["name"] = request.name
    return found


def drop_unknown_fields(kind: str, thing: Json) -> None:
    """Drop in silence what the API does not have; raise StatusError (400) for a value of another shape."""
    for wrong in list(wrong_fields(kind, thing)) if kind in KINDS else ():
        if not wrong.sentence.startswith("unknown field"):
            raise bad_request(
                f"{kind} in version v1 cannot be handled: {'.'.join(map(str, wrong.path))}: {wrong.sentence}"
            )
        parent: Any = thing
        for step in wrong.path[:-1]:
            parent = parent[step]
        del parent[wrong.path[-1]]


def bad_request(message: str) -> StatusError:
    """The refusal of a request that makes no sense."""
    return StatusError(400, "BadRequest", message)


def not_found(request: ApiRequest) -> StatusError:
    """The refusal of a request for an object that does not exist."""
    return StatusError(
        404,
        "NotFound",
        f'{request.resource} "{request.name}" not found',
        name=request.name,
        group=request.group,
        kind=request.plural,
    )


def forbidden(request: ApiRequest, why: str) -> StatusError:
    """The refusal of a request that the user has no right to, or that admission denies."""
    return StatusError(
        403,
        "Forbidden",
        f'{request.resource} "{request.name}" is forbidden: {why}',
        name=request.name,
        group=request.group,
        kind=request.plural,
    )


def invalid(request: ApiRequest, problems: Sequence[str]) -> StatusError:
    """The refusal of an object; each problem begins with the path of a field, and goes on with the kind of the error."""
    causes = []
    for problem in problems:
        field, _, message = problem.partition(": ")
        causes.append({"reason": _reason(message), "message": message, "field": field})
    listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    singular = request.key.kind.singular
    kind = f"{singular}.{request.group}" if request.group else singular
    message = f'{kind} "{request.name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, causes, name=request.name, group=request.group, kind=singular)


def _reason(message: str) -> str:
    return _REASONS.get(message.partition(":")[0], "FieldValueInvalid")


_REASONS: Final = {
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}
