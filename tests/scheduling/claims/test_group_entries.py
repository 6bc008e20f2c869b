"""More pods than a claim has entries share it through their PodGroup wherever that is safe, with the defaults of every setting."""

import random

import pytest
from dra_extender.ledger.group_entry_trials import GroupEntrySupport
from dra_extender.ledger.pod_groups import START_LABEL, GroupEntryPolicy
from dra_extender.model.resource_claim import MAX_RESERVATIONS, OWN_ENTRIES
from dra_extender.scheduling.claims.group_entries import UNABLE_SECONDS
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.crowds import TRIAL, CrowdExtender, crowded, names
from tests.support.scheduling.grouped import GROUP, NAMED
from tests.support.scheduling.reclaiming import GRACE, pass_by, reclaimed

CROWDED = "is reserved by 200 pods already, and the node is not known to start pods reserved by PodGroup"
ON_TRIAL = "is reserved by 200 pods already, and the node is just being tried for pods reserved by PodGroup"
FULL = "is reserved by 256 pods already"


async def test_300_pods_share_a_claim_where_only_one_kubelet_has_the_gate() -> None:
    """Those that did not start get entries of their own, and nobody is bound to where he cannot start for longer than the trial."""
    world = CrowdExtender({"n1": True, "n2": False, "n3": False})
    left = names(300)
    world.members(*left)
    async with world.watching():
        for _ in range(12):
            left = await world.try_all(left)
            world.kubelets_work()
            await world.look(TRIAL)
            world.kubelets_work()
    assert left == []
    assert all(world.accepted(pod) for pod in names(300))
    assert len(world.entries()) <= MAX_RESERVATIONS


async def test_one_pod_tries_a_node_and_the_next_waits_for_it() -> None:
    world = await crowded({"n1": True})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first", "second"]) == ["second"]
        assert "first" not in world.entries()
        assert GROUP in world.entries()
        assert ON_TRIAL in world.messages("second")[-1]
        before = world.ledger.changes.claims
        world.kubelets_work()
        await world.look()
        assert world.ledger.changes.claims > before
        assert await world.try_all(["second"]) == []


async def test_a_pod_that_does_not_start_gets_its_own_entry_and_the_node_is_left_alone_for_a_while() -> None:
    world = await crowded({"n1": False})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first"]) == []
        world.kubelets_work()
        await world.look(TRIAL - 1)
        assert "first" not in world.entries()
        await world.look(1)
        assert "first" in world.entries()
        assert world.accepted("first")
        assert await world.try_all(["second"]) == []
        assert "second" in world.entries()
        world.clock.seconds += UNABLE_SECONDS
        await world.look()
        world.members("third")
        assert await world.try_all(["third"]) == []
        assert "third" not in world.entries()


async def test_a_kubelet_that_has_not_started_pods_with_entries_of_their_own_is_slow_and_waited_for() -> None:
    world = await crowded({"n1": False})
    world.members("first")
    world.started("m0", status="False")
    async with world.watching():
        assert await world.try_all(["first"]) == []
        await world.look(TRIAL)
        assert "first" not in world.entries()
        world.started("m0")
        await world.look()
        assert "first" in world.entries()


async def test_a_kubelet_is_not_waited_for_without_end() -> None:
    world = await crowded({"n1": False})
    world.members("first")
    world.started("m0", status="False")
    async with world.watching():
        assert await world.try_all(["first"]) == []
        await world.look(5 * TRIAL)
    assert "first" in world.entries()


async def test_pods_are_refused_in_words_when_no_entry_is_left_for_finding_out() -> None:
    world = await crowded({"n1": False, "n2": True})
    more = names(MAX_RESERVATIONS - OWN_ENTRIES - 1, "more")
    world.members("first", *more, "late")
    async with world.watching():
        assert await world.try_all(["first"], "n1") == []
        await world.look(TRIAL)
        assert len(await world.try_all(more, "n1")) == 1
        assert len(world.entries()) == MAX_RESERVATIONS
        assert await world.try_all(["late"], "n1") == ["late"]
        assert (
            f"label the node {START_LABEL}=true or set scheduling.reserve_for_pod_groups: always"
            in world.messages("late")[-1]
        )
        assert await world.try_all(["late"], "n2") == ["late"]
        assert CROWDED in world.messages("late")[-1]
        assert "there is no entry left for a pod that would find out" in world.messages("late")[-1]
        world.a_node("n2", **{START_LABEL: "true"})
        assert await world.try_all(["late"], "n2") == []
    assert world.accepted("late")


async def test_for_each_pod_on_trial_an_entry_is_kept_from_everybody() -> None:
    """From plain pods too, of which the claim takes as many as there are entries otherwise."""
    able = {f"n{index}": False for index in range(3)}
    world = await crowded(able)
    trials, plain = names(3, "trial"), names(60, "plain")
    world.members(*trials)
    for name in plain:
        world.add_pod(name, "shared")
    async with world.watching():
        for pod, node in zip(trials, able, strict=True):
            assert await world.try_all([pod], node) == []
        refused = await world.bound_together(plain, "n0")
        assert len(refused) == len(plain) - (MAX_RESERVATIONS - OWN_ENTRIES - 1 - len(trials))
        assert all(FULL in each for each in refused)
        assert len(world.entries()) == MAX_RESERVATIONS - len(trials)
        await world.look(TRIAL)
    assert len(world.entries()) == MAX_RESERVATIONS
    assert set(trials) <= set(world.entries())


async def test_of_binds_at_the_same_time_no_more_than_200_get_their_own_entry() -> None:
    world = CrowdExtender({"n1": True})
    pods = names(230)
    world.members(*pods)
    async with world.watching():
        await world.bind(pods[0], "n1")
        refused = await world.bound_together(pods[1:], "n1")
    assert len(world.entries()) == OWN_ENTRIES
    assert len(refused) == 30
    assert all(CROWDED in each for each in refused)


async def test_of_binds_at_the_same_time_one_tries_the_node() -> None:
    world = await crowded({"n1": True})
    pods = names(10, "late")
    world.members(*pods)
    async with world.watching():
        refused = await world.bound_together(pods, "n1")
    assert len(refused) == 9
    assert all(ON_TRIAL in each for each in refused)
    assert world.entries().count(GROUP) == 1


async def test_a_bind_that_fails_tries_nothing() -> None:
    world = await crowded({"n1": True})
    world.members("first", "second")
    await world.abandoned("first")
    async with world.watching():
        assert await world.try_all(["second"]) == []


async def test_a_pod_that_was_given_its_own_entry_before_it_started_proves_nothing() -> None:
    """Another writer did so, and our watch of claims has not told."""
    world = await crowded({"n1": False})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first"]) == []
    claim = world.claim("shared")
    uid = world.uid("first")
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "first", "uid": uid})
    world.silence("resourceclaims")
    world.cluster.store.update_status(StoredKind.CLAIM, claim)
    world.started("first")
    await world.look()
    node = world.ledger.nodes["n1"]
    assert world.ledger.group_entry_trials.support_on("default", node) is GroupEntrySupport.UNKNOWN


@pytest.mark.parametrize("change", [{"boot": "boot-2"}, {"version": "v1.37.2"}])
async def test_what_is_known_of_a_kubelet_goes_with_its_run_and_its_version(change: dict[str, str]) -> None:
    world = await crowded({"n1": True})
    world.members(*names(5, "late"))
    async with world.watching():
        assert await world.try_all(["late0"]) == []
        world.kubelets_work()
        await world.look()
        assert await world.try_all(["late1", "late2"]) == []
        world.kubelets_work()
        await world.look()
        world.a_node("n1", **change)
        assert await world.try_all(["late3", "late4"]) == ["late4"]


@pytest.mark.parametrize("change", [{"boot": "boot-2"}, {"version": "v1.37.2"}])
async def test_a_pod_that_started_across_a_reboot_or_an_upgrade_proves_nothing(change: dict[str, str]) -> None:
    world = await crowded({"n1": True})
    world.members("first", "second", "third")
    async with world.watching():
        assert await world.try_all(["first"]) == []
        world.a_node("n1", **change)
        world.kubelets_work()
        await world.look()
        assert await world.try_all(["second", "third"]) == ["third"]


async def test_after_a_restart_a_pod_on_trial_still_has_its_entry_kept_and_gets_it() -> None:
    world = await crowded({"n1": False})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first"]) == []
    world.restart()
    async with world.watching():
        await world.look()
        assert await world.try_all(["second"]) == ["second"]
        await world.look(TRIAL)
        assert "first" in world.entries()


async def test_a_place_that_a_pod_leaves_is_the_next_ones() -> None:
    world = await crowded({"n1": True})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first", "second"]) == ["second"]
        before = world.ledger.changes.claims
        world.delete(StoredKind.POD, "m0")
        world.manage(gate=True)
        assert world.ledger.changes.claims > before
        # The entry of the group is one of the 200 that count.
        world.delete(StoredKind.POD, "m1")
        world.manage(gate=True)
        assert await world.try_all(["second"]) == []
    assert "second" in world.entries()


async def test_a_pod_on_trial_that_is_deleted_tries_no_more() -> None:
    world = await crowded({"n1": True})
    world.members("first", "second")
    async with world.watching():
        assert await world.try_all(["first", "second"]) == ["second"]
        world.delete(StoredKind.POD, "first")
        assert await world.try_all(["second"]) == []


@pytest.mark.parametrize("gate", [True, False])
async def test_the_reservation_of_a_podgroup_that_is_gone_ends_whatever_kube_controller_manager_has(
    *, gate: bool
) -> None:
    world = await crowded({"n1": True})
    world.members("first")
    async with world.watching():
        assert await world.try_all(["first"]) == []
        for pod in [*names(OWN_ENTRIES), "first"]:
            world.delete(StoredKind.POD, pod)
        world.end_group(GROUP)
        world.manage(gate=gate)
        assert world.entries() == ([] if gate else [GROUP])
        await pass_by(world, GRACE)
        world.manage(gate=gate)
    assert world.entries() == []
    assert world.devices("shared") == []
    assert await reclaimed(world, "group_gone") == (0 if gate else 1)


async def test_members_of_a_gang_of_which_none_is_bound_find_nothing_out() -> None:
    """They would wait for each other at the gate, and for a start that comes after it."""
    world = await crowded({"n1": True})
    world.add_group("gang", 1, resourceClaims=[NAMED])
    world.add_member("gang", "member", resourceClaims=[NAMED])
    async with world.watching():
        assert await world.try_all(["member"]) == ["member"]
        assert "nothing is found out by members of a gang of which none is bound" in world.messages("member")[-1]


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"pod_group_claims": False}, "features.pod_group_claims is off"),
        ({"reserve_for_pod_groups": GroupEntryPolicy.NEVER}, "scheduling.reserve_for_pod_groups is never"),
        ({"reclaim_enabled": False}, "scheduling.reclaim_enabled is off"),
    ],
)
async def test_where_a_setting_excludes_it_256_pods_have_entries_and_the_next_reads_which(
    options: dict[str, object], because: str
) -> None:
    world = await crowded({"n1": True}, **options)
    more = names(MAX_RESERVATIONS - OWN_ENTRIES, "more")
    world.members(*more, "late")
    async with world.watching():
        assert await world.bound_together(more, "n1") == []
        assert await world.try_all(["late"]) == ["late"]
    assert GROUP not in world.entries()
    assert f"{FULL}: {because}" in world.messages("late")[-1]


async def test_a_pod_without_a_podgroup_reads_that_pods_of_one_may_be_more() -> None:
    world = await crowded({"n1": True}, pod_group_claims=True)
    plain = names(MAX_RESERVATIONS - OWN_ENTRIES + 1, "plain")
    for name in plain:
        world.add_pod(name, "shared")
    async with world.watching():
        assert len(await world.bound_together(plain[:-1], "n1")) == 0
        assert await world.try_all(plain[-1:]) == plain[-1:]
    assert (
        f"{FULL}: pods of a PodGroup with this claim in its spec.resourceClaims may be more"
        in world.messages(plain[-1])[-1]
    )


@pytest.mark.parametrize(("label", "entries"), [("true", [GROUP]), ("false", ["a"]), ("maybe", ["a"])])
async def test_a_label_says_from_the_first_pod_on_what_the_kubelet_accepts(label: str, entries: list[str]) -> None:
    world = CrowdExtender({"n1": True})
    world.a_node("n1", **{START_LABEL: label})
    world.members("a")
    async with world.watching():
        assert await world.try_all(["a"]) == []
    assert world.entries() == entries


async def test_on_a_node_that_is_labelled_unable_nothing_is_tried() -> None:
    world = await crowded({"n1": False})
    world.a_node("n1", **{START_LABEL: "false"})
    world.members("first")
    async with world.watching():
        assert await world.try_all(["first"]) == []
    assert "first" in world.entries()


STEPS = 25


@pytest.mark.parametrize("seed", range(3))
async def test_every_pod_on_a_node_that_cannot_start_it_finds_an_entry_of_its_own(seed: int) -> None:
    """Pods come and go, with and without the group; kubelets lose and get their gate with another version; the service restarts."""
    chance = random.Random(seed)
    world = await crowded({f"n{index}": chance.random() < 0.5 for index in range(4)})
    waiting = names(110, "late")
    world.members(*waiting)
    plain = names(40, "plain")
    for name in plain:
        world.add_pod(name, "shared")
    chance.shuffle(waiting)
    for step in range(STEPS):
        async with world.watching():
            some, waiting = waiting[:8], waiting[8:]
            waiting += await world.try_all(some)
            if plain and chance.random() < 0.3:
                await world.bound_together([plain.pop()], chance.choice(list(world.able)))
        happen(world, chance, step)
        async with world.watching():
            await world.look(chance.choice([0, 1, TRIAL]))
        assert len(world.entries()) <= MAX_RESERVATIONS
        stuck = not_accepted(world)
        assert len(world.entries()) + len(stuck) <= MAX_RESERVATIONS, stuck
    async with world.watching():
        await world.look(TRIAL)
        await world.look(TRIAL)
    assert not_accepted(world) == []
    assert len(world.entries()) > OWN_ENTRIES // 2


def happen(world: CrowdExtender, chance: random.Random, step: int) -> None:
    """Something happens outside of the service."""
    match chance.randrange(5):
        case 0:
            world.kubelets_work()
        case 1:
            bound = [
                pod["metadata"]["name"]
                for pod in world.cluster.store.all(StoredKind.POD)
                if pod["spec"].get("nodeName")
            ]
            for pod in chance.sample(bound, 3):
                world.delete(StoredKind.POD, pod)
            world.manage(gate=chance.random() < 0.5)
        case 2:
            node = chance.choice(list(world.able))
            if not any(world.node_of(pod) == node for pod in group_only(world)):
                world.able[node] = not world.able[node]
                world.a_node(node, version=f"v1.37.{step}")
        case 3:
            world.restart()
        case _:
            world.kubelets_work()


def group_only(world: CrowdExtender) -> list[str]:
    """Bound pods without an entry of their own."""
    entries = set(world.entries())
    return [
        name
        for pod in world.cluster.store.all(StoredKind.POD)
        if pod["spec"].get("nodeName") and (name := pod["metadata"]["name"]) not in entries
    ]


def not_accepted(world: CrowdExtender) -> list[str]:
    """Bound pods that their kubelet would not start."""
    return [pod for pod in group_only(world) if not world.accepted(pod)]
