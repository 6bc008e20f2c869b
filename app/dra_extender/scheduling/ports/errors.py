"""Why the use cases answer a call with an error; the HTTP side turns it into the `Error` of the extender protocol."""


class RetryableError(Exception):
    """The question cannot be answered now; the message becomes the protocol's `Error`, and kube-scheduler tries the pod again.

    Whatever a verb calls may raise it: when the API server refuses a call, or what is read, written or decided is out of date.  It
    is never a reason to call a pod unschedulable.
    """


class ClaimReleasedError(RetryableError):
    """The pod's devices, or some of them, were released: it is not going to that node any more."""
