import msgspec


class ManifestProblem(msgspec.Struct, frozen=True):
    """Something wrong in a manifest: where, in which object and field, and what was expected.

    A warning does not keep the file from being applied.
    """

    file: str
    line: int
    subject: str
    field: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else ""
        parts = (place, self.subject, self.field, self.text)
        return ": ".join(part for part in parts if part)


class ManifestError(ValueError):
    """Manifests that cannot be applied; `problems` lists everything that was found, in file order, warnings too."""

    def __init__(self, problems: list[ManifestProblem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems if not problem.warning))

    @classmethod
    def saying(cls, text: str) -> "ManifestError":
        """One sentence that concerns no place in a file."""
        return cls([ManifestProblem("", 0, "", "", text)])
