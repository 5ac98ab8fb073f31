"""The `assay` command: where everything is put together. Commands are imported only when they are called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from assay.baselines.errors import AssayError

COMMANDS: dict[str, tuple[str, str]] = {
    "evaluate": ("assay.quant.cli:evaluate", "Measure a checkpoint's accuracy and write evidence."),
    "bench": ("assay.kernels.cli:bench", "Time kernels of two checkouts in turns and write evidence."),
    "compile": ("assay.npu_backend.cli:compile_", "Compile models for the NPU, simulate them and write evidence."),
    "gate": ("assay.bot.commands.gate:gate", "Compare head with base and set the exit code."),
    "comment": ("assay.bot.commands.comment:comment", "Answer on the pull request that a workflow run measured."),
    "command": ("assay.bot.commands.command:command", "Answer slash commands, and check one before it runs."),
    "baseline": ("assay.bot.commands.baseline:baseline", "Publish, list, fetch, compare, verify and prune baselines."),
    "audit": ("assay.bot.commands.audit:audit", "Count the gate's false alarms: one commit, measured twice."),
    "drift": ("assay.bot.commands.drift:drift", "Keep one issue open while the branch has regressed."),
    "evidence": ("assay.bot.commands.evidence:evidence", "Import results of other tools, and look at evidence."),
    "config": ("assay.bot.commands.config:config", "Check an assay.yml, or print its JSON Schema."),
    "capstone": (
        "assay.bot.commands.capstone:capstone",
        "Check a proposal, tick off its milestones, write its report.",
    ),
    "simulate": ("assay.bot.commands.simulate:simulate", "Replay a saved snapshot: what would the bot do?"),
}


_BAD_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM)
"""What a path that was given can be at fault for; anything else is the system's."""


class EndedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which unwind as Ctrl-C does, so that scratch folders go and processes that were started end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `EndedError` once; one that is ignored, as by nohup, stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP)}
    before = {s: how for s, how in before.items() if how is not signal.SIG_IGN}

    def end(number: int, _: Any) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)  # nothing interrupts the tidying
        raise EndedError(number)

    for one in before:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one, how in before.items():
            signal.signal(one, how)


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and lists commands without importing them."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for before, word in zip(["", *args], args, strict=False):
            option = word[:-1] if word.startswith("--") and word.find("=") == len(word) - 1 else before
            if word and option is before:
                continue
            # Mostly a variable of the shell that is not set, which would choose the current folder, or every task.
            where = f" after {option}" if option else ""
            ctx.fail(f"the argument{where} is empty: give a value, or leave it out.")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            from assay.bot.slash.verbs import BY_NAME

            verb = BY_NAME.get(args[0])
            if verb is not None:  # people try in a terminal what they write in comments
                said = f" {verb.terminal}" if verb.terminal else ""
                ctx.fail(f"No such command {verb.name!r}: `/assay {verb.name}` is a comment on a pull request.{said}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, text) for name, (_, text) in self.lazy.items()]
        rows += [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 passed, 1 the gate blocks, 2 bad input or usage, 3 a tool or service failed, 130 Ctrl-C, 143 SIGTERM.",
)
@click.version_option(package_name="assay-ci", prog_name="assay")
def assay() -> None:
    """Measure a model, compare it with the published baseline by paired statistics, and answer with a verdict.

    \b
    On a laptop:
      assay evaluate --checkpoint ./model --tasks hellaswag --examples 1000 --out head
      assay gate --base base --head head
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit. Every failure is one line on standard error and an exit code, never a traceback
    (ASSAY_DEBUG=1 shows it)."""
    # A log in another encoding shows `\u2717` instead of ending in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _orderly_end():
            code = assay.main(args=arguments, prog_name="assay", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "assay"
        message = error.format_message().strip()  # click ends some of its sentences with a stop, and some not
        _fail(f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See `{where} --help`.", 2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt) as stop:
        ended = stop.__cause__ if isinstance(stop, click.Abort) else stop  # click makes the one of the other
        if isinstance(ended, EndedError):
            _fail(f"ended by {signal.Signals(ended.number).name}.", 128 + ended.number)
        _fail("interrupted.", 130)
    except AssayError as error:
        if os.environ.get("ASSAY_DEBUG"):
            raise
        _fail(str(error), error.exit_code)
    except SystemExit as stop:
        # Whoever read the output has left: no failure, and not the 1 that click makes of it, which here says "blocked".
        # (Some versions of click show it by the context of the exit, others only by the stream that they put in place.)
        if isinstance(stop.__context__, BrokenPipeError) or "PacifyFlush" in type(sys.stdout).__name__:
            sys.exit(0)
        raise
    except MemoryError:
        _fail("there is not enough memory for this: give smaller input.", 3)
    except OSError as error:
        if os.environ.get("ASSAY_DEBUG"):
            raise
        where = f" ({error.filename})" if error.filename is not None else ""
        _fail(f"the system refused: {error.strerror or error}{where}.", 2 if error.errno in _BAD_PATH else 3)
    except Exception as error:
        if os.environ.get("ASSAY_DEBUG"):
            raise
        _fail(f"unexpected {type(error).__name__}: {error} (ASSAY_DEBUG=1 shows where; please report it).", 3)


def _fail(message: str, code: int) -> None:
    from assay.bot.text import shown

    try:
        print(f"assay: {shown(message, 2000)}", file=sys.stderr, flush=True)
    except OSError:  # nobody can be told, as on a full disk; the code stays, where Python's own would say "blocked"
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 lives as long as the process
    sys.exit(code)


if __name__ == "__main__":
    main()
