"""The rights that deploy/ grants the service, compared with what it asked API servers for in the end-to-end tests.

The tests keep what they saw in audit logs; `python -m tests.support.granted_rights` compares it after a whole run.  It ends with
status 1 if the service was denied something, or has a right that no test made it use.
"""

import json
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.controlplane.audit import Asked

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(".test-reports") / "asked"
ROLES: Final = (
    ROOT / "deploy" / "base" / "rbac.yaml",
    ROOT / "deploy" / "components" / "group-claims" / "rbac.yaml",
)
DENIED_ON_PURPOSE: Final = frozenset({"tests.e2e.test_e2e_rights"})
"""Modules that take rights away."""
NOT_REQUESTS: Final = frozenset({"resourceclaims/binding"})
"""The API server asks for these rights itself when the status is written; `tests/e2e/test_e2e_rights.py` takes it away."""


class Right(NamedTuple):
    """A verb on a resource (or a path); `name` is empty where the right is about all objects."""

    verb: str
    group: str
    resource: str
    name: str


def keep(root: Path, module: str, asked: Iterable[Asked]) -> None:
    """Write down what the service asked for in a module's tests."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{uuid.uuid4()}.json").write_text(json.dumps({"module": module, "asked": sorted(asked)}))


def granted() -> frozenset[Right]:
    """All rights of the service's account, whichever component of the manifests grants them."""
    roles = (role for path in ROLES for role in yaml.safe_load_all(path.read_text()))
    return frozenset(right for role in roles for rule in role.get("rules", ()) for right in _rights(rule))


def _rights(rule: dict[str, Any]) -> Iterator[Right]:
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield Right(verb, "", path, "")
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ("",)):
                    yield Right(verb, group, resource, name)


def unused(rights: Iterable[Right], asked: Iterable[Asked]) -> list[Right]:
    """Rights that no request needed."""
    seen = {(each.verb, each.group, each.resource) for each in asked}
    named = {(each.verb, each.group, each.resource, each.name) for each in asked}
    return sorted(
        right
        for right in rights
        if right.resource not in NOT_REQUESTS and (right not in named if right.name else right[:3] not in seen)
    )


def main() -> int:
    """Compare, and say what differs."""
    runs = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    every = [(run["module"], Asked(*each)) for run in runs for each in run["asked"]]
    if not every:
        sys.stderr.write("rights: no test has kept what the service asked for\n")
        return 1
    denied = sorted({(m, *each) for m, each in every if each.denied and m not in DENIED_ON_PURPOSE})
    spare = unused(granted(), [each for _, each in every if not each.denied])
    sys.stderr.writelines(f"rights: {module}: the service was denied {each}\n" for module, *each in denied)
    sys.stderr.writelines(f"rights: no test needs {right}\n" for right in spare)
    if not denied and not spare:
        print(f"rights: {len(granted())} granted, all used, nothing denied")
    return 1 if denied or spare else 0


def forget() -> None:
    """Delete what earlier runs kept."""
    shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--forget"]:
        forget()
    else:
        sys.exit(main())
