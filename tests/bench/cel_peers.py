"""Runs in the environment of requirements-bench.lock, which knows nothing of us: times CEL libraries on selectors.

Reads {"selectors": {name: text}, "seconds": per measurement} from standard input, and prints {name: {library: [seconds per
evaluation, seconds per compilation]}}. A library that cannot answer a selector, or answers other than true, is left out.

Quantities and versions are bound as they have to be for the verdicts of Kubernetes. cel-expr-python takes no values of types
of our own, so they come as lists of numbers and as texts of the same order, made once for the device, and functions make
them of what a selector writes; those keep what they have read.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

DEVICE: dict[str, Any] = {
    "driver": "gpu.nvidia.com",
    "attributes": {
        "gpu.nvidia.com": {
            "type": "gpu",
            "productName": "NVIDIA A100-SXM4-40GB",
            "brand": "Nvidia",
            "architecture": "Ampere",
            "index": 3,
            "minor": 3,
            "uuid": "GPU-1",
            "healthy": True,
            "driverVersion": "550.54.15",
            "cudaVersion": "12.4.0",
        }
    },
    "capacity": {"gpu.nvidia.com": {"memory": "40Gi"}},
}


DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
QUANTITY = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,3})")
NUMBER = "(0|[1-9][0-9]*)"
SEMVER = re.compile(rf"{NUMBER}\.{NUMBER}\.{NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


@lru_cache(maxsize=1024)
def amount(text: str) -> list[int]:
    """A quantity as units and nano units: in nano units alone, 10Gi is no 64-bit integer any more.

    Raises:
        ValueError: It is none.
    """
    found = QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"no quantity: {text}")
    sign, whole, fraction, suffix = found.groups()
    digits, power = int(f"0{whole}{fraction}"), 9 - len(fraction)
    if suffix in BINARY:
        digits <<= BINARY[suffix]
    else:
        power += DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    nano = digits * 10**power if power >= 0 else -(-digits // 10**-power)
    return [*divmod(-nano if sign == "-" else nano, 10**9)]


@lru_cache(maxsize=1024)
def version(text: str) -> str:
    """A semantic version as a text whose order is that of versions, which are neither numbers nor ordered as they are written.

    Raises:
        ValueError: It is none.
    """
    found = SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(f"no version: {text}")
    *parts, early = found.groups()
    key = ".".join(part.zfill(20) for part in parts)
    if early is None:
        return f"{key}~"
    return key + "".join(f" 0{each.zfill(20)}" if each.isdigit() else f" 1{each}" for each in early.split("."))


def compare(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def prepared() -> dict[str, Any]:
    """The device with its quantity and its versions in the forms above, parsed once, as we do it, too."""
    attributes = DEVICE["attributes"]["gpu.nvidia.com"]
    versions = {name: version(attributes[name]) for name in ("driverVersion", "cudaVersion")}
    capacity = {"memory": amount(DEVICE["capacity"]["gpu.nvidia.com"]["memory"])}
    return {
        **DEVICE,
        "attributes": {"gpu.nvidia.com": {**attributes, **versions}},
        "capacity": {"gpu.nvidia.com": capacity},
    }


def seconds_each(run: Callable[[], Any], seconds: float) -> float:
    count, best, end = 1, float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        for _ in range(count):
            run()
        spent = time.perf_counter() - begun
        best = min(best, spent / count)
        count = max(1, int(count * 0.01 / max(spent, 1e-6)))
    return best


def with_celpy(text: str, seconds: float) -> list[float]:
    import celpy  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - each library is loaded for its own measurement
    from celpy import celtypes  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - likewise

    def quantity(value: Any) -> Any:
        return celtypes.ListType(map(celtypes.IntType, amount(str(value))))

    def semver(value: Any) -> Any:
        return celtypes.StringType(version(str(value)))

    def compare_to(one: Any, other: Any) -> Any:
        return celtypes.IntType(compare(*([*each] for each in (one, other))))

    def lower(value: Any) -> Any:
        return celtypes.StringType(str(value).lower())

    functions = {"quantity": quantity, "semver": semver, "compareTo": compare_to, "lowerAscii": lower}
    activation = {"device": celpy.json_to_cel(prepared())}
    for runner in (celpy.CompiledRunner, celpy.InterpretedRunner):
        environment = celpy.Environment(runner_class=runner)

        def compiled(environment: Any = environment) -> Any:
            return environment.program(environment.compile(text), functions=functions)

        try:
            program = compiled()
            right = bool(program.evaluate(activation))
        except Exception:  # noqa: BLE001, S112 - its faster runner cannot call functions from here
            continue
        if right:
            return [seconds_each(partial(program.evaluate, activation), seconds), seconds_each(compiled, seconds)]
    raise ValueError("neither of its runners answers true")


def with_celcpp(text: str, seconds: float) -> list[float]:
    from cel_expr_python import cel  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - likewise

    def ordering(name: str, kind: Any) -> Any:
        return cel.Overload(name, cel.Type.INT, [kind, kind], is_member=True, impl=compare)

    words, amounts = cel.Type.STRING, cel.Type.List(cel.Type.INT)
    functions = [
        cel.FunctionDecl("quantity", [cel.Overload("quantity_of", amounts, [words], impl=amount)]),
        cel.FunctionDecl("semver", [cel.Overload("semver_of", words, [words], impl=version)]),
        cel.FunctionDecl("compareTo", [ordering("quantities", amounts), ordering("semvers", words)]),
    ]
    environment = cel.NewEnvConfigFromYaml("extensions: [{name: strings}]")
    compiler = cel.NewEnv(config=environment, variables={"device": cel.Type.DYN}, functions=functions)
    data = {"device": prepared()}

    def compiled() -> Any:
        return compiler.compile(text)

    program = compiled()
    activation = compiler.Activation(data)
    if program.eval(activation).value() is not True:
        raise ValueError(text)
    return [seconds_each(lambda: program.eval(activation), seconds), seconds_each(compiled, seconds)]


def main() -> None:
    question = json.load(sys.stdin)
    answer: dict[str, dict[str, list[float]]] = {}
    for name, text in question["selectors"].items():
        answer[name] = {}
        for library, measure in (("cel-expr-python", with_celcpp), ("cel-python", with_celpy)):
            try:
                answer[name][library] = measure(text, question["seconds"])
            except Exception as problem:  # noqa: BLE001 - whatever a library cannot do, it is left out for it
                print(f"{library} leaves out {name}: {str(problem)[:200]}", file=sys.stderr)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
