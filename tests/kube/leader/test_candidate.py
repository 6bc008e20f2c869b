"""Who leads, by rules alone: at most one replica acts at a time, whatever the clocks and the network do."""

from dataclasses import dataclass, field, replace

from dra_extender.kube.leader_election import LeaseRecord, LeaseTimes, LeaseView, held_lease, held_on
from hypothesis import given
from hypothesis import strategies as st

TIMES = LeaseTimes(duration=15, renew=10.0, retry=2.0)
THEIRS = LeaseRecord("1", "b", 15.0, 3, "t0", "t1")


def taken_by(identity: str, before: LeaseRecord | None, now: float, version: str) -> LeaseRecord:
    """What the server has after this candidate's write."""
    return replace(held_lease(before, identity, duration=TIMES.duration, now=now), version=version)


def test_a_silent_holder_is_waited_for_by_our_own_clock_from_the_moment_we_saw_it() -> None:
    """What its renewal time says does not matter: its clock may be years away."""
    candidate = LeaseView("a", TIMES)
    candidate.saw(THEIRS, 1000.0)
    candidate.saw(THEIRS, 1010.0)
    assert not candidate.may_take(1014.9)
    assert candidate.may_take(1015.0)


def test_a_renewal_begins_the_wait_anew_and_another_edit_of_the_object_does_not() -> None:
    candidate = LeaseView("a", TIMES)
    candidate.saw(THEIRS, 1000.0)
    candidate.saw(LeaseRecord("2", "b", 15.0, 3, "t0", "t1"), 1010.0)
    assert candidate.may_take(1015.0)
    candidate.saw(LeaseRecord("3", "b", 15.0, 3, "t0", "t2"), 1014.0)
    assert not candidate.may_take(1028.9)


def test_a_lease_that_was_deleted_belongs_to_its_holder_until_its_time_is_over() -> None:
    candidate = LeaseView("a", TIMES)
    candidate.saw(THEIRS, 1000.0)
    candidate.saw(None, 1001.0)
    assert not candidate.may_take(1014.0)
    assert candidate.may_take(1015.0)
    assert candidate.record is not None
    assert candidate.record.version == ""


def test_a_leader_acts_until_the_deadline_counted_from_when_it_sent_its_renewal() -> None:
    """The answer may take long; the other candidate counts from when the write was stored, which is later than sent."""
    candidate = LeaseView("a", TIMES)
    candidate.renewed(LeaseRecord("1", "a", 15.0), sent=100.0, now=104.0)
    assert candidate.leads(109.9)
    assert not candidate.leads(110.0)
    assert candidate.remaining(104.0) == 6.0
    candidate.resign()
    assert not candidate.leads(104.0)


def test_an_older_answer_that_comes_late_does_not_shorten_the_term() -> None:
    candidate = LeaseView("a", TIMES)
    candidate.renewed(LeaseRecord("2", "a", 15.0), sent=105.0, now=105.1)
    candidate.renewed(LeaseRecord("1", "a", 15.0), sent=100.0, now=105.2)
    assert candidate.leads(114.9)


def test_transitions_count_changes_of_the_holder_and_the_time_of_taking_is_kept_while_renewing() -> None:
    first = taken_by("a", None, 1.0, "1")
    again = taken_by("a", first, 2.0, "2")
    other = taken_by("b", again, 3.0, "3")
    assert [each.transitions for each in (first, again, other)] == [0, 0, 1]
    assert again.acquired == first.acquired != other.acquired
    assert again.renewed != first.renewed


def test_a_process_is_on_the_host_whose_name_its_identity_begins_with() -> None:
    assert held_on("dra-extender-5d9_4c1b", "dra-extender-5d9")
    assert not held_on("dra-extender-5d9_4c1b", "dra-extender")
    assert not held_on("", "dra-extender")


@dataclass
class Machine:
    """A replica with a clock of its own: it runs at `speed` and may be frozen."""

    candidate: LeaseView
    speed: float
    offset: float
    frozen_until: float = 0.0

    def clock(self, now: float) -> float:
        return self.offset + now * self.speed


@dataclass
class Server:
    """The one Lease, with its version."""

    record: LeaseRecord | None = None
    version: int = 0
    writes: list[str] = field(default_factory=list)

    def write(self, machine: Machine, now: float) -> LeaseRecord | None:
        """Store it if the machine knows the present version."""
        known = machine.candidate.record
        current = self.record.version if self.record else ""
        if (known.version if known else "") != current:
            return None
        self.version += 1
        self.record = taken_by(machine.candidate.identity, known, now, str(self.version))
        return self.record


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2]),
        st.sampled_from(["renew", "look", "lose answer", "freeze", "slow answer"]),
        st.floats(0.1, 6.0),
    ),
    max_size=80,
)


@given(
    STEPS, st.lists(st.floats(0.9, 1.1), min_size=3, max_size=3), st.lists(st.floats(0, 1e6), min_size=3, max_size=3)
)
def test_never_do_two_replicas_lead_at_once_however_long_answers_take_and_machines_sleep(
    steps: list[tuple[int, str, float]], speeds: list[float], offsets: list[float]
) -> None:
    """Clocks differ by any amount, and in speed by a tenth."""
    machines = [
        Machine(LeaseView(name, TIMES), speed, offset)
        for name, speed, offset in zip("abc", speeds, offsets, strict=True)
    ]
    server, now = Server(), 0.0
    for index, action, seconds in steps:
        now += seconds
        machine = machines[index]
        if now >= machine.frozen_until:
            act(machine, server, action, now, seconds)
        leading = [each.candidate.identity for each in machines if each.candidate.leads(each.clock(now))]
        assert len(leading) <= 1


def act(machine: Machine, server: Server, action: str, now: float, seconds: float) -> None:
    """One step of a replica: what it does with the lease, and what becomes of it."""
    candidate, here = machine.candidate, machine.clock(now)
    if action == "freeze":
        machine.frozen_until = now + 5 * seconds
        return
    candidate.saw(server.record, here)
    if action == "look" or not candidate.may_take(here):
        return
    stored = server.write(machine, now)
    if stored is None or action == "lose answer":
        return
    late = here + (seconds * machine.speed if action == "slow answer" else 0.0)
    candidate.renewed(stored, sent=here, now=late)
