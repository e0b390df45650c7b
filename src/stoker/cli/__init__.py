"""The command line: the only place that prints errors and picks exit codes.

Exit codes: 0 done, 1 something failed and was told, 2 the command line is wrong, 130 ended
by Ctrl-C, 128 + n ended by signal n. ``stoker run`` ends as the program that it ran. A
command's module is imported when it is asked for, so that ``stoker --help`` is quick.
"""

from __future__ import annotations

import atexit
import importlib
import signal
import sys

import click

from stoker.cli.output import ReaderLeft, write_nowhere
from stoker.errors import StokerError

COMMANDS = {
    "tune": "stoker.cli.tune",
    "run": "stoker.cli.run",
    "simulate": "stoker.cli.simulate",
    "top": "stoker.cli.top",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stoker", message="stoker %(version)s")
def stoker() -> None:
    """Feed the batches: find out how many workers a DataLoader should have."""


def _print_no_traceback() -> None:
    """Ctrl-C while the interpreter ends would print one: it ends this process instead."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line and exit; never returns."""
    atexit.register(_print_no_traceback)
    if sys.stdout is None and sys.argv[1:2] != ["run"]:  # a program needs none
        click.echo(
            "Error: standard output is closed; there is nowhere to tell the result", err=True
        )
        sys.exit(1)
    try:
        code = stoker.main(prog_name="stoker", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ReaderLeft:
        code = 1
    except StokerError as error:
        click.echo(f"Error: {error}", err=True)
        code = 1
    except BrokenPipeError:  # from click itself, which told of its help
        write_nowhere(sys.stdout)
        code = 1
    except OSError as error:
        click.echo(f"Error: the output could not be written: {error}", err=True)
        code = 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    sys.exit(code or 0)
