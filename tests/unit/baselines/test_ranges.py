"""No command takes NaN or infinity for a number, nor a count or a place below the first."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from assay.baselines.ranges import FiniteRange
from assay.bot.cli import assay


def numbers(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.ParamType]]:
    """Every option of every command that takes a number."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from numbers(found, (*path, name))
    for parameter in command.params:
        if isinstance(parameter.type, click.FloatRange | click.types.FloatParamType | click.types.IntParamType):
            yield f"{' '.join(path)} {parameter.name}", parameter.type


def test_every_float_of_the_command_line_is_finite() -> None:
    found = {name: kind for name, kind in numbers(assay) if not isinstance(kind, click.types.IntParamType)}
    assert "compile timeout" in found
    assert [name for name, kind in found.items() if not isinstance(kind, FiniteRange)] == []


OPEN = {
    # `quant.sampling` refuses these with words of its own.
    *("evaluate examples", "evaluate chunk", "evaluate cap", "evaluate batch_size"),
}


def test_every_integer_of_the_command_line_has_a_least_value() -> None:
    found = {name: kind for name, kind in numbers(assay) if isinstance(kind, click.types.IntParamType)}
    assert {"compile attempt", "evidence import run_id"} <= set(found)
    bare = {name for name, kind in found.items() if not isinstance(kind, click.IntRange) or kind.min is None}
    assert bare - OPEN == set()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_what_is_not_finite_is_a_usage_error(value: str) -> None:
    @click.command()
    @click.option("--timeout", type=FiniteRange(1))
    def command(timeout: float) -> None:
        raise AssertionError(timeout)

    result = CliRunner().invoke(command, ["--timeout", value])
    assert result.exit_code == 2
    assert "Invalid value for '--timeout'" in result.output
