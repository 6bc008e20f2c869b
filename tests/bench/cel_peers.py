"""Runs in the environment of requirements-bench.lock, which knows nothing of us: times CEL libraries on selectors.

Reads {"selectors": {name: text}, "seconds": per measurement} from standard input, and prints {name: {library: [seconds per
evaluation, seconds per compilation]}}. A library that cannot answer a selector, or answers other than true, is left out.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
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


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def amount(text: str) -> int:
    return int(text.removesuffix("Gi")) * 2**30


def compare(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def prepared() -> dict[str, Any]:
    """The device with its quantity as a number and its versions as lists of them, parsed once, as we do it, too."""
    attributes = DEVICE["attributes"]["gpu.nvidia.com"]
    versions = {name: list(numbers(attributes[name])) for name in ("driverVersion", "cudaVersion")}
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
        return celtypes.IntType(amount(str(value)))

    def semver(value: Any) -> Any:
        return celtypes.ListType([celtypes.IntType(part) for part in numbers(str(value))])

    def compare_to(one: Any, other: Any) -> Any:
        return celtypes.IntType(compare(one, other))

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

    text_only, whole = [cel.Type.STRING], cel.Type.INT
    versions = cel.Type.List(cel.Type.INT)
    functions = [
        cel.FunctionDecl("quantity", [cel.Overload("quantity_of", whole, text_only, impl=amount)]),
        cel.FunctionDecl(
            "semver", [cel.Overload("semver_of", versions, text_only, impl=lambda each: [*numbers(each)])]
        ),
        cel.FunctionDecl("compareTo", [ordering("quantities", whole), ordering("semvers", versions)]),
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
