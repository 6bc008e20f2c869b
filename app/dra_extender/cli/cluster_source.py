"""The options that say which cluster a command asks: a running one, or a snapshot.

Nothing here imports what reads a cluster before a command runs, so that help and completion take no time.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec

import typer

from dra_extender.cli.answers import CommandError, ExitStatus, status_line
from dra_extender.cli.color import Color, ColorChoice, chosen
from dra_extender.cli.command_help import CLUSTER_PANEL

if TYPE_CHECKING:
    from dra_extender.allocator.overlay.policy import PolicyOverlay
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.objects import ClusterObjects
    from dra_extender.kube.client.settings import KubeSettings

_option = functools.partial(typer.Option, rich_help_panel=CLUSTER_PANEL)

PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The policy file of the service, if it has one.")
]
_LONGEST_DURATION: Final = 40
_LONGEST_NAME: Final = 253
_SERVER_NAME: Final = re.compile(r"(?=.{0,253}\Z)([A-Za-z0-9_:-]{1,63}(\.[A-Za-z0-9_:-]{1,63})*)?")
_DAY: Final = 86_400.0
"""Longer than anybody waits for an answer."""

_NAMESPACES: Final = frozenset({"namespace", "all_namespaces"})
_SPELLED: Final[Mapping[str, str]] = MappingProxyType({"impersonate": "as", "groups": "as-group", "uid": "as-uid"})
"""Options that are not spelled as their fields."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """The cluster that a command asks, by its options, in the order of the help."""

    namespace: Annotated[
        str | None,
        _option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Ask about this namespace. Names without a namespace are in it; default: the context's.",
        ),
    ] = None
    all_namespaces: Annotated[
        bool, _option("--all-namespaces", "-A", help="Ask about all namespaces, as without --namespace.")
    ] = False
    snapshot: Annotated[
        Path | None, _option("--snapshot", metavar="FILE", help="Ask a snapshot instead of a running cluster.")
    ] = None
    snapshot_limit: Annotated[
        int | None,
        _option(
            "--snapshot-limit",
            metavar="MIB",
            min=1,
            envvar="DRA_SNAPSHOT_LIMIT_MIB",
            show_envvar=False,
            help="With --snapshot: MiB that the file may have unpacked; default: $DRA_SNAPSHOT_LIMIT_MIB, else 256.",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        _option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, else ~/.kube/config, as for kubectl."),
    ] = None
    context: Annotated[
        str | None,
        _option("--context", metavar="NAME", help="Context of the kubeconfig; default: the current context."),
    ] = None
    cluster: Annotated[
        str,
        _option("--cluster", metavar="NAME", help="Cluster of the kubeconfig; default: the cluster of the context."),
    ] = ""
    user: Annotated[
        str, _option("--user", metavar="NAME", help="User of the kubeconfig; default: the user of the context.")
    ] = ""
    server: Annotated[
        str,
        _option(
            "--server",
            "-s",
            metavar="URL",
            help="Address of the API server; default: the address that the kubeconfig has.",
        ),
    ] = ""
    token: Annotated[
        str,
        _option("--token", metavar="TOKEN", help="Log in with this bearer token, and with nothing of the kubeconfig."),
    ] = field(default="", repr=False)
    certificate_authority: Annotated[
        Path | None,
        _option(
            "--certificate-authority",
            metavar="FILE",
            help="Certificate authority of the API server, in PEM; default: what the kubeconfig has.",
        ),
    ] = None
    insecure_skip_tls_verify: Annotated[
        bool,
        _option(
            "--insecure-skip-tls-verify",
            help="Do not check the API server's certificate: the connection is insecure, anybody in between can read the token.",
        ),
    ] = False
    tls_server_name: Annotated[
        str,
        _option(
            "--tls-server-name",
            metavar="NAME",
            help="Name in the API server's certificate; default: what the kubeconfig has, with --server the host of the address.",
        ),
    ] = ""
    client_certificate: Annotated[
        Path | None,
        _option(
            "--client-certificate", metavar="FILE", help="Log in with this certificate, in PEM; its key: --client-key."
        ),
    ] = None
    client_key: Annotated[
        Path | None, _option("--client-key", metavar="FILE", help="Key of the client certificate, in PEM.")
    ] = None
    request_timeout: Annotated[
        str,
        _option(
            "--request-timeout",
            metavar="DURATION",
            help="Time for one answer of the API server, such as 30s or 1m; 0: any. [default: 10s, 60s for a list]",
        ),
    ] = ""
    impersonate: Annotated[str, _option("--as", metavar="USER", help="Ask in the name of this user.")] = ""
    groups: Annotated[
        list[str] | None,
        _option("--as-group", metavar="GROUP", help="With --as: ask as a member of this group; may be repeated."),
    ] = None
    uid: Annotated[str, _option("--as-uid", metavar="UID", help="With --as: ask with this UID of the user.")] = ""
    extender_url: Annotated[
        str,
        _option(
            "--extender-url",
            metavar="URL",
            help="Where the extender answers here, e.g. http://127.0.0.1:8080; default: by port-forward to its pod.",
        ),
    ] = ""

    def options(self) -> tuple[str, ...]:
        """Return the options that name this source on a command line; not the token, which a page or a log could show."""
        shown = ((name, value) for name, value in self.chosen_options() if name != "--token")
        return tuple(str(word) for name, value in shown for word in ((name,) if value is True else (name, value)))

    def chosen_options(self) -> list[tuple[str, object]]:
        """Return the options that say which cluster or snapshot is asked, and how, each with its value."""
        options: list[tuple[str, object]] = []
        for name in (option.name for option in fields(self) if option.name not in _NAMESPACES):
            value, option_name = getattr(self, name), f"--{_SPELLED.get(name, name.replace('_', '-'))}"
            options += [(option_name, part) for part in (value if isinstance(value, list) else [value]) if part]
        return options

    @property
    def is_set(self) -> bool:
        """Return whether a command line says which cluster or snapshot is asked, or in whose name; limits say neither."""
        return bool({name for name, _ in self.chosen_options()} - {"--snapshot-limit", "--request-timeout"})

    def settings(self) -> "KubeSettings":
        from dra_extender.kube.client.settings import KubeSettings, Timeouts, TlsOptions

        seconds = request_seconds(self.request_timeout)
        return KubeSettings(
            kubeconfig=self.kubeconfig,
            context=self.context,
            cluster=self.cluster,
            user=self.user,
            server=self.server,
            token=self.token,
            tls=TlsOptions(
                authority=self.certificate_authority,
                insecure=self.insecure_skip_tls_verify,
                server_name=self.tls_server_name,
                certificate=self.client_certificate,
                key=self.client_key,
            ),
            timeouts=Timeouts() if seconds is None else Timeouts(connect=seconds, read=seconds, page=seconds),
            impersonate=self.impersonate,
            impersonate_groups=tuple(self.groups or ()),
            impersonate_uid=self.uid,
        )

    def read(self, *, explaining: bool = False) -> "ClusterObjects":
        """Return the objects of the snapshot, else of the cluster; end the program with a message if they cannot be read.

        `explaining`: with the kinds that no decision reads.  Their namespace is that of the question.
        """
        if self.snapshot is not None:
            from dra_extender.inspection.snapshot_file import MOST_MIB, SnapshotFileError, read_snapshot

            try:
                with status_line("reading the snapshot"):
                    objects = read_snapshot(self.snapshot, self.snapshot_limit or MOST_MIB)
                return objects._replace(namespace=self.namespace or objects.namespace)
            except SnapshotFileError as problem:
                raise CommandError(problem, ExitStatus.UNKNOWN) from problem
        from dra_extender.runtime.installation import run_in_new_loop

        with _read_errors(), status_line("reading the cluster"):
            return run_in_new_loop(self._live(explaining=explaining))

    def follow(self, answer: "Callable[[ClusterObjects], None]") -> None:
        """Call `answer` with the objects of the cluster, and again after each change, until the person stops the program.

        End the program with a message if the cluster cannot be read.
        """
        from dra_extender.runtime.installation import run_in_new_loop

        if self.snapshot is not None:
            raise typer.BadParameter("--snapshot asks a file, which does not change: --watch does not go with it")
        with suppress(KeyboardInterrupt), _read_errors():
            run_in_new_loop(self._follow(answer))

    async def _follow(self, answer: "Callable[[ClusterObjects], None]") -> None:
        import asyncio

        from dra_extender.inspection.running_cluster import PAUSE_SECONDS, FollowedCluster, with_events

        settings = self.settings()
        followed = FollowedCluster(settings, self.extender_url, namespace=self.namespace)
        try:
            await followed.start()
            while True:
                answer(await with_events(await followed.objects(), settings))
                await followed.change()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await followed.stop()

    async def _live(self, *, explaining: bool) -> "ClusterObjects":
        from dra_extender.inspection.objects import ALL_KINDS, KINDS
        from dra_extender.inspection.running_cluster import read_live, read_view, with_view

        settings = self.settings()
        kinds = ALL_KINDS if explaining else KINDS
        objects = await read_live(settings, self.namespace, kinds)
        return with_view(objects, await read_view(settings, objects.of_kind("pods"), self.extender_url))


@contextmanager
def _read_errors() -> Iterator[None]:
    from dra_extender.kube.client.credentials import ConfigurationError
    from dra_extender.scheduling.ports.cluster import ClusterError

    try:
        yield
    except (ConfigurationError, ClusterError) as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem


def use_policy_file(view: "ClusterView", policy: Path | None) -> tuple[str, ...]:
    """Put the policy of this file on the devices of the view; end the program with a message if the file cannot be used.

    Return a sentence for each of its rules that has no effect.
    """
    if policy is None:
        return ()
    from dra_extender.allocator.overlay.policy_effects import ineffective_messages

    overlay = read_policy_file(policy, compatibility_groups=view.features.compatibility_groups)
    view.use_policy(overlay)
    return ineffective_messages(overlay.rules, view.ledger.overlays.under_policy)


def read_policy_file(policy: Path, *, compatibility_groups: bool = True) -> "PolicyOverlay":
    """Return the policy in this file; end the program with a message if the file cannot be used."""
    from dra_extender.config.policy_file import InvalidPolicyError, parse_policy, read_policy
    from dra_extender.manifests.files import STDIN, opened, title

    try:
        if policy == STDIN:
            with opened(policy) as file:
                name = f"policy in {title(policy)}"
                return parse_policy(file.read(), name, compatibility_groups=compatibility_groups)
        return read_policy(policy, compatibility_groups=compatibility_groups)
    except OSError as problem:
        raise CommandError(f"{title(policy)}: cannot be read: {problem.strerror}", ExitStatus.UNKNOWN) from problem
    except InvalidPolicyError as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem


_COLOR: Final = inspect.Parameter("color", inspect.Parameter.KEYWORD_ONLY, default=ColorChoice.AUTO, annotation=Color)


def asks_a_cluster(command: Callable[Concatenate[ClusterSource, P], None]) -> Callable[..., None]:
    """Return the command with the options of ClusterSource in the place of its first parameter, behind its own options and --color.

    A question without an answer, because its object does not exist or objects could not be read, ends the program with a message.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    source_parameters = tuple(inspect.signature(ClusterSource, eval_str=True).parameters.values())

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        cluster_source = _checked(
            ClusterSource(**{parameter.name: options.pop(parameter.name) for parameter in source_parameters})
        )
        color = options.pop(_COLOR.name)
        with status_line("loading"):
            from dra_extender.inspection.objects import UnknownObjectError, UnreadKindsError
            from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

        configure_logging(LogFormat.TEXT, LogLevel.ERROR)
        try:
            with chosen(color):
                command(cluster_source, **options)  # type: ignore[call-arg]  # the options are those of the signature below
        except UnknownObjectError as problem:
            raise CommandError(problem, ExitStatus.NEGATIVE) from problem
        except UnreadKindsError as problem:
            raise CommandError(problem, ExitStatus.UNKNOWN) from problem

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, _COLOR, *source_parameters)
    ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # as `inspect` documents it
    return with_options


def _checked(source: ClusterSource) -> ClusterSource:
    """Return the source, without a namespace if all namespaces are asked about; raise BadParameter if two options conflict."""
    cluster_options = dict.fromkeys(name for name, _ in source.chosen_options() if not name.startswith("--snapshot"))
    if source.snapshot is not None and cluster_options:
        raise typer.BadParameter(f"--snapshot asks a file: {', '.join(cluster_options)} does not go with it")
    if (source.groups or source.uid) and not source.impersonate:
        raise typer.BadParameter(f"{'--as-group' if source.groups else '--as-uid'} needs --as")
    if not all(name.isprintable() for name in (source.impersonate, source.uid, *(source.groups or ()))):
        raise typer.BadParameter(
            "--as, --as-group and --as-uid: expected printable characters, which a header can hold"
        )
    if source.certificate_authority and source.insecure_skip_tls_verify:
        raise typer.BadParameter(
            "--insecure-skip-tls-verify checks no certificate: --certificate-authority does not go with it"
        )
    if not _SERVER_NAME.fullmatch(source.tls_server_name):
        raise typer.BadParameter(
            f"--tls-server-name: expected a host name, got {source.tls_server_name[:_LONGEST_NAME]!r}"
        )
    if source.extender_url and not source.extender_url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--extender-url: expected http://HOST:PORT, got {source.extender_url!r}")
    _check_server(source.server)
    # A header has no room for anything else; what was given instead is not repeated.
    if not (source.token.isascii() and source.token.isprintable()) or " " in source.token:
        raise typer.BadParameter("--token: expected printable ASCII without spaces")
    request_seconds(source.request_timeout)
    return replace(source, namespace=None if source.all_namespaces else source.namespace or None)


def _check_server(url: str) -> None:
    """Refuse what is no address; it is not repeated where it could hold a password."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if url and (not usable or not url.isprintable() or "@" in url or parts.query or parts.fragment):
        raise typer.BadParameter("--server: expected https://HOST:PORT, without a user, a query or a fragment")


def request_seconds(text: str) -> float | None:
    """Return the seconds of --request-timeout as kubectl reads it: a number of seconds, or a duration; None for no text.

    Raises:
        BadParameter: the text is neither.
    """
    from dra_extender.cel.values.times import parse_go_duration

    if not text:
        return None
    try:
        seconds = (
            float(text) if text.isascii() and text.isdigit() else parse_go_duration(text[:_LONGEST_DURATION]) / 1e9
        )
    except ValueError:
        seconds = -1.0
    if seconds < 0 or len(text) > _LONGEST_DURATION:
        raise typer.BadParameter(
            f"--request-timeout: expected a duration such as 30s or 2m, or seconds, got {text[:_LONGEST_DURATION]!r}"
        )
    return min(seconds, _DAY) or _DAY
