"""What each kind of manifest looks like in resource.k8s.io/v1 and v1 of Kubernetes 1.37 (limits of the API server included)."""

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.program import compile_expression
from dra_extender.cel.support.errors import CelCompileError
from dra_extender.manifests.schema import Fields, Leaf, ListOf, MapOf, Rule, described
from dra_extender.model.quantity import QuantityError, parse_quantity
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.apiserver.status_validation import is_label, is_pool_name, is_subdomain


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"expected a text, found {described(value)}"


def _named(verdict: Callable[[Any], bool], wanted: str) -> Leaf:
    return Leaf(lambda value: None if verdict(value) else f"expected {wanted}, found {described(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _quantity(value: Any) -> str | None:
    if _is_number(value) or isinstance(value, float):
        value = str(value)
    if not isinstance(value, str):
        return f"expected a quantity such as 40Gi or 500m, found {described(value)}"
    try:
        parse_quantity(value)
    except QuantityError as problem:
        return str(problem)
    return None


def _expression(value: Any) -> str | None:
    """Why this is no CEL expression over a device that yields a boolean; None if it is one."""
    if not isinstance(value, str) or not value:
        return "expected a CEL expression as text"
    try:
        compile_expression(value)
    except CelCompileError as problem:
        return f"the expression does not compile: {problem.reason} (line {problem.line}, column {problem.column})"
    return None


def _choice(*choices: str) -> Leaf:
    return _named(lambda value: value in choices, f"one of {', '.join(choices)}")


TEXT: Final = Leaf(_text)
BOOL: Final = _named(lambda value: isinstance(value, bool), "true or false")
NUMBER: Final = _named(_is_number, "a whole number")
COUNT: Final = _named(lambda value: _is_number(value) and value > 0, "a whole number above 0")
QUANTITY: Final = Leaf(_quantity)
EXPRESSION: Final = Leaf(_expression, expression=True)
LABEL: Final = _named(is_label, "a DNS label (lower case letters, digits and '-', at most 63)")
SUBDOMAIN: Final = _named(is_subdomain, "a DNS subdomain (lower case letters, digits, '-' and '.')")
DRIVER: Final = _named(lambda value: is_subdomain(value, 63), "a DNS subdomain of at most 63 characters")
POOL: Final = _named(is_pool_name, "DNS subdomains joined by '/'")
ANYTHING: Final = Leaf(lambda _: None)
TEXTS: Final = ListOf(TEXT)

METADATA: Final = Fields(
    {
        "name": SUBDOMAIN,
        "generateName": TEXT,
        "namespace": LABEL,
        "labels": MapOf(TEXT),
        "annotations": MapOf(TEXT),
        "finalizers": TEXTS,
        "uid": TEXT,
        "ownerReferences": ListOf(Fields({}, required=("apiVersion", "kind", "name", "uid"), open=True)),
    },
    required=("name",),
    open=True,
)

SELECTORS: Final = ListOf(
    Fields({"cel": Fields({"expression": EXPRESSION}, required=("expression",))}, required=("cel",)), most=32
)
OPAQUE: Final = Fields({"driver": DRIVER, "parameters": ANYTHING}, required=("driver", "parameters"))
REQUIREMENTS: Final = ListOf(
    Fields(
        {
            "key": TEXT,
            "operator": _choice("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
            "values": TEXTS,
        },
        required=("key", "operator"),
    )
)
NODE_SELECTOR: Final = Fields(
    {"nodeSelectorTerms": ListOf(Fields({"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}), least=1)},
    required=("nodeSelectorTerms",),
)

COUNTERS: Final = MapOf(Fields({"value": QUANTITY}, required=("value",)), least=1)
CONSUMPTION: Final = Fields(
    {"counterSet": LABEL, "counters": COUNTERS, "compatibilityGroups": ListOf(TEXT, most=2, key="")},
    required=("counterSet", "counters"),
)
ATTRIBUTE_TYPES: Final = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
ATTRIBUTE: Final = Fields(
    {
        "int": NUMBER,
        "bool": BOOL,
        "string": TEXT,
        "version": TEXT,
        "ints": ListOf(NUMBER),
        "bools": ListOf(BOOL),
        "strings": TEXTS,
        "versions": TEXTS,
    },
    one_of=(ATTRIBUTE_TYPES,),
)
POLICY: Final = Fields(
    {
        "default": QUANTITY,
        "validValues": ListOf(QUANTITY, most=10),
        "validRange": Fields({"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}),
    }
)
CAPACITY: Final = Fields({"value": QUANTITY, "requestPolicy": POLICY}, required=("value",))
TAINT: Final = Fields(
    {"key": TEXT, "value": TEXT, "effect": _choice("None", "NoSchedule", "NoExecute"), "timeAdded": TEXT},
    required=("key", "effect"),
)
CONDITIONS: Final = ListOf(TEXT, most=4, key="")
NODE_ALLOCATABLE: Final = Fields(
    {
        "mapping": Fields({"capacityKey": TEXT, "capacityMultiplier": QUANTITY, "deviceMultiplier": QUANTITY}),
        "overhead": Fields({"perPod": QUANTITY, "perContainer": QUANTITY}),
    }
)
DEVICE: Final = Fields(
    {
        "name": LABEL,
        "attributes": MapOf(ATTRIBUTE),
        "capacity": MapOf(CAPACITY),
        "consumesCounters": ListOf(CONSUMPTION, most=2, key="counterSet"),
        "taints": ListOf(TAINT),
        "nodeName": SUBDOMAIN,
        "nodeSelector": NODE_SELECTOR,
        "allNodes": BOOL,
        "bindsToNode": BOOL,
        "bindingConditions": CONDITIONS,
        "bindingFailureConditions": CONDITIONS,
        "allowMultipleAllocations": BOOL,
        "nodeAllocatableResources": MapOf(NODE_ALLOCATABLE),
        # No released API has it; see docs/policy.md.
        "compatibleOnlyWith": Fields({"expression": EXPRESSION}, required=("expression",)),
    },
    required=("name",),
    hints={
        "compatibilityGroups": "it belongs into an entry of consumesCounters",
        "nodeAllocatableResourceMappings": "Kubernetes 1.37 has nodeAllocatableResources in its place",
    },
)
SLICE: Final = Fields(
    {
        "driver": DRIVER,
        "pool": Fields(
            {"name": POOL, "generation": NUMBER, "resourceSliceCount": COUNT},
            required=("name", "generation", "resourceSliceCount"),
        ),
        "nodeName": SUBDOMAIN,
        "nodeSelector": NODE_SELECTOR,
        "allNodes": BOOL,
        "perDeviceNodeSelection": BOOL,
        "skipNodeOperations": TEXTS,
        "sharedCounters": ListOf(
            Fields({"name": LABEL, "counters": COUNTERS}, required=("name", "counters")), most=8, key="name"
        ),
        "partitionTypeAttribute": TEXT,
        "devices": ListOf(DEVICE, most=128, key="name"),
    },
    required=("driver", "pool"),
    one_of=(("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"),),
    any_of=("devices", "sharedCounters"),
)

TOLERATIONS: Final = ListOf(
    Fields(
        {
            "key": TEXT,
            "operator": _choice("Exists", "Equal"),
            "value": TEXT,
            "effect": _choice("NoSchedule", "NoExecute"),
            "tolerationSeconds": NUMBER,
        }
    )
)
BODY: Final[dict[str, Rule]] = {
    "deviceClassName": SUBDOMAIN,
    "selectors": SELECTORS,
    "allocationMode": _choice("ExactCount", "All"),
    "count": COUNT,
    "tolerations": TOLERATIONS,
    "capacity": Fields({"requests": MapOf(QUANTITY)}),
    "derivedAttributes": ListOf(Fields({"name": TEXT, "expression": TEXT}, required=("name", "expression"))),
}
EXACTLY: Final = Fields({**BODY, "adminAccess": BOOL}, required=("deviceClassName",))
ALTERNATIVE: Final = Fields({**BODY, "name": LABEL}, required=("name", "deviceClassName"))
REQUEST: Final = Fields(
    {"name": LABEL, "exactly": EXACTLY, "firstAvailable": ListOf(ALTERNATIVE, most=8, key="name")},
    required=("name",),
    one_of=(("exactly", "firstAvailable"),),
    hints=dict.fromkeys((*BODY, "adminAccess"), "in resource.k8s.io/v1 it belongs under 'exactly'"),
)
CLAIM: Final = Fields(
    {
        "devices": Fields(
            {
                "requests": ListOf(REQUEST, most=32, key="name"),
                "constraints": ListOf(
                    Fields(
                        {"requests": TEXTS, "matchAttribute": TEXT, "distinctAttribute": TEXT},
                        one_of=(("matchAttribute", "distinctAttribute"),),
                    ),
                    most=32,
                ),
                "config": ListOf(Fields({"requests": TEXTS, "opaque": OPAQUE}, required=("opaque",)), most=32),
            }
        )
    },
    required=("devices",),
)
CLASS: Final = Fields(
    {
        "selectors": SELECTORS,
        "config": ListOf(Fields({"opaque": OPAQUE}, required=("opaque",)), most=32),
        "extendedResourceName": TEXT,
    }
)

TAINT_RULE: Final = Fields(
    {
        "deviceSelector": Fields({"driver": DRIVER, "pool": POOL, "device": LABEL}),
        "taint": TAINT,
    },
    required=("taint",),
)

RESOURCES: Final = Fields({"requests": MapOf(QUANTITY), "limits": MapOf(QUANTITY)}, open=True)
CONTAINER: Final = Fields({"name": LABEL, "image": TEXT, "resources": RESOURCES}, required=("name", "image"), open=True)
POD: Final = Fields(
    {
        "containers": ListOf(CONTAINER, key="name", least=1),
        "initContainers": ListOf(CONTAINER, key="name"),
        "schedulerName": TEXT,
        "nodeName": TEXT,
        "nodeSelector": MapOf(TEXT),
        "priority": NUMBER,
        "resourceClaims": ListOf(
            Fields(
                {
                    "name": LABEL,
                    "resourceClaimName": SUBDOMAIN,
                    "resourceClaimTemplateName": SUBDOMAIN,
                    # Drafts of KEP-5729 have it; no released API does.
                    "podGroupResourceClaim": LABEL,
                },
                required=("name",),
                one_of=(("resourceClaimName", "resourceClaimTemplateName", "podGroupResourceClaim"),),
            ),
            key="name",
        ),
        "schedulingGroup": Fields({"podGroupName": SUBDOMAIN}, required=("podGroupName",)),
    },
    required=("containers",),
    open=True,
)
POD_GROUP: Final = Fields(
    {
        "schedulingPolicy": Fields(
            {"basic": ANYTHING, "gang": Fields({"minCount": COUNT}, required=("minCount",))},
            one_of=(("basic", "gang"),),
        ),
        "resourceClaims": ListOf(
            Fields(
                {"name": LABEL, "resourceClaimName": SUBDOMAIN, "resourceClaimTemplateName": SUBDOMAIN},
                required=("name",),
                one_of=(("resourceClaimName", "resourceClaimTemplateName"),),
            ),
            key="name",
            most=4,
        ),
    },
    open=True,
)
NODE_STATUS: Final = Fields({"allocatable": MapOf(QUANTITY), "capacity": MapOf(QUANTITY)}, open=True)

_TOP: Final[dict[str, Rule]] = {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA}
SCHEMAS: Final[dict[StoredKind, Rule]] = {
    StoredKind.NODE: Fields(
        {**_TOP, "spec": Fields({"unschedulable": BOOL}, open=True), "status": NODE_STATUS}, required=("metadata",)
    ),
    StoredKind.SLICE: Fields({**_TOP, "spec": SLICE}, required=("metadata", "spec")),
    StoredKind.CLASS: Fields({**_TOP, "spec": CLASS}, required=("metadata", "spec")),
    StoredKind.TAINT_RULE: Fields({**_TOP, "spec": TAINT_RULE, "status": ANYTHING}, required=("metadata", "spec")),
    StoredKind.TEMPLATE: Fields(
        {**_TOP, "spec": Fields({"metadata": ANYTHING, "spec": CLAIM}, required=("spec",))},
        required=("metadata", "spec"),
    ),
    StoredKind.CLAIM: Fields({**_TOP, "spec": CLAIM, "status": ANYTHING}, required=("metadata", "spec")),
    StoredKind.POD_GROUP: Fields({**_TOP, "spec": POD_GROUP, "status": ANYTHING}, required=("metadata", "spec")),
    StoredKind.POD: Fields({**_TOP, "spec": POD, "status": ANYTHING}, required=("metadata", "spec")),
}
"""Kind -> what a whole manifest of it looks like."""
