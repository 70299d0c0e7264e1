"""The command ``spuir``: its group of commands, and how it reports errors.

Each command is one module, imported when it is called. Heavy libraries are imported inside the commands, so that
``--help`` answers at once.
"""

import sys
from io import TextIOWrapper
from typing import Any

import click

from spuir.base.registry import Registry
from spuir.cli import options
from spuir.errors import SpuirError

COMMANDS = Registry(
    "command",
    {
        "doctor": "spuir.cli.doctor:doctor",
        "train": "spuir.cli.train:train",
        "evaluate": "spuir.cli.evaluate:evaluate",
        "tune": "spuir.cli.tune:tune",
        "decide": "spuir.cli.decide:decide",
        "serve": "spuir.cli.serve:serve",
        "load-test": "spuir.cli.load_test:load_test",
        "show": "spuir.cli.show:show",
        "run": "spuir.cli.run:run_command",
        "list": "spuir.cli.list:list_command",
        "plan": "spuir.cli.plan:plan_command",
        "reproduce": "spuir.cli.reproduce:reproduce",
    },
)
"""The commands, in the order in which ``--help`` lists them."""


class Refusal(click.ClickException):
    """A spuir error as one sentence on the error stream and exit code 2."""

    exit_code = 2


class CommandGroup(click.Group):
    """The group of commands. Every error of the library ends any of them in the same way."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. A character that the output cannot encode, such as ±, is shown as ?."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return COMMANDS.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if there is none of that name."""
        return COMMANDS.get(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; a mistyped name is refused with the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            COMMANDS.get(args[0])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as misuse:
            raise _in_one_sentence(misuse, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as misuse:
            raise _in_one_sentence(misuse, ctx) from None
        except SpuirError as refusal:
            raise Refusal(str(refusal)) from None
        except MemoryError as shortage:
            reason = str(shortage) or "none is left"
            raise click.ClickException(f"memory: {reason}; make batches or tables smaller.") from None
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            ctx.exit(options.INTERRUPTED)


def _in_one_sentence(misuse: click.UsageError, ctx: click.Context) -> click.ClickException:
    """Return a misuse of the command line as a refusal; the help shown for no arguments stays as it is."""
    if isinstance(misuse, click.exceptions.NoArgsIsHelpError):
        return misuse
    command = (misuse.ctx or ctx).command_path
    sentence = " ".join(misuse.format_message().split()).rstrip(".")
    return Refusal(f"{sentence}{' See' if sentence.endswith('?') else '; see'} {command} --help.")


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from spuir import __version__

        click.echo(f"spuir {__version__}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Contextual batched bandits: decide for a batch, learn once from its rewards, evaluate policies on logs."""


if __name__ == "__main__":
    main()
