from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection of the API: group and version as in `apiVersion`, plural name, and whether it lives in namespaces."""

    group_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of the collection, an object or a part of it; without a namespace, of all namespaces."""
        root = "/apis" if "/" in self.group_version else "/api"
        scope = ["namespaces", namespace] if self.namespaced and namespace is not None else []
        tail = [part for part in (name, subresource) if part is not None]
        return "/".join([root, self.group_version, *scope, self.plural, *tail])


NAMESPACES = Resource("v1", "namespaces", namespaced=False)
NODES = Resource("v1", "nodes", namespaced=False)
PODS = Resource("v1", "pods")
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts")
SERVICES = Resource("v1", "services")
CONFIG_MAPS = Resource("v1", "configmaps")
SECRETS = Resource("v1", "secrets")
CRON_JOBS = Resource("batch/v1", "cronjobs")
EVENTS = Resource("events.k8s.io/v1", "events")
LEASES = Resource("coordination.k8s.io/v1", "leases")
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "endpointslices")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
DEPLOYMENTS = Resource("apps/v1", "deployments")
REPLICA_SETS = Resource("apps/v1", "replicasets")
POD_DISRUPTION_BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "networkpolicies")
POD_GROUPS = Resource("scheduling.k8s.io/v1beta1", "podgroups")
WORKLOADS = Resource("scheduling.k8s.io/v1beta1", "workloads")

RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io/v1", "resourceclaimtemplates")
DEVICE_TAINT_RULES = Resource("resource.k8s.io/v1", "devicetaintrules", namespaced=False)

ROLES = Resource("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
ADMISSION_POLICIES = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
MUTATING_POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False)
MUTATING_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False
)
