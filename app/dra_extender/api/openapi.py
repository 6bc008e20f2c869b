"""The extender protocol for readers of the OpenAPI document.

These models only describe: `dra_extender.api.protocol` reads requests and writes answers, faster, and as lenient as Go.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, Field

_REF: Final = "#/components/schemas/{model}"


class FilterArguments(BaseModel):
    """Which of these nodes can run the pod?  One of the two lists is null, depending on nodeCacheCapable."""

    Pod: dict[str, Any] = Field(description="The pod, as in the Kubernetes API (v1 Pod)")
    NodeNames: list[str] | None = Field(None, description="Names of the nodes (nodeCacheCapable: true)")
    Nodes: dict[str, Any] | None = Field(None, description="A v1 NodeList (nodeCacheCapable: false)")


class ExtenderFilterResult(BaseModel):
    """The nodes that fit and why the others do not, or an Error."""

    NodeNames: list[str] | None = Field(None, description="Nodes that fit, when the request had NodeNames")
    Nodes: dict[str, Any] | None = Field(None, description="Nodes that fit, when the request had Nodes")
    FailedAndUnresolvableNodes: dict[str, str] | None = Field(
        None, description="Why other nodes do not fit; kube-scheduler's preemption would not free their devices"
    )
    Error: str | None = Field(None, description="The question cannot be answered now; kube-scheduler tries again")


class HostPriority(BaseModel):
    """The score of one node."""

    Host: str
    Score: int = Field(ge=0, le=10)


class BindingArguments(BaseModel):
    """Bind this pod to this node."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class BindingResult(BaseModel):
    """Empty Error: the pod is bound."""

    Error: str


class Victim(BaseModel):
    """A pod to evict."""

    UID: str


class MetaVictims(BaseModel):
    """Pods to evict on one node, by descending priority."""

    Pods: list[Victim]
    NumPDBViolations: int


class PreemptionArguments(BaseModel):
    """Proposed victims by node; one of the two maps is null, depending on nodeCacheCapable."""

    Pod: dict[str, Any] = Field(description="The pod, as in the Kubernetes API (v1 Pod)")
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None
    NodeNameToVictims: dict[str, Any] | None = Field(None, description="As the other map, with whole pods")


class PreemptionResult(BaseModel):
    """The nodes on which preemption makes sense."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class FailureResult(BaseModel):
    """Why there is no answer."""

    Error: str


class VersionInfo(BaseModel):
    """What is running."""

    version: str
    python: str
    implementation: str
    platform: str


def request_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `requestBody` of an operation that reads its body itself; models inside are those of a response."""
    schema = {name: value for name, value in model.model_json_schema(ref_template=_REF).items() if name != "$defs"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def failures(*, errors_in_body: bool) -> Mapping[int | str, dict[str, Any]]:
    """Return the other answers of a verb."""
    answers: dict[int | str, dict[str, Any]] = {413: {"model": FailureResult, "description": "The body is too large"}}
    if not errors_in_body:
        answers[400] = {"model": FailureResult, "description": "The request cannot be read"}
        answers[500] = {"model": FailureResult, "description": "The question cannot be answered now"}
        answers[503] = {"model": FailureResult, "description": "The service is starting or stopping, or does not lead"}
    return answers
