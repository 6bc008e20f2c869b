"""How long an answer about pods that wait takes, and what is left for the next answer."""

import pytest
from dra_extender.page import states
from dra_extender.page.states import Reports
from dra_extender.page.views import CommandLines
from dra_extender.page.waiting_view import STEP_SECONDS, pending_pods

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster


def cluster(kinds: int) -> MadeCluster:
    """One node, and pods that wait for so many different reasons."""
    made = MadeCluster()
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(*(device_class(f"class-{number}", f"device.driver == '{number}'") for number in range(kinds)))
    for number in range(kinds):
        made.pod(f"late-{number}", request("gpu", f"class-{number}"))
        made.pod(f"none-{number}", request("gpu", f"missing-{number}"))
    return made


def command(namespace: str, name: str) -> str:
    return CommandLines().why(namespace, name)


def test_steps_are_looked_for_until_the_time_of_an_answer_is_used_up_and_the_next_answer_goes_on() -> None:
    reports = Reports(cluster(2).view())
    moments = iter([0.0, 0.0, STEP_SECONDS, STEP_SECONDS, *([STEP_SECONDS] * 100)])
    first = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: next(moments))
    assert [each.next is None for each in first.rows][:2] == [False, True]
    second = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: 0.0)
    assert all(each.next is not None for each in second.rows)


def test_pods_beyond_a_round_are_counted_and_looked_at_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "EVALUATED_IN_A_ROUND", 50)
    made = cluster(1)
    made.nodes(*(f"m{number:05}" for number in range(50)))
    reports = Reports(made.view())
    first = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: 0.0)
    assert (first.report.unasked > 0, first.more) == (True, 2)
    last = pending_pods(reports, None, 3, 1, command, cpu_time=lambda: 0.0)
    assert (last.report.unasked, last.more) == (0, 0)


def test_command_line_is_safe_in_a_shell_and_never_takes_a_name_for_an_option() -> None:
    lines = CommandLines(("--snapshot", "a b.tar.gz"))
    assert lines.why("ml", "$(reboot)") == "kubectl dra why '$(reboot)' --namespace ml --snapshot 'a b.tar.gz'"
    assert lines.why("-ml", "--as=root") == "kubectl dra why --namespace=-ml --snapshot 'a b.tar.gz' -- --as=root"
    assert lines.why("default", "a") == "kubectl dra why a --snapshot 'a b.tar.gz'"
    assert lines.devices(driver="-x") == "kubectl dra devices --driver=-x --snapshot 'a b.tar.gz'"
