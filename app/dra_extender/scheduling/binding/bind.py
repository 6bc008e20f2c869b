"""The bind verb: starts and joins binds, one session per pod at a time."""

import asyncio
from collections.abc import Collection

from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.session import BindDependencies, BindSession, post_binding
from dra_extender.scheduling.permit.members import gang_of
from dra_extender.scheduling.ports.errors import RetryableError


class Bind:
    """Writes the allocations of a pod's claims and binds the pod; one `BindSession` per pod at a time.

    Idempotent by pod UID and resumable from API objects alone, so that it may be repeated after any failure, a restart included.
    """

    def __init__(self, deps: BindDependencies, supervisor: Supervisor) -> None:
        self._deps = deps
        self._supervisor = supervisor
        self._sessions: dict[str, BindSession] = {}
        self.pods_being_bound: Collection[str] = self._sessions.keys()

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event) -> None:
        """Bind the pod to the node; joins a bind of the same pod and node that is still running, ends one to another node.

        Once `disconnected` is set for every caller, no Binding is posted any more.

        Raises:
            RetryableError: not bound; the text says why, and a later bind of the pod carries on.
        """
        deps = self._deps
        await deps.pods.wait_for_node(node)
        pod = deps.pods.known(namespace, name, uid)
        if pod is not None and not pod.needs_devices and not pod.node_name and gang_of(pod, deps.ledger) is None:
            await post_binding(deps, pod, node)
            return
        while (session := self._sessions.get(uid)) is not None and session.node != node and session.task is not None:
            session.other_node = node
            session.recheck.fire()
            await asyncio.wait((session.task,))
        if session is not None and session.key != (namespace, name):
            raise RetryableError(f"the pod with UID {uid} is {'/'.join(session.key)}, not {namespace}/{name}")
        if session is None:
            session = self._begin(namespace, name, uid, node)
        session.callers.append(disconnected)
        watcher = asyncio.ensure_future(disconnected.wait())
        watcher.add_done_callback(lambda _: session.recheck.fire())
        try:
            if session.task is not None:
                await asyncio.shield(session.task)
        finally:
            watcher.cancel()

    def recheck(self, uids: Collection[str] | None = None) -> None:
        """Have the binds of these pods (None: of every pod) look again for a reason to end, if they only wait."""
        for uid in tuple(self._sessions) if uids is None else uids:
            if (session := self._sessions.get(uid)) is not None:
                session.recheck.fire()

    def recheck_node(self, node: str) -> None:
        """Have the binds to this node look again for a reason to end."""
        self.recheck([uid for uid, session in self._sessions.items() if session.node == node])

    async def drain(self) -> None:
        """Wait until the binds in progress have come to an end."""
        while tasks := [session.task for session in self._sessions.values() if session.task is not None]:
            await asyncio.wait(tasks)
        await self._deps.pending.drain()

    def _begin(self, namespace: str, name: str, uid: str, node: str) -> BindSession:
        session = self._sessions[uid] = BindSession(self._deps, (namespace, name), uid, node)

        def ended(task: asyncio.Task[None]) -> None:
            self._sessions.pop(uid, None)
            if not task.cancelled():
                task.exception()  # Counts as read even if every caller has gone.

        session.task = self._supervisor.begin(BackgroundTask.BIND, session.bind(), (RetryableError,))
        session.task.add_done_callback(ended)
        return session
