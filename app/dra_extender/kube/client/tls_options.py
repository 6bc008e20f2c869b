"""The options of kubectl about TLS, put on a configuration of the client after its kubeconfig is read."""

import ssl
from pathlib import Path

from kubernetes.aio.client import Configuration

from dra_extender.kube.client.settings import TlsOptions

_MISMATCH = "KEY_VALUES_MISMATCH"


class TlsOptionError(ValueError):
    """A file that an option names and that cannot be used; the message names the option and the file."""


def use_tls_options(configuration: Configuration, options: TlsOptions) -> None:
    """Put the options that are given in the place of what the configuration says.

    Raises:
        TlsOptionError: a file cannot be read or is no PEM, or a certificate and its key are not together.
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
        raise TlsOptionError(f"--client-key {options.key}: needs --client-certificate")
    if not configuration.key_file:
        raise TlsOptionError(f"--client-certificate {options.certificate}: needs --client-key")
    key = "the client key of the kubeconfig" if options.key is None else f"--client-key {options.key}"
    try:
        # With a password, if an empty one, nobody is asked for that of an encrypted key.
        _empty_context().load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError as problem:
        if problem.reason == _MISMATCH:
            raise TlsOptionError(f"{key}: does not belong to the client certificate") from problem
        raise TlsOptionError(f"{key}: expected a private key in PEM, without a passphrase") from problem


def _check_certificates(option: str, file: Path) -> None:
    _check_readable(option, file)
    try:
        _empty_context().load_verify_locations(file)
    except ssl.SSLError as problem:
        raise TlsOptionError(f"{option} {file}: expected certificates in PEM") from problem


def _check_readable(option: str, file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as problem:
        raise TlsOptionError(f"{option} {file}: cannot be read: {problem.strerror}") from problem


def _empty_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
