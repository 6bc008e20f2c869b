from collections.abc import Mapping
from dataclasses import dataclass, field

# Feature gates that tests want on beside the defaults, with the minor version that first knows each.
WANTED_GATES: Mapping[str, int] = {
    "GenericWorkload": 35,
    "DRAWorkloadResourceClaims": 36,
    "DRADeviceCompatibilityGroups": 37,
}
WANTED_APIS: Mapping[str, int] = {
    "scheduling.k8s.io/v1beta1": 37,
    "scheduling.k8s.io/v1alpha3": 37,
}
NEWEST_MINOR = 37
# These would take the silence of missing kubelets for dead nodes, or hand out pod networks nobody uses.
WITHOUT_CONTROLLERS = ("node-lifecycle-controller", "taint-eviction-controller", "node-ipam-controller")


def default_gates(release: str | None = None) -> dict[str, bool]:
    """The gates that tests want on, as far as a release ("1.36"; None: the newest) knows them.

    For one gate less: `default_gates() | {"DRADeviceCompatibilityGroups": False}`.
    """
    minor = _minor(release)
    return {gate: True for gate, since in WANTED_GATES.items() if since <= minor}


def default_apis(release: str | None = None) -> dict[str, bool]:
    """The API versions that are served beside the defaults, as far as a release has them."""
    minor = _minor(release)
    return {api: True for api, since in WANTED_APIS.items() if since <= minor}


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """How a control plane is started.

    One with a `name` is shared by the test modules that name it; see planes.py. `release` ("1.34" to "1.36"; None: the
    newest) is that of all components; with `emulated`, the newest programs behave as this release. Gates are set per component, as
    in real clusters: `feature_gates` are the API server's,
    and the controller-manager's unless `controller_manager_feature_gates` replaces them; schedulers get their own when they are
    started. None stands for `default_gates` and `default_apis` of the release; a mapping replaces them. `users` get tokens
    beside the ones that always have one, as {name: groups}. Of the controllers that run by default, `without_controllers` do not.
    """

    name: str = ""
    release: str | None = None
    emulated: bool = False
    feature_gates: Mapping[str, bool] | None = None
    controller_manager_feature_gates: Mapping[str, bool] | None = None
    runtime_config: Mapping[str, bool] | None = None
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without_controllers: tuple[str, ...] = WITHOUT_CONTROLLERS
    apiserver_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()

    @property
    def built(self) -> str | None:
        """The release of the programs; None for the newest."""
        return None if self.emulated else self.release

    @property
    def emulation(self) -> str | None:
        """The release that the newest programs emulate."""
        return self.release if self.emulated else None

    @property
    def gates(self) -> Mapping[str, bool]:
        """Feature gates set for the API server."""
        return default_gates(self.release) if self.feature_gates is None else self.feature_gates

    @property
    def controller_manager_gates(self) -> Mapping[str, bool]:
        """Feature gates set for the controller-manager: those of the API server unless it has its own."""
        own = self.controller_manager_feature_gates
        return self.gates if own is None else own

    @property
    def apis(self) -> Mapping[str, bool]:
        """API versions switched on or off beside the defaults."""
        return default_apis(self.release) if self.runtime_config is None else self.runtime_config


def _minor(release: str | None) -> int:
    return NEWEST_MINOR if release is None else int(release.removeprefix("1."))
