"""Functions of the user's own repository, named as `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from assay.baselines.errors import InputError

Result = TypeVar("Result")


def load_function(spec: str, option: str) -> Callable[..., Any]:
    """The function that `module:function` names, imported as from the current directory.

    Raises `InputError` with one line that names the option, the function and what went wrong; the user's exception is
    its cause.
    """
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        raise InputError(
            f"{option} {spec} is not of the form module:function: for example {option} models:int8_resnet."
        )
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InputError(f"{option} {spec}: there is no module {error.name} in {folder} or installed.") from error
        raise InputError(
            f"{option} {spec}: importing {module_name} needs {error.name}, which is not installed."
        ) from error
    except Exception as error:
        raise InputError(f"{option} {spec}: importing {module_name} raised {describe(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"{option} {spec}: {module_name} has no {path}.")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{option} {spec}: {path} is a {type(found).__name__}, not a function.")
    function: Callable[..., Any] = found
    return function


def call(function: Callable[..., Result], *arguments: Any, what: str) -> Result:
    """The function's result; an exception in it becomes one line that starts with `what`."""
    try:
        return function(*arguments)
    except Exception as error:
        raise InputError(f"{what} raised {describe(error)}") from error


def describe(error: BaseException) -> str:
    """An exception on one line."""
    message = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {message}" if message else f"{type(error).__name__}."
