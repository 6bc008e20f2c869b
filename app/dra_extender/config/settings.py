"""The settings of the service: command line over environment over file over defaults.

Environment variables are DRA_EXTENDER_ + group + __ + setting, e.g. DRA_EXTENDER_SERVER__PORT.  The double underscore keeps clear
of the variables that Kubernetes sets in every pod for a Service named dra-extender (DRA_EXTENDER_PORT and others).
"""

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from dra_extender.config.scheduling_settings import FeatureSettings, SchedulingSettings
from dra_extender.config.service_settings import (
    AuditSettings,
    ClusterSettings,
    LeaderElectionSettings,
    LogSettings,
    MetricsAccess,
    MetricsSettings,
    ProbeSettings,
    ServerSettings,
    TlsSettings,
    TracingSettings,
    is_loopback,
)
from dra_extender.manifests.documents import YamlError, read_yaml
from dra_extender.manifests.files import STDIN
from dra_extender.manifests.problems import SETTING_TYPES, FieldProblem, sentence_of

ENV_PREFIX: Final = "DRA_EXTENDER_"
_DELIMITER: Final = "__"
_LOCALHOST: Final = "localhost"
_COMMAND_LINE: Final = "command line"
_REMOVED_GROUPS: Final = {"recording": " any more: the service makes no recordings; `dra-extender snapshot` stays"}
_OF_THE_TESTS: Final = f"{ENV_PREFIX}CACHE"
"""Where the tests keep the programs that they build; the service runs beside it."""
_OF_A_SERVICE: Final = re.compile(
    r"SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?"
)
"""How the variables end, or are called whole, that Kubernetes sets in a pod for each Service."""
_ADDRESS: Final = re.compile("(?:tcp|udp|sctp)://")
_RENAMED: Final[Mapping[tuple[int | str, ...], str]] = {
    ("cluster", "patience_seconds"): "startup_timeout_seconds",
    ("scheduling", "device_cool_down_seconds"): "device_backoff_seconds",
    ("scheduling", "remembered_answers"): "result_cache_entries",
    ("scheduling", "settle_wait_seconds"): "hold_wait_seconds",
}
"""Settings that have another name in the same group now."""


class InvalidSettingsError(ValueError):
    """A setting cannot be used; the message names each such setting, its source, and what was expected."""


class Settings(BaseSettings):
    """All settings of the service.  Constructing it reads no environment; `load_settings` does."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENV_PREFIX, env_nested_delimiter=_DELIMITER
    )

    server: ServerSettings = ServerSettings()
    probes: ProbeSettings = ProbeSettings()
    tls: TlsSettings = TlsSettings()
    cluster: ClusterSettings = ClusterSettings()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    features: FeatureSettings = FeatureSettings()
    audit: AuditSettings = AuditSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the hook's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(file: Path | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
    """Load the settings in force; `flags` (group -> setting -> value) win over the environment, which wins over the YAML file.

    Raises:
        InvalidSettingsError: the file cannot be read, or a setting is unknown or out of bounds; the message names each
            with its source and what was expected.
    """
    file_source = _file_title(file) if file else ""
    layers = (
        (_COMMAND_LINE, flags or {}),
        (ENV_PREFIX, _from_environment()),
        (file_source, _from_file(file) if file else {}),
    )
    values: dict[str, Any] = {}
    for _, layer in reversed(layers):
        values = _merged(values, layer)
    try:
        settings = Settings(**values)
    except ValidationError as invalid:
        problems = [_problem(error, layers) for error in invalid.errors()]
        raise InvalidSettingsError("; ".join(map(str, problems))) from invalid
    problem = _listener_problem(settings)
    if problem:
        raise InvalidSettingsError(problem)
    return settings


def _listener_problem(settings: Settings) -> str:
    """Return why the listeners cannot be used this way; empty if they can."""
    server, probes, tls = settings.server, settings.probes, settings.tls
    if tls.serves_verbs and probes.port is None:
        return "setting probes.port: expected a port, because kubelet's probes have no certificate for the port of the verbs"
    if tls.serves_verbs and server.plain_http:
        return "setting server.plain_http: expected false, because tls.client_ca_file is set: the verbs are served over TLS"
    if not (tls.serves_verbs or server.plain_http or server.host == _LOCALHOST or is_loopback(server.host)):
        return (
            f"setting server.host: expected a loopback address, got {server.host!r}: a caller that reaches the verbs can bind "
            "pods; set tls.client_ca_file, tls.cert_file and tls.private_key_file to serve them over TLS only to kube-scheduler, "
            "or server.plain_http to serve them to all"
        )
    if probes.metrics is MetricsAccess.AUTHORIZED and (tls.cert_file is None or probes.port is None):
        return (
            "setting probes.metrics: authorized needs probes.port, tls.cert_file and tls.private_key_file: a token is not "
            "sent over plain HTTP"
        )
    return ""


def unknown_variable(name: str, value: str) -> str:
    """Return a sentence about an environment variable that looks like a setting of ours and is none; empty for all others."""
    setting = name.upper().removeprefix(ENV_PREFIX)
    group, delimiter, _ = setting.partition(_DELIMITER)
    if not name.upper().startswith(ENV_PREFIX) or group.lower() in Settings.model_fields or name == _OF_THE_TESTS:
        return ""
    if delimiter:
        return f"environment variable {name}: {_unknown_group(group.lower())}"
    if _of_a_service(setting, value):
        return ""
    variables = {variable.replace(_DELIMITER, "_"): variable for variable in _variables()}
    close = difflib.get_close_matches(setting, variables, n=1, cutoff=0.8)
    hint = (
        f"did you mean {ENV_PREFIX}{variables[close[0]]}?"
        if close
        else f"a setting is {ENV_PREFIX}GROUP{_DELIMITER}NAME"
    )
    return f"environment variable {name}: there is no such setting; {hint}"


def _of_a_service(setting: str, value: str) -> bool:
    """Return whether Kubernetes sets the variable for a Service whose name begins like ours: DRA_EXTENDER_METRICS_SERVICE_HOST, DRA_EXTENDER_PORT=tcp://..."""
    if setting == "PORT" or setting.endswith("_PORT"):
        return bool(_ADDRESS.match(value)) or setting.endswith("SERVICE_PORT") or bool(_OF_A_SERVICE.search(setting))
    return _OF_A_SERVICE.search(setting) is not None


def _variables() -> Iterator[str]:
    """Return what stands behind the prefix in the variable of each setting."""
    for group in Settings.model_fields:
        for name in type(getattr(Settings(), group)).model_fields:
            yield f"{group}{_DELIMITER}{name}".upper()


def _from_environment() -> Mapping[str, Any]:
    unknown = [message for name, value in sorted(os.environ.items()) if (message := unknown_variable(name, value))]
    if unknown:
        raise InvalidSettingsError("; ".join(unknown))
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as problem:
        group = str(problem).partition('field "')[2].partition('"')[0]
        raise InvalidSettingsError(
            f"environment variable {ENV_PREFIX}{group.upper()}: expected a JSON object with the settings of the group"
        ) from problem


def _file_title(file: Path) -> str:
    return "settings in standard input" if file == STDIN else f"settings file {file}"


def _from_file(path: Path) -> Mapping[str, Any]:
    source = _file_title(path)
    try:
        documents = read_yaml(path)
    except OSError as problem:
        raise InvalidSettingsError(f"{source}: {problem.strerror}") from problem
    except YamlError as problem:
        raise InvalidSettingsError(f"{source}: {problem}") from problem
    if not documents:
        return {}
    if len(documents) > 1:
        raise InvalidSettingsError(f"{source}: expected YAML: one document, found {len(documents)}")
    loaded = documents[0]
    if not isinstance(loaded, dict):
        raise InvalidSettingsError(f"{source}: expected a mapping of groups; {_groups()}")
    for key in loaded:
        if key not in Settings.model_fields:
            raise InvalidSettingsError(f"{source}: {_unknown_group(key)}")
    return {key: {} if value is None else value for key, value in loaded.items()}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _problem(error: ErrorDetails, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> FieldProblem:
    location = error["loc"]
    name = f"setting {'.'.join(map(str, location))}"
    if error["type"] == "extra_forbidden":
        new = _RENAMED.get(location)
        return FieldProblem(name, f"is called {location[0]}.{new} now" if new else "", _source(location, layers))
    return FieldProblem(name, sentence_of(error, SETTING_TYPES, repr), _source(location, layers))


def _source(location: tuple[int | str, ...], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return where a setting comes from, or settings of a group: an environment variable, a file, the command line.

    The first layer wins that has it; a group may be put together from several.
    """
    sources = [source for source, values in layers if _has(values, location)]
    if len(location) > 1:
        sources = sources[:1]
    variable = ENV_PREFIX + _DELIMITER.join(str(part).upper() for part in location)
    return ", ".join(variable if source == ENV_PREFIX else source for source in sources) or variable


def _has(values: Any, location: tuple[int | str, ...]) -> bool:
    for part in location[:2]:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _unknown_group(name: str) -> str:
    return f"there is no group {name!r}{_REMOVED_GROUPS.get(name, '')}; {_groups()}"


def _groups() -> str:
    return f"the groups are {', '.join(Settings.model_fields)}"
