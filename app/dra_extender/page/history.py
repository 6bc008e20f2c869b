"""The last hour of a followed cluster, in memory: how full it was, and how many pods waited."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

KEPT_SECONDS: Final = 3_600.0
MOST_POINTS: Final = 120
_SPACING: Final = KEPT_SECONDS / MOST_POINTS


class Point(NamedTuple):
    """A moment (seconds since the epoch): the percentage of devices that are in use, and the pods that wait; None if not known."""

    at: float
    in_use: float | None
    waiting: int | None


class History:
    """At most MOST_POINTS points of the last hour.  Points within half a minute are one, with the newest values."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)

    def add(self, point: Point) -> None:
        points = self._points
        if points and point.at - points[-1].at < _SPACING:
            points[-1] = point._replace(at=points[-1].at)
        else:
            points.append(point)
        while points[0].at < point.at - KEPT_SECONDS:
            points.popleft()

    def points(self) -> Sequence[Point]:
        return tuple(self._points)


class Line(NamedTuple):
    """A small line: its corners in a picture of WIDTH x HEIGHT, and what it says in words.  The newest value is the last."""

    corners: Sequence[tuple[float, float]]
    seconds: float
    minimum: float
    maximum: float
    last: float


WIDTH: Final = 120
HEIGHT: Final = 24


def line(values: Sequence[tuple[float, float | None]], now: float, top: float = 0.0) -> Line | None:
    """Return the line of values at moments, which stay as they are until the next; None where there are not two.

    Args:
        values: Moments (seconds since the epoch) with values; those without are left out.
        now: Where the line ends.
        top: The greatest value that the picture has room for, if none of the values is greater.
    """
    points = [(at, value) for at, value in values if value is not None]
    if len(points) <= 1:
        return None
    begin, numbers = points[0][0], [value for _, value in points]
    width, height = max(1.0, now - begin), max(top, *numbers, 1.0)
    corners = []
    ends = [at for at, _ in points[1:]] + [now]
    for (at, value), end in zip(points, ends, strict=True):
        y = round(HEIGHT - HEIGHT * value / height, 1)
        corners += [(_x(at - begin, width), y), (_x(end - begin, width), y)]
    return Line(corners, now - begin, min(numbers), max(numbers), numbers[-1])


def _x(seconds: float, width: float) -> float:
    return round(min(WIDTH, max(0.0, WIDTH * seconds / width)), 1)
