"""Who asks, and what they may: tokens, rules of RBAC, and the reviews by which others ask that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dra_extender.simulator.apiserver.objects import Json, StoredKind, part

from tests.simulation.api_requests import ApiRequest, StatusError, forbidden

ALLOCATION_FIELDS: Final = ("allocation", "reservedFor")
"""Fields of a claim's status that need the right to write `resourceclaims/binding` beside that to the status."""


@dataclass(frozen=True, slots=True)
class User:
    """A user and the rules (as in a ClusterRole) that bind; None may do everything."""

    name: str
    rules: Sequence[Json] | None = None

    def may(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Whether a rule allows this; `resource` is "plural" or "plural/subresource"."""
        return self.rules is None or any(
            _has(rule, "apiGroups", group)
            and _has(rule, "resources", resource)
            and _has(rule, "verbs", verb)
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in self.rules
        )

    def may_get(self, path: str) -> bool:
        """Whether a rule allows to read this path that is no resource."""
        return self.rules is None or any(
            _has(rule, "verbs", "get") and any(path == url for url in rule.get("nonResourceURLs") or ())
            for rule in self.rules
        )


def _has(rule: Json, field: str, value: str) -> bool:
    listed = rule.get(field) or ()
    return value in listed or "*" in listed


class Access:
    """The users by token."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = dict(users)

    def user(self, headers: Mapping[str, str]) -> User:
        """The user whose token a request carries, or in whose name it is sent.

        Raises:
            StatusError: 401.
        """
        found = self.users.get(headers.get("authorization", "").partition(" ")[2].strip())
        if found is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        named = headers.get("impersonate-user")
        return self._named(named) if named else found

    def check(self, request: ApiRequest, user: User) -> None:
        """Raise StatusError (403) unless the user has the right."""
        if not request.plural:
            if (
                not user.may_get(request.http.path)
                and request.http.path not in _OPEN
                and not _is_discovery(request.http.path)
            ):
                message = f'forbidden: User "{user.name}" cannot get path "{request.http.path}"'
                raise StatusError(403, "Forbidden", message)
            return
        resource = f"{request.plural}/{request.subresource}" if request.subresource else request.plural
        self._need(request, user, request.verb, resource)

    @staticmethod
    def claim_status_problems(request: ApiRequest, user: User, before: Json, after: Json) -> list[str]:
        """The fields of a claim's status whose change needs rights of its own that the user lacks."""
        was, now = part(before, "status"), part(after, "status")
        found = []
        for path, fields, resource, verb in (
            ("status.allocation", ALLOCATION_FIELDS, "binding", request.verb),
            ("status.devices", ("devices",), "driver", f"arbitrary-node:{request.verb}"),
        ):
            changed = any((was.get(field) or None) != (now.get(field) or None) for field in fields)
            if changed and not user.may(verb, request.group, f"{StoredKind.CLAIM}/{resource}", ""):
                found.append(
                    f"{path}: Forbidden: changing {' or '.join(f'status.{field}' for field in fields)} requires "
                    f'resource="resourceclaims/{resource}", verb="{verb}" permission: User "{user.name}" lacks it'
                )
        return found

    def review(self, kind: str, spec: Json) -> Json:
        """The status of a TokenReview or SubjectAccessReview."""
        if kind == "TokenReview":
            found = self.users.get(spec.get("token") or "")
            return {"authenticated": True, "user": {"username": found.name}} if found else {"user": {}}
        known = self._named(spec.get("user") or "")
        if "nonResourceAttributes" in spec:
            return {"allowed": known.may_get(spec["nonResourceAttributes"]["path"])}
        asked = spec["resourceAttributes"]
        resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
        return {"allowed": known.may(asked["verb"], asked.get("group", ""), resource, asked.get("name", ""))}

    def _named(self, name: str) -> User:
        return next((user for user in self.users.values() if user.name == name), User(name, ()))

    @staticmethod
    def _need(request: ApiRequest, user: User, verb: str, resource: str) -> None:
        if user.may(verb, request.group, resource, request.name):
            return
        where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
        raise forbidden(
            request,
            f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{request.group}" {where}',
        )


_OPEN: Final = ("/version", "/healthz", "/livez", "/readyz")


def _is_discovery(path: str) -> bool:
    return path.startswith(("/api", "/openapi"))
