"""The codes of findings about manifests and policies; findings about expressions have those of `cel`."""

from enum import StrEnum


class ManifestCode(StrEnum):
    """What is wrong with an object or a policy; the text names a finding in output and in expectations."""

    ASYMMETRIC = "asymmetric-rule"
    EVERY_DEVICE = "every-device"
    GROUPS = "groups"
    IMMUTABLE = "immutable"
    INVALID_FIELD = "invalid-field"
    NEVER_FITS = "never-fits"
    NOTHING_KNOWN = "nothing-known"
    NO_EFFECT = "no-effect"
    POLICY = "policy"
    POOL = "pool"
    SAME_ALTERNATIVE = "same-alternative"
    UNKNOWN_NAME = "unknown-name"
