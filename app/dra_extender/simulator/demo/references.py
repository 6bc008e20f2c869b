from collections.abc import Collection, Iterator

from dra_extender.simulator.apiserver.defaults import bodies
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, group_name, part


def unknown_references(key: Key, thing: Json, known: Collection[Key]) -> Iterator[tuple[str, str]]:
    """Field and sentence for every name in the object that none of the known objects has."""
    if key.kind in (StoredKind.CLAIM, StoredKind.TEMPLATE):
        spec = part(thing, "spec") if key.kind is StoredKind.CLAIM else part(thing, "spec", "spec")
        for name in sorted({body["deviceClassName"] for body in bodies(spec)}):
            if Key(StoredKind.CLASS, "", name) not in known:
                yield "deviceClassName", f"no DeviceClass {name!r} is in these files"
    elif key.kind in (StoredKind.POD, StoredKind.POD_GROUP):
        group = group_name(thing) if key.kind is StoredKind.POD else None
        if group and Key(StoredKind.POD_GROUP, key.namespace, group) not in known:
            field = "schedulingGroup" if "schedulingGroup" in thing["spec"] else "workloadRef"
            yield f"spec.{field}.podGroupName", f"no PodGroup {group!r} is in these files"
        for entry in part(thing, "spec").get("resourceClaims") or []:
            for field, kind in (
                ("resourceClaimName", StoredKind.CLAIM),
                ("resourceClaimTemplateName", StoredKind.TEMPLATE),
            ):
                name = entry.get(field)
                if name and Key(kind, key.namespace, name) not in known:
                    yield f"spec.resourceClaims.{field}", f"no {kind.singular} {name!r} is in these files"
