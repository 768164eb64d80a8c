"""The command line: one thin file per command, imported only when it is asked for.

stdout carries the result, stderr everything for people. Exit codes: 0 done, 1 failed while running, 2 bad
usage or bad file, 3 a gate not met, 130 interrupted.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading

import click

from deploynas import __version__
from deploynas.cli.machine_faults import machine_fault
from deploynas.errors import DeployNASError

# what the light install, for target machines, leaves out
TRAINING_PACKAGES = ("torch", "timm", "torchvision", "sklearn", "safetensors")
RUNTIME = "onnxruntime"  # which people replace by the one of another provider, and may leave out in between

COMMANDS = (
    "devices",
    "profile",
    "bench",
    "check",
    "train",
    "import",
    "estimate",
    "explain",
    "search",
    "finetune",
    "prune",
    "export",
    "report",
    "run",
)
# those that keep what they have done when they are stopped
RESUMABLE = ("profile", "train", "estimate", "finetune", "prune", "run")


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"deploynas.cli.{name}").command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="deploynas")
@click.option("--verbose", is_flag=True, help="Show a traceback with an error.")
def group(verbose: bool) -> None:
    """Find, train and ship the network that runs within a latency budget on your hardware."""


def main() -> None:
    verbose = "--verbose" in sys.argv
    _end_politely()
    try:
        # exit codes are ours to give, and click's own errors print as ours do
        result = group(standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except DeployNASError as error:
        if verbose:
            raise
        _complain(error.message, error.hint)
        sys.exit(error.exit_code)
    except OSError as error:
        fault = machine_fault(error)
        if verbose or fault is None:
            raise
        _complain(*fault)
        sys.exit(1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if verbose or package not in (*TRAINING_PACKAGES, RUNTIME):
            raise
        if package == RUNTIME:
            _complain(f"no package `{RUNTIME}` here", f"pip install {RUNTIME}, or the one of your provider")
        else:
            _complain(f"this command needs PyTorch: no package `{package}` here", 'pip install "deploynas[train]"')
        sys.exit(2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        _complain(error.format_message(), f"`{context.command_path} --help`" if context else None)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        asked = next((word for word in sys.argv[1:] if word in COMMANDS), None)
        resumes = "the same command resumes where it stopped"
        _complain("interrupted", resumes if asked in RESUMABLE else "nothing was kept; type the command again")
        sys.exit(130)


def _end_politely() -> None:
    """A polite kill is Ctrl-C from elsewhere: nothing half done is left behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def _complain(message: str, hint: str | None) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    if hint:
        click.echo(click.style("hint: ", fg="cyan") + hint, err=True)
