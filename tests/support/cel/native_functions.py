"""Every native function of the CEL engine, by its name: tests measure each of them."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

from dra_extender.cel import library, native
from dra_extender.cel.native.call import NativeFunction


def native_functions() -> list[NativeFunction]:
    """The native functions that the packages `native` and `library` define at module level, in the order of their modules."""
    found = {id(each): each for module in _modules(native, library) for each in _defined(module)}
    return list(found.values())


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(each.name)


def _defined(module: ModuleType) -> Iterator[NativeFunction]:
    for value in vars(module).values():
        several = value.values() if isinstance(value, Mapping) else (value,)
        yield from (each for each in several if isinstance(each, NativeFunction))
