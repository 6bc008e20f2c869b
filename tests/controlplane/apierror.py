from typing import Any


class ApiError(Exception):
    """The API server refused a request: `status` (HTTP), `reason` and `message` of its Status object."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        answer = body if isinstance(body, dict) else {"message": str(body)}
        self.method = method
        self.path = path
        self.status = status
        self.reason = str(answer.get("reason") or "")
        self.message = str(answer.get("message") or "")
        super().__init__(f"{method} {path}: {status} {self.reason}: {self.message}")
