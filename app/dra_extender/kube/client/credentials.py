"""Where the API server is and who asks: kubeconfig, service account or options."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import yaml

from dra_extender.kube.client.kubeconfig import ACCOUNT_ITSELF, Impersonation, choose, login_errors, merged
from dra_extender.kube.client.library import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    ConfigException,
    Configuration,
    InClusterConfigLoader,
    load_kube_config_from_dict,
)
from dra_extender.kube.client.settings import KubeSettings, TlsOptions
from dra_extender.scheduling.ports.cluster import Clock

RENEW_SECONDS = 60.0
# A login program may ask a remote service, or wait for a person who is not there.
LOAD_SECONDS = 30.0
# A refused token is read again at once; this limits login programs where the server refuses every token.
SHORTEST_RENEW_SECONDS = 5.0
_DEFAULT_NAMESPACE = "default"
_BEARER: Final = "BearerToken"
_MISMATCH = "KEY_VALUES_MISMATCH"

_LOG = structlog.get_logger(__name__)
_PROBLEMS = (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError)


class ConfigurationError(Exception):
    """No usable way to reach an API server; the message is a sentence for the administrator."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """Where a pod finds its service account."""

    token: Path = Path(SERVICE_TOKEN_FILENAME)
    certificate: Path = Path(SERVICE_CERT_FILENAME)

    @property
    def namespace(self) -> str:
        """The namespace of the pod, `default` if its file cannot be read."""
        try:
            return self.token.with_name("namespace").read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
        except OSError:
            return _DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom and from where a client asks: the context of the kubeconfig, its namespace, and in whose name.

    `context` is empty in a pod.  `instead` says what was named in the place of what the context has.
    """

    context: str = ""
    namespace: str = "default"
    impersonation: Impersonation = ACCOUNT_ITSELF
    instead: tuple[str, ...] = ()


class Credentials:
    """The client's configuration, and a token that is kept fresh: it is loaded again from where it came from.

    That covers projected service account tokens, token files, edited kubeconfigs, exec plugins and identity providers.
    Certificates (of the authority and of the client) are read once.
    """

    def __init__(
        self,
        source: str,
        configuration: Configuration,
        load: Callable[[], Awaitable[Configuration]],
        clock: Clock,
        identity: Identity | None = None,
    ) -> None:
        self.source = source
        self.identity = identity or Identity()
        self.configuration = configuration
        self.last_error: str | None = None
        self._load = load
        self._clock = clock
        self._renewed = clock.monotonic()
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers by which a request is known."""
        setting = (await self.configuration.auth_settings()).get(_BEARER)
        # A token file may end with a line break, which no header may contain.
        return {"Authorization": str(setting["value"]).strip()} if setting and setting["value"] else {}

    def hidden(self, data: bytes) -> bytes:
        """Return what a server sent without the token, which it may repeat, and which no message may show."""
        for value in self.configuration.api_key.values():
            token = value.strip().rpartition(" ")[2].encode()
            data = data.replace(token, b"<token>") if token else data
        return data

    async def renew(self) -> bool:
        """Load the token again unless that was done a moment ago; whether it is another one now.  Never raises."""
        before = dict(self.configuration.api_key)
        async with self._lock:
            if self.configuration.api_key != before:
                return True
            if self._clock.monotonic() - self._renewed < SHORTEST_RENEW_SECONDS:
                return False
            self._renewed = self._clock.monotonic()
            try:
                loaded = await self._load()
            except ConfigurationError as problem:
                self._report(str(problem))
                return False
            if before and not loaded.api_key:
                self._report(f"{self.source} yields no token any more; the last one is kept")
                return False
            self.last_error = None
            self.configuration.api_key = dict(loaded.api_key)
            return bool(loaded.api_key != before)

    async def keep_fresh(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Renew every minute until cancelled."""
        while True:
            await sleep(RENEW_SECONDS)
            await self.renew()

    def _report(self, problem: str) -> None:
        if problem != self.last_error:
            _LOG.warning("token was not renewed", problem=problem)
        self.last_error = problem


async def find_credentials(
    settings: KubeSettings,
    clock: Clock,
    *,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    account: ServiceAccount | None = None,
) -> Credentials:
    """Load credentials from the given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises:
        ConfigurationError: none of them is there, or the first of them is not usable.
    """
    default = (home or Path.home()) / ".kube" / "config"
    if settings.kubeconfig is not None:
        return await _from_file(str(settings.kubeconfig), settings, clock)
    if environ.get("KUBECONFIG"):
        return await _from_file(environ["KUBECONFIG"], settings, clock)
    # The token of a pod goes to the server of its own cluster, and to no other.
    if environ.get(SERVICE_HOST_ENV_NAME) and not (settings.server or settings.cluster or settings.user):
        return await _in_cluster(settings, environ, account or ServiceAccount(), clock)
    if default.exists():
        return await _from_file(str(default), settings, clock)
    if settings.server:

        async def read(configuration: Configuration) -> None:
            configuration.host = settings.server
            _use_token(configuration, settings)

        return await _load_credentials("no kubeconfig", settings, clock, Identity(instead=_overrides(settings)), read)
    raise ConfigurationError(
        f"No API server is configured: no kubeconfig was given, KUBECONFIG is not set, {SERVICE_HOST_ENV_NAME} is not set "
        f"(so this is not a pod), and {default} does not exist."
    )


async def _from_file(path: str, settings: KubeSettings, clock: Clock) -> Credentials:
    source = f"kubeconfig {path}"
    _require_file(path, source)
    try:
        choice = choose(path, settings)
    except _PROBLEMS as problem:
        raise ConfigurationError(f"The {source} cannot be used: {_problem_text(problem)}.") from problem
    identity = Identity(choice.context, choice.namespace, choice.impersonation, _overrides(settings))

    async def read(configuration: Configuration) -> None:
        _require_file(path, source)
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                with login_errors() as errors:
                    config, context = merged(path, choice, settings)
                    await load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # the library has no annotations here
                        config, context=context, client_configuration=configuration
                    )
        except TimeoutError as problem:
            raise ConfigurationError(f"The {source} cannot be used: no login within {LOAD_SECONDS:g} s.") from problem
        except _PROBLEMS as problem:
            raise ConfigurationError(f"The {source} cannot be used: {_problem_text(problem)}.") from problem
        if choice.logs_in and not configuration.api_key and not configuration.cert_file:
            reason = " ".join(" ".join(errors).split()).rstrip(".") or "neither a token nor a certificate"
            raise ConfigurationError(f"The {source} cannot be used: its login program gave no credentials: {reason}.")

    return await _load_credentials(source, settings, clock, identity, read)


async def _in_cluster(
    settings: KubeSettings, environ: Mapping[str, str], account: ServiceAccount, clock: Clock
) -> Credentials:
    async def read(configuration: Configuration) -> None:
        # Tokens of both sources are renewed the same way, so the loader's own way is off.
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]  # as above
            token_filename=str(account.token),
            cert_filename=str(account.certificate),
            try_refresh_token=False,
            environ=environ,
        )
        try:
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]  # as above
        except _PROBLEMS as problem:
            raise ConfigurationError(
                f"The service account of this pod cannot be used (token {account.token}, authority {account.certificate}): "
                f"{_problem_text(problem)}."
            ) from problem
        _use_token(configuration, settings)

    identity = Identity(namespace=account.namespace, instead=_overrides(settings))
    return await _load_credentials("the service account of this pod", settings, clock, identity, read)


async def _load_credentials(
    source: str,
    settings: KubeSettings,
    clock: Clock,
    identity: Identity,
    read: Callable[[Configuration], Awaitable[None]],
) -> Credentials:
    """Return the credentials that `read` puts into a configuration; the options about TLS take precedence."""

    async def load() -> Configuration:
        # Not the library's process-wide default: two clusters may be in use at once.
        configuration = Configuration(connection_pool_maxsize=settings.connections)
        await read(configuration)
        _use_tls_options(configuration, settings.tls)
        return configuration

    return Credentials(source, await load(), load, clock, identity)


def _use_token(configuration: Configuration, settings: KubeSettings) -> None:
    if settings.token:
        configuration.api_key = {_BEARER: f"Bearer {settings.token}"}


def _overrides(settings: KubeSettings) -> tuple[str, ...]:
    tls = settings.tls
    names = {
        "cluster": settings.cluster,
        "user": settings.user,
        "server": settings.server,
        "authority": tls.authority,
        "TLS server name": tls.server_name,
        "client certificate": tls.certificate,
        "client key": tls.key,
    }
    named = (f"{field} {name}" for field, name in names.items() if name)
    insecure = ("the server's certificate not checked",) if tls.insecure else ()
    return (*named, *insecure, *(("the given token",) if settings.token else ()))


def _require_file(paths: str, source: str) -> None:
    """Raise ConfigurationError if none of the paths is a file.  A pipe is none, because the file is read more than once."""
    named = [Path(part).expanduser() for part in paths.split(os.pathsep) if part]
    if not any(path.is_file() for path in named):
        problem = "is no regular file" if any(path.exists() for path in named) else "does not exist"
        raise ConfigurationError(f"The {source} {problem}.")


def _problem_text(problem: BaseException) -> str:
    text = " ".join(str(problem).split()).rstrip(".")
    return text or type(problem).__name__


def _use_tls_options(configuration: Configuration, options: TlsOptions) -> None:
    """Put the options that are given in the place of what the configuration says.

    Raises:
        ConfigurationError: a file cannot be read or is no PEM, or a certificate and its key are not together.
    """
    if options.authority is not None:
        _check_certificates("--certificate-authority", options.authority)
    if options.authority is not None or options.insecure:
        configuration.ssl_ca_cert = None if options.authority is None else str(options.authority)
        configuration.verify_ssl = not options.insecure
    configuration.tls_server_name = options.server_name or configuration.tls_server_name
    if options.certificate is not None:
        _check_certificates("--client-certificate", options.certificate)
        configuration.cert_file = str(options.certificate)
    if options.key is not None:
        _check_readable("--client-key", options.key)
        configuration.key_file = str(options.key)
    if options.certificate is not None or options.key is not None:
        _check_pair(configuration, options)


def _check_pair(configuration: Configuration, options: TlsOptions) -> None:
    """Refuse a certificate without its key, and a key without its certificate, whichever of both an option names."""
    if not configuration.cert_file:
        raise ConfigurationError(f"--client-key {options.key}: needs --client-certificate.")
    if not configuration.key_file:
        raise ConfigurationError(f"--client-certificate {options.certificate}: needs --client-key.")
    key = "the client key of the kubeconfig" if options.key is None else f"--client-key {options.key}"
    try:
        # With a password, if an empty one, nobody is asked for that of an encrypted key.
        _empty_context().load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError as problem:
        if problem.reason == _MISMATCH:
            raise ConfigurationError(f"{key}: does not belong to the client certificate.") from problem
        raise ConfigurationError(f"{key}: expected a private key in PEM, without a passphrase.") from problem


def _check_certificates(option: str, file: Path) -> None:
    _check_readable(option, file)
    try:
        _empty_context().load_verify_locations(file)
    except ssl.SSLError as problem:
        raise ConfigurationError(f"{option} {file}: expected certificates in PEM.") from problem


def _check_readable(option: str, file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as problem:
        raise ConfigurationError(f"{option} {file}: cannot be read: {problem.strerror}.") from problem


def _empty_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
