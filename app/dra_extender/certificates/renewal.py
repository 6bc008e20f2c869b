"""Which certificates are due, and what the Secrets hold afterwards.

Three Secrets of the type kubernetes.io/tls: the authority; the service's certificate, with the authority of its callers;
kube-scheduler's certificate, with the authority of the service.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature

from dra_extender.certificates.issue import (
    KeyPair,
    as_written,
    is_authority,
    key_fits,
    names_in,
    new_authority,
    new_client_certificate,
    new_server_certificate,
    read_certificates,
)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
_DUE: Final = 3
"""A certificate is due when this part of its lifetime is left."""

SecretData = Mapping[str, bytes]


class Wanted(NamedTuple):
    """Whose certificates are wanted: the names and addresses of the service, and the common name of kube-scheduler."""

    names: Sequence[str]
    client: str


class Issued(NamedTuple):
    """What the three Secrets hold."""

    authority: SecretData
    server: SecretData
    client: SecretData


def renewed(
    authority: SecretData | None, server: SecretData | None, client: SecretData | None, wanted: Wanted, now: datetime
) -> Issued:
    """The data of the Secrets: what is stored, unless it is missing, unreadable, for others, or due.  A new authority renews all.

    Raises:
        ValueError: a name cannot be in a certificate.
    """
    kept = _kept(authority, None, now)
    if kept is None:
        kept = _data(new_authority("dra-extender", now, AUTHORITY_LIFETIME))
        server = client = None
    issuer = KeyPair(kept[CERTIFICATE], kept[KEY])
    bundle = {AUTHORITY: issuer.certificate}
    names = list(dict.fromkeys(map(as_written, wanted.names)))
    served = _kept(server, names, now, issuer) or _data(new_server_certificate(issuer, names, now, LIFETIME))
    called = _kept(client, [wanted.client], now, issuer) or _data(
        new_client_certificate(issuer, wanted.client, now, LIFETIME)
    )
    return Issued({**kept, **bundle}, {**served, **bundle}, {**called, **bundle})


def _kept(
    data: SecretData | None, names: Sequence[str] | None, now: datetime, issuer: KeyPair | None = None
) -> SecretData | None:
    """The certificate and key in a Secret, if they can still be used; None if new ones are needed.

    Without `issuer` it is an authority.
    """
    if not data or not data.get(CERTIFICATE) or not data.get(KEY):
        return None
    try:
        found = read_certificates(data[CERTIFICATE])[0]
        if issuer is not None:
            found.verify_directly_issued_by(read_certificates(issuer.certificate)[0])
        usable = key_fits(found, data[KEY]) and is_authority(found) == (issuer is None)
    except (ValueError, TypeError, InvalidSignature):
        return None
    lifetime = found.not_valid_after_utc - found.not_valid_before_utc
    due = found.not_valid_after_utc - now < lifetime / _DUE or now < found.not_valid_before_utc
    if due or not usable:
        return None
    if names is not None and names_in(found) != set(names):
        return None
    return {CERTIFICATE: data[CERTIFICATE], KEY: data[KEY]}


def _data(pair: KeyPair) -> SecretData:
    return {CERTIFICATE: pair.certificate, KEY: pair.key}
