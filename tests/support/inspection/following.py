"""Follows what `why` advises: makes the change of a next step on the objects of a cluster, as a person would."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy

from dra_extender.cel.analysis.attributes import rewrite_suffixes

from tests.controlplane.objects import DRIVER
from tests.support.inspection.made_cluster import NAMESPACE, Json, MadeCluster

_POD = "train"
_OPERATORS = {"==": "{name} == {value}", ">=": '{name}.compareTo({type}("{value}")) >= 0'}


class _ChangedCluster(MadeCluster):
    """A copy of a cluster in which the pod of this name is changed."""

    def __init__(self, made: MadeCluster, pod: str) -> None:
        super().__init__()
        self.objects = deepcopy(made.objects)
        self.now, self.missing = made.now, made.missing
        self.pod_name = pod
        self.request = self.claim = ""
        """The only request, or the only claim by the pod's name for it, that a change is about; empty for all."""


def follow(made: MadeCluster, text: str) -> MadeCluster:
    """Return the cluster after the change that the text of a step names; `train, train-1: ` begins one of members of the gang.

    Raises:
        AssertionError: nobody could tell from the text what to do.
    """
    changed, names = made, [_POD]
    # Between the names of members stand the changes of each: the names before the first ones, the pod itself.
    for place, part in enumerate(re.split(r"(?:^|, )([a-z0-9-]+(?:, [a-z0-9-]+)*): ", text)):
        if place % 2:
            names = part.split(", ")
        elif part:
            for name in names:
                changed = _followed(_ChangedCluster(changed, name), part)
    return changed


def _followed(changed: _ChangedCluster, text: str) -> _ChangedCluster:
    # Each pod that ends and each part of a change stands behind a comma; a reason behind one begins with a pronoun.
    text = re.sub(r"(do without|tolerate) (\S+) and (?=\S+[/:\]])", r"\1 \2, \1 ", text)
    parts = re.split(r", (?!which |whose )", text)
    ending = False
    for part in parts:
        ending = part.startswith("end ") or (ending and re.fullmatch(r"\S+/\S+", part) is not None)
        _do(changed, part if not ending or part.startswith("end ") else f"end {part}")
    return changed


def _do(made: _ChangedCluster, text: str) -> None:
    text, _, made.claim = text.partition(" of claim ")
    text, _, made.request = text.partition(" in request ")
    for pattern, action in _ACTIONS:
        found = re.fullmatch(pattern, text)
        if found is not None:
            action(made, *found.groups())
            return
    raise AssertionError(f"no person knows how to: {text}")


def _end(made: _ChangedCluster, namespace: str, name: str) -> None:
    assert namespace == NAMESPACE
    pods = made.objects["pods"]
    (uid,) = [pod["metadata"]["uid"] for pod in pods if pod["metadata"]["name"] == name]
    pods[:] = [pod for pod in pods if pod["metadata"]["uid"] != uid]
    for claim in made.objects["resourceclaims"]:
        status = claim.get("status", {})
        users = [user for user in status.get("reservedFor", ()) if user["uid"] != uid]
        if len(users) < len(status.get("reservedFor", ())):
            claim["status"] = {**status, "reservedFor": users} if users else {}


def _delete_claim(made: _ChangedCluster, name: str, *_: str) -> None:
    claims = made.objects["resourceclaims"]
    claims[:] = [claim for claim in claims if claim["metadata"]["name"] != name]


def _create_claims_again(made: _ChangedCluster) -> None:
    """The users of the claims have ended, and claims of the same names and specs take their places."""
    for claim in made.objects["resourceclaims"]:
        if claim["metadata"].pop("deletionTimestamp", None):
            claim["metadata"].pop("finalizers", None)
            claim["status"] = {}


def _do_without_alternative(made: _ChangedCluster, request: str, alternative: str) -> None:
    for claim in _claims(made):
        for each in claim["spec"]["devices"]["requests"]:
            if each["name"] == request:
                each["firstAvailable"] = [body for body in each["firstAvailable"] if body["name"] != alternative]


def _wait_for_release(made: _ChangedCluster, name: str, *_: str) -> None:
    """The pods that leave have left, and kube-controller-manager has released the claim."""
    pods = made.objects["pods"]
    pods[:] = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    for claim in made.objects["resourceclaims"]:
        if claim["metadata"]["name"] == name:
            claim["status"] = {}


def _remove_gates(made: _ChangedCluster, name: str) -> None:
    for pod in made.objects["pods"]:
        if pod["metadata"]["name"] == name:
            del pod["spec"]["schedulingGates"]


def _tolerate(made: _ChangedCluster, key: str, value: str | None, effect: str) -> None:
    toleration = {
        "key": key,
        "effect": effect,
        **({"operator": "Equal", "value": value} if value else {"operator": "Exists"}),
    }
    for body in _bodies(made):
        body.setdefault("tolerations", []).append(toleration)
    _pod(made)["spec"].setdefault("tolerations", []).append(toleration)


def _uncordon(made: _ChangedCluster, name: str) -> None:
    for node in made.objects["nodes"]:
        if node["metadata"]["name"] == name:
            node.get("spec", {}).pop("unschedulable", None)


def _use_class(made: _ChangedCluster, name: str) -> None:
    known = {each["metadata"]["name"] for each in made.objects["deviceclasses"]}
    for body in _bodies(made):
        if body["deviceClassName"] not in known:
            body["deviceClassName"] = name


def _use_other_class(made: _ChangedCluster, name: str) -> None:
    for body in _bodies(made):
        body["deviceClassName"] = name


def _use_scheduler(made: _ChangedCluster, name: str, _: str) -> None:
    _pod(made)["spec"]["schedulerName"] = name


def _name(made: _ChangedCluster, field: str, name: str, missing: str) -> None:
    spec = _pod(made)["spec"]
    for entry in (spec.get("schedulingGroup", {}), *spec.get("resourceClaims", ())):
        if entry.get(field) == missing:
            entry[field] = name


def _name_claim(made: _ChangedCluster, name: str, missing: str) -> None:
    _name(made, "resourceClaimName", name, missing)


def _name_template(made: _ChangedCluster, name: str, missing: str) -> None:
    _name(made, "resourceClaimTemplateName", name, missing)


def _name_group(made: _ChangedCluster, name: str, missing: str) -> None:
    _name(made, "podGroupName", name, missing)


def _ask_for_other_ports(made: _ChangedCluster) -> None:
    for container in _pod(made)["spec"]["containers"]:
        for port in container.get("ports", ()):
            port["hostPort"] += 20_000


def _drop_constraint(made: _ChangedCluster, field: str, attribute: str) -> None:
    for claim in _claims(made):
        constraints = claim["spec"]["devices"].get("constraints", [])
        constraints[:] = [constraint for constraint in constraints if constraint.get(field) != attribute]


def _spell_constraint(made: _ChangedCluster, field: str, right: str, wrong: str) -> None:
    for claim in _claims(made):
        for constraint in claim["spec"]["devices"].get("constraints", ()):
            if constraint.get(field) == wrong:
                constraint[field] = right


def _ask_for_devices(made: _ChangedCluster, count: str) -> None:
    largest = max(_bodies(made), key=lambda body: body.get("count", 1))
    largest.update(allocationMode="ExactCount", count=int(count))


def _do_without_claim(made: _ChangedCluster, entry: str) -> None:
    entries = _pod(made)["spec"]["resourceClaims"]
    entries[:] = [each for each in entries if each["name"] != entry]
    for container in _pod(made)["spec"]["containers"]:
        claims = container.get("resources", {}).get("claims", [])
        claims[:] = [each for each in claims if each["name"] != entry]


def _do_without_resource(made: _ChangedCluster, resource: str) -> None:
    for container in _pod(made)["spec"]["containers"]:
        for amounts in container["resources"].values():
            if isinstance(amounts, dict):
                amounts.pop(resource, None)


def _do_without_selectors(made: _ChangedCluster, numbers: str) -> None:
    dropped = {int(number) for number in numbers.split(" and ")}
    for body in _bodies(made):
        kept = [selector for number, selector in enumerate(body["selectors"], 1) if number not in dropped]
        body["selectors"] = kept


def _do_without_request(made: _ChangedCluster, name: str) -> None:
    for claim in _claims(made):
        devices = claim["spec"]["devices"]
        devices["requests"] = [each for each in devices["requests"] if each["name"] != name.partition("/")[0]]


def _ask_for(made: _ChangedCluster, conditions: str) -> None:
    for condition in conditions.split(" and "):
        _reselect(list(_bodies(made)), *condition.split(" ", 2))


def _have_class_ask_for(made: _ChangedCluster, device_class: str, name: str, operator: str, value: str) -> None:
    specs = [each["spec"] for each in made.objects["deviceclasses"] if each["metadata"]["name"] == device_class]
    _reselect(specs, name, operator, value)


def _reselect(selecting: list[Json], name: str, operator: str, value: str) -> None:
    """Replace the selectors that ask about this attribute or capacity."""
    asked = f".{name}"
    for body in selecting:
        for selector in body.get("selectors", ()):
            if re.search(rf"{re.escape(asked)}\b", selector["cel"]["expression"]):
                value_type = "semver" if "semver(" in selector["cel"]["expression"] else "quantity"
                kind = "attributes" if operator == "==" or value_type == "semver" else "capacity"
                place = f'device.{kind}["{DRIVER}"].{name}'
                selector["cel"]["expression"] = _OPERATORS[operator].format(name=place, value=value, type=value_type)


def _ask_for_resource(made: _ChangedCluster, amount: str, resource: str) -> None:
    for container in _pod(made)["spec"]["containers"]:
        amounts = container.setdefault("resources", {})
        amounts.setdefault("requests", {})[resource] = amount
        if resource in amounts.get("limits", {}):
            amounts["limits"][resource] = amount


def _ask_for_capacities(made: _ChangedCluster, amounts: str, _: str | None) -> None:
    for part in amounts.split(" and "):
        amount, name = part.split(" of capacity ")
        for body in _bodies(made):
            body.setdefault("capacity", {}).setdefault("requests", {})[name] = amount


def _ask_for_any_node(made: _ChangedCluster) -> None:
    for field in ("nodeSelector", "affinity"):
        _pod(made)["spec"].pop(field, None)


def _ask_for_expression(made: _ChangedCluster, expression: str) -> None:
    for body in _bodies(made):
        body["selectors"] = [{"cel": {"expression": expression}}]


def _spell(made: _ChangedCluster, right: str, wrong: str) -> None:
    """Write another name in the selectors and amounts of the pod's requests, and in the resources of its containers."""
    for body in _bodies(made):
        _respell(body, right, wrong)
        amounts = body.get("capacity", {}).get("requests", {})
        if wrong in amounts:
            amounts[right] = amounts.pop(wrong)
    for container in _pod(made)["spec"]["containers"]:
        for amounts in container["resources"].values():
            if isinstance(amounts, dict) and wrong in amounts:
                amounts[right] = amounts.pop(wrong)


def _ask_first(made: _ChangedCluster, device_class: str | None, conditions: str) -> None:
    classes = [each["spec"] for each in made.objects["deviceclasses"] if each["metadata"]["name"] == device_class]
    for body in classes if device_class else _bodies(made):
        for condition in conditions.split(" first and "):
            body.setdefault("selectors", []).insert(0, {"cel": {"expression": condition}})


def _spell_class(made: _ChangedCluster, device_class: str, right: str, wrong: str) -> None:
    for each in made.objects["deviceclasses"]:
        if each["metadata"]["name"] == device_class:
            _respell(each["spec"], right, wrong)


def _respell(body: Json, right: str, wrong: str) -> None:
    """Write another name, or where attributes are read also their other domain."""
    domains = [found[1] for place in (wrong, right) if (found := re.fullmatch(r'device\.\w+\[("[^"]+")\]\.\w+', place))]
    for selector in body.get("selectors", ()):
        expression = selector["cel"]["expression"].replace(wrong, right)
        selector["cel"]["expression"] = expression.replace(*domains) if len(domains) > 1 else expression


def _drop_conditions(made: _ChangedCluster, name: str) -> None:
    for selector in (selector for body in _bodies(made) for selector in body.get("selectors", ())):
        conditions = selector["cel"]["expression"].split(" && ")
        kept = [condition for condition in conditions if name not in condition]
        selector["cel"]["expression"] = " && ".join(kept) or "true"


def _drop_suffixes(made: _ChangedCluster) -> None:
    for selector in (selector for body in _bodies(made) for selector in body.get("selectors", ())):
        selector["cel"]["expression"] = rewrite_suffixes(selector["cel"]["expression"])


_ACTIONS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r'(?:have DeviceClass (\S+) )?ask for ("\w+" in device\..+) first', _ask_first),
    (r"end ([^/ ]+)/([^/ ]+)", _end),
    (rf"delete claim {NAMESPACE}/(\S+), which no pod uses", _delete_claim),
    (rf"wait until claim {NAMESPACE}/(\S+) is gone, which is being deleted", _delete_claim),
    (rf"wait until claim {NAMESPACE}/(\S+) is released, whose pods (have ended|are being deleted)", _wait_for_release),
    (r"wait until the scheduling gates of (\S+) are removed: .+", _remove_gates),
    (r"do without alternative (\S+)/(\S+)", _do_without_alternative),
    (
        r"create the claim again once it is gone|wait until the claim is gone and made again from .+",
        _create_claims_again,
    ),
    (r"tolerate ([^=:]+)(?:=([^:]+))?:(\w+)", _tolerate),
    (r"uncordon (\S+)", _uncordon),
    (r"use the DeviceClass (\S+)", _use_class),
    (r"use the DeviceClass (\S+) \(\d+ free devices?\)", _use_other_class),
    (r"use schedulerName (\S+) instead of (\S+)", _use_scheduler),
    (r"name ResourceClaim (\S+) instead of (\S+)", _name_claim),
    (r"name ResourceClaimTemplate (\S+) instead of (\S+)", _name_template),
    (r"name PodGroup (\S+) instead of (\S+)", _name_group),
    (r"ask for other ports of the host", _ask_for_other_ports),
    (r"do without (matchAttribute|distinctAttribute) (\S+)", _drop_constraint),
    (r"ask for (\d+) devices?", _ask_for_devices),
    (r"do without device\.\S+\.(\w+)(?: \(no device has (?:it|them)\))?", _drop_conditions),
    (r"ask for attributes without their type as a suffix", _drop_suffixes),
    (r"do without claim (\S+)", _do_without_claim),
    (r"do without request (\S+)", _do_without_request),
    (r"do without selectors? (\d+(?: and \d+)*)", _do_without_selectors),
    (r"do without (\S+/\S+)", _do_without_resource),
    (r"ask for (\S+) instead of (\S+)", _spell),
    (r"ask for (matchAttribute|distinctAttribute) (\S+) instead of (\S+)", _spell_constraint),
    (r"have DeviceClass (\S+) ask for (\S+) instead of (\S+)", _spell_class),
    (r"ask for (\w+ (?:==|>=) .+)", _ask_for),
    (r"have DeviceClass (\S+) ask for (\w+) (==|>=) (.+)", _have_class_ask_for),
    (r"ask for (\S+) of (cpu|memory|\S+/\S+)", _ask_for_resource),
    (r"ask for (\S+ of capacity \S+( and \S+ of capacity \S+)*)", _ask_for_capacities),
    (r"ask for no node selector and no node affinity", _ask_for_any_node),
    (r"ask for (device\..+)", _ask_for_expression),
)


def _pod(made: _ChangedCluster) -> Json:
    return next(pod for pod in made.objects["pods"] if pod["metadata"]["name"] == made.pod_name)


def _claims(made: _ChangedCluster) -> Iterator[Json]:
    """Yield the claims that the pod names, and what the templates that it names make claims of."""
    entries = [entry for entry in _pod(made)["spec"].get("resourceClaims", ()) if made.claim in ("", entry["name"])]
    names = {entry.get("resourceClaimName") for entry in entries}
    yield from (claim for claim in made.objects["resourceclaims"] if claim["metadata"]["name"] in names)
    names = {entry.get("resourceClaimTemplateName") for entry in entries}
    yield from (each["spec"] for each in made.objects["resourceclaimtemplates"] if each["metadata"]["name"] in names)


def _bodies(made: _ChangedCluster) -> Iterator[Json]:
    """Yield every request of the pod's claims, and every alternative of it, or the only one that a change is about."""
    main, _, alternative = made.request.partition("/")
    for claim in _claims(made):
        for request in claim["spec"]["devices"]["requests"]:
            bodies = (request["exactly"],) if "exactly" in request else request["firstAvailable"]
            yield from (
                body
                for body in bodies
                if main in ("", request["name"]) and alternative in ("", body.get("name", alternative))
            )
