"""The settings of the service: command line over environment over file over defaults.

Environment variables are DRA_EXTENDER_ + group + __ + setting, e.g. DRA_EXTENDER_SERVER__PORT.  The double underscore keeps clear
of the variables that Kubernetes sets in every pod for a Service named dra-extender (DRA_EXTENDER_PORT and others).
"""

import os
from collections.abc import Mapping, Sequence
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

from dra_extender.config.listener_settings import ProbeSettings, TlsSettings, problem_of
from dra_extender.config.scheduling_settings import FeatureSettings, SchedulingSettings
from dra_extender.config.service_settings import (
    AuditSettings,
    ClusterSettings,
    LeaderElectionSettings,
    LogSettings,
    MetricsSettings,
    RecordingSettings,
    ServerSettings,
)
from dra_extender.manifests.documents import YamlError, read_yaml
from dra_extender.manifests.problems import FieldProblem, sentence_of

ENV_PREFIX: Final = "DRA_EXTENDER_"
_DELIMITER: Final = "__"
_COMMAND_LINE: Final = "command line"


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
    recording: RecordingSettings = RecordingSettings()
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
        """What is passed, and nothing else."""
        return (init_settings,)


def load_settings(file: Path | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
    """The settings in force; `flags` (group -> setting -> value) win over the environment, which wins over the YAML file.

    Raises:
        InvalidSettingsError: the file cannot be read, or a setting is unknown or out of bounds; the message names each
            with its source and what was expected.
    """
    file_source = f"settings file {file}"
    layers = (
        (_COMMAND_LINE, flags or {}),
        (ENV_PREFIX, _from_environment()),
        (file_source, _from_file(file) if file else {}),
    )
    given: dict[str, Any] = {}
    for _, layer in reversed(layers):
        given = _merged(given, layer)
    try:
        settings = Settings(**given)
    except ValidationError as invalid:
        problems = [_problem(each, layers) for each in invalid.errors()]
        raise InvalidSettingsError("; ".join(map(str, problems))) from invalid
    server = settings.server
    problem = problem_of(server.host, plain_http=server.plain_http, probes=settings.probes, tls=settings.tls)
    if problem:
        raise InvalidSettingsError(problem)
    return settings


def _from_environment() -> Mapping[str, Any]:
    for name in os.environ:
        group, delimiter, _ = name.upper().removeprefix(ENV_PREFIX).partition(_DELIMITER)
        if name.upper().startswith(ENV_PREFIX) and delimiter and group.lower() not in Settings.model_fields:
            raise InvalidSettingsError(f"environment variable {name}: there is no group {group.lower()!r}; {_groups()}")
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as problem:
        raise InvalidSettingsError(
            f"environment variables {ENV_PREFIX}*: {problem}; expected JSON for a whole group"
        ) from problem


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        documents = read_yaml(path)
    except OSError as problem:
        raise InvalidSettingsError(f"settings file {path}: {problem.strerror}") from problem
    except YamlError as problem:
        raise InvalidSettingsError(f"settings file {path}: {problem}") from problem
    if not documents:
        return {}
    if len(documents) > 1:
        raise InvalidSettingsError(f"settings file {path}: expected YAML: one document, found {len(documents)}")
    loaded = documents[0]
    if not isinstance(loaded, dict):
        raise InvalidSettingsError(f"settings file {path}: expected a mapping of groups; {_groups()}")
    for key in loaded:
        if key not in Settings.model_fields:
            raise InvalidSettingsError(f"settings file {path}: there is no group {key!r}; {_groups()}")
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
        return FieldProblem(name, "", _source(location, layers))
    return FieldProblem(name, sentence_of(error, {}, repr), _source(location, layers))


def _source(location: tuple[int | str, ...], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Where a setting comes from, or settings of a group: an environment variable, a file, the command line.

    The first layer wins that has it; a group may be put together from several.
    """
    found = [source for source, values in layers if _has(values, location)]
    if len(location) > 1:
        found = found[:1]
    variable = ENV_PREFIX + _DELIMITER.join(str(part).upper() for part in location)
    return ", ".join(variable if each == ENV_PREFIX else each for each in found) or variable


def _has(values: Any, location: tuple[int | str, ...]) -> bool:
    for part in location[:2]:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _groups() -> str:
    return f"the groups are {', '.join(Settings.model_fields)}"
