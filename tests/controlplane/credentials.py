import base64
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

# Order of the P-256 group: a private key is a number between 1 and this, exclusive.
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# RFC 5915 ECPrivateKey without the optional public point: SEQUENCE { INTEGER 1, OCTET STRING of 32, [0] OID prime256v1 }.
EC_PRIVATE_KEY_HEAD = bytes.fromhex("30310201010420")
EC_PRIVATE_KEY_TAIL = bytes.fromhex("a00a06082a8648ce3d030107")


def write_signing_key(path: Path) -> Path:
    """Writes a fresh P-256 key (PEM) with which service account tokens are signed and verified.

    Go derives the public point from the private number, so no program beside the control plane has to know curves.
    """
    number = 1 + secrets.randbelow(P256_ORDER - 1)
    der = EC_PRIVATE_KEY_HEAD + number.to_bytes(32, "big") + EC_PRIVATE_KEY_TAIL
    body = base64.encodebytes(der).decode()
    return _write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n")


def write_tokens(path: Path, users: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Writes the API server's token file for users with their groups; returns {user: token}."""
    tokens = {user: secrets.token_hex(16) for user in users}
    lines = [
        f'{tokens[user]},{user},{number},"{",".join(groups)}"\n' for number, (user, groups) in enumerate(users.items())
    ]
    _write_secret(path, "".join(lines))
    return tokens


def _write_secret(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path
