import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import ExitStatus, ended

if TYPE_CHECKING:
    from dra_extender.recording.replay_report import ReplayReport

_MOST_SHOWN: Final = 20


def command(file: Annotated[Path, typer.Argument(help="The recording, from the setting recording.file.")]) -> None:
    """Play a recording again through the ledger and the use cases, and compare the answers byte by byte.

    Three kinds of answers are counted and not compared: those to a call that was malformed or failed, those that differ because a
    search was ended by its time, and those in the last step of a recording that was cut off.

    Exit status: 0 all answers are equal; 1 some differ; 2 the file is no recording.
    """
    from dra_extender.model.api_json import printable
    from dra_extender.recording.recorder import RecordingFileError
    from dra_extender.recording.recording_file import read_recording
    from dra_extender.recording.replay import replay
    from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

    configure_logging(LogFormat.TEXT, LogLevel.ERROR)
    try:
        report = replay(read_recording(file))
    except RecordingFileError as problem:
        raise ended(problem, ExitStatus.UNKNOWN) from problem
    sys.stdout.write("\n".join(map(printable, _lines(report))) + "\n")
    if not report.is_equal:
        raise typer.Exit(ExitStatus.NEGATIVE)


def _lines(report: "ReplayReport") -> Iterator[str]:
    yield f"the recording has {report.records} records of {report.seconds:.1f} s; {_end(report.ended)}"
    equal = ", ".join(f"{count} {verb}" for verb, count in sorted(report.equal.items())) or "none"
    stops = f"; searches of {report.time_stops} were ended by their time" if report.time_stops else ""
    yield f"equal answers: {equal}{stops}"
    for why, count in sorted(report.excepted.items()):
        yield f"not compared: {count} ({why})"
    yield f"requests to the cluster: {report.requests}, {len(report.other_requests)} others than recorded"
    for request in report.other_requests[:_MOST_SHOWN]:
        yield f"  {request.at:.3f} s  {request.method} {request.of}"
        yield f"    recorded {request.recorded}"
        yield f"    replayed {request.replayed}"
    if report.departure:
        yield f"the replay first does something else than the recording {report.departure}"
    yield f"different answers: {len(report.different)}"
    for each in report.different[:_MOST_SHOWN]:
        yield f"  {each.at:.3f} s  call {each.number}, {each.verb}"
        yield f"    recorded {each.recorded}"
        yield f"    replayed {each.replayed}"


def _end(ended: str | None) -> str:
    return (
        f"it ends because {ended}" if ended else "it is cut off: the process was killed, or part of the file is missing"
    )
