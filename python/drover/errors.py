"""The errors of the library."""


class Error(RuntimeError):
    """Something that you can fix: one sentence of cause, one of remedy."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(f"{cause} {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy


class UsageError(Error, ValueError):
    """An argument is unknown or has a wrong value, or arguments contradict each other."""
