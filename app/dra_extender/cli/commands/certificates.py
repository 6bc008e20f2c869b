from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import CommandError, ExitStatus

if TYPE_CHECKING:
    from dra_extender.kube.secret_store import SecretStore
    from dra_extender.service.certificate_issuer import CertificateSubjects

_CLIENT: Final = "system:kube-scheduler"

EXAMPLES: Final = (
    "PROGRAM certificates --name dra-extender.dra-extender.svc",
    "PROGRAM certificates --name 10.0.0.7 --namespace gpu-scheduler",
)


def command(
    name: Annotated[
        list[str],
        typer.Option(
            "--name",
            metavar="NAME",
            help="A DNS name or address by which kube-scheduler calls the service; may be repeated.",
            show_default=False,
        ),
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the Secrets.")
    ] = "dra-extender",
    prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="The Secrets are PREFIX-ca, PREFIX-tls and PREFIX-client.")
    ] = "dra-extender",
    client_name: Annotated[
        str, typer.Option("--client-name", metavar="NAME", help="Common name of kube-scheduler's certificate.")
    ] = _CLIENT,
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Default: $KUBECONFIG, else the pod's service account, else ~/.kube/config."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current context.")
    ] = None,
) -> None:
    """Make or renew the certificates for the verbs, and keep them in Secrets.

    What can still be used is kept: a certificate is renewed when a third of its lifetime is left, or when the names are others.
    The authority lasts ten years.
    """
    from pathlib import Path

    from dra_extender.runtime.installation import is_installed, run_in_new_loop

    if not is_installed("cryptography"):
        raise CommandError("cryptography is not installed here, which makes certificates", ExitStatus.UNKNOWN)
    from dra_extender.kube.client.credentials import ConfigurationError
    from dra_extender.kube.client.settings import KubeSettings
    from dra_extender.kube.secret_store import SecretStore
    from dra_extender.scheduling.ports.cluster import ClusterError
    from dra_extender.service.certificate_issuer import CertificateSubjects

    settings = KubeSettings(kubeconfig=Path(kubeconfig) if kubeconfig else None, context=context)
    try:
        changed = run_in_new_loop(
            _renew(SecretStore(settings, namespace), prefix, CertificateSubjects(name, client_name))
        )
    except (ConfigurationError, ClusterError, ValueError) as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem
    for secret, new in changed.items():
        typer.echo(f"Secret {namespace}/{secret}: {'written' if new else 'unchanged'}")


async def _renew(store: "SecretStore", prefix: str, subjects: "CertificateSubjects") -> dict[str, bool]:
    """Write the Secrets that change; return by name whether the Secret changed."""
    from datetime import UTC, datetime

    from dra_extender.service.certificate_issuer import renewed

    names = (f"{prefix}-ca", f"{prefix}-tls", f"{prefix}-client")
    await store.connect()
    try:
        stored = [await store.read(name) for name in names]
        authority, server, client = (secret.data if secret else None for secret in stored)
        issued = renewed(authority, server, client, subjects, datetime.now(UTC))
        changed = {}
        for secret, before, data in zip(names, stored, issued, strict=True):
            changed[secret] = before is None or before.data != data
            if changed[secret]:
                await store.write(secret, data, before)
        return changed
    finally:
        await store.close()
