"""The command itself: the table of verbs, and what becomes of an error.

Exit codes: 0 ok, 1 bug, 2 usage or spec, 3 no plan fits, 4 data, 5 run failed, 6 accuracy gate,
7 cluster, 10 diagnosis: a fault was found, 11 diagnosis: unknown, 130 interrupted. A verb returns
10 or 11 by itself; the others come from the error that it raises.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import click

from cnai import __version__
from cnai.cli.framework import CONTEXT, Verbs
from cnai.cli.output import Output, ReaderLeft
from cnai.core.errors import CnaiError, Interrupted, SpecError

VERBS = {
    "init": "Write a commented spec to start from.",
    "plan": "Show the layout, its memory a rank and why, without starting anything.",
    "validate": "Prove a plan step by step: on paper, in a small copy, without memory.",
    "train": "Train a model, or go on with a training that was interrupted.",
    "run": "Plan, train, evaluate, compress and serve a model.",
    "watch": "Follow a run until it ends: loss, tokens a second, ranks, time left.",
    "logs": "Print the last lines of the logs of a run, with the rank before each.",
    "scale": "Change the layout of a run: at its next step if it is alive, else at its next start.",
    "stop": "Ask a run to finish its step, save a checkpoint and end.",
    "runs": "List the runs; show, compare, export, import, remove them; take reactions back.",
    "data": "Pack text into tokens in a store, list and verify what is there.",
    "monitor": "Show a run in the browser and serve /metrics, until Ctrl-C.",
    "dashboards": "Rules and dashboards for Prometheus, Grafana and clusters.",
    "diagnose": "Find where a run broke, the class of the fault, and repairs.",
    "quantize": "Quantize a model, measure what it lost, and keep it only within the limit.",
    "inspect": "List the tensors of a model by kind, with their types and sizes.",
    "compare": "Run two versions of a model on the same inputs: agreement, sizes and speeds.",
    "eval": "Measure perplexity and bits per byte of a checkpoint on the validation split.",
    "export": "Write a checkpoint of a run as a model folder in Hugging Face layout.",
    "serve": "Serve a model folder, or the smallest model of a run, until Ctrl-C.",
    "cluster": "Look at a cluster that was written down.",
    "simulate": "Play a cluster with made-up time: which policy serves these jobs best.",
    "explain": "Tell what a key of the spec means.",
    "config": "Show the values of a spec and where each comes from.",
    "doctor": "Check that this machine is ready.",
    "completion": "Print the completion script of a shell.",
}
"""Verbs in the order of a user's day; `NAME` is `cnai.cli.commands.NAME.verb`."""


@click.group(cls=Verbs, lazy=VERBS, package="cnai.cli.commands", context_settings=CONTEXT)
@click.version_option(__version__, prog_name="ai-cli", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, envvar="CNAI_DEBUG", help="Show the traceback of a bug.")
@click.pass_obj
def app(out: Output, *, debug: bool) -> None:
    """Take a very large model from a spec to a trained, compressed and served one."""
    out.debug = debug


app.epilog = "ai-cli init run.yaml\nai-cli run run.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    instruction = os.environ.get("_AI_CLI_COMPLETE") if arguments is None else None
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "ai-cli", "_AI_CLI_COMPLETE", instruction)
    # A usage error may come before the flag is parsed, yet has to be printed as asked for.
    out = Output(as_json="--json" in words)
    try:
        return _run(words, out)
    except ReaderLeft:
        return _leave_quietly()


def _run(words: list[str], out: Output) -> int:
    """Run a verb; every error becomes a message and a code here and nowhere else."""
    try:
        with app.make_context("ai-cli", words, obj=out) as context:
            code = app.invoke(context)
        out.finish()
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = SpecError.exit_code
    except ReaderLeft:
        raise
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - a bug is told with its traceback
        told = _told(error, out)
        out.error(told)
        code = told.exit_code
    return code if isinstance(code, int) else 0


def _told(error: BaseException, out: Output) -> CnaiError:
    """Give any error the form of our own."""
    match error:
        case CnaiError():
            return error
        case click.ClickException():
            return _from_click(error)
        case KeyboardInterrupt() | click.Abort():
            return Interrupted("stopped", hint="run the same command again to go on")
    return _bug(error, out)


def _from_click(error: click.ClickException) -> CnaiError:
    """Give a usage error of click the form of our own."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ai-cli"
    near = getattr(error, "possibilities", None)
    if near:
        hint = "did you mean " + " or ".join(f"`{one}`" for one in near) + "?"
    else:
        hint = f"see `{command} --help`"
    message = getattr(error, "message", "") if near else error.format_message()
    message = message[:1].lower() + message[1:].rstrip(".").replace("'", "`")
    return SpecError(message, where=command, hint=hint)


def _bug(error: BaseException, out: Output) -> CnaiError:
    """Keep the traceback in a file, and say where."""
    text = "".join(traceback.format_exception(error))
    if out.debug:
        click.echo(text, err=True)
    try:
        handle, name = tempfile.mkstemp(prefix="ai-cli-bug-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        where = f"the traceback is in {name}"
    except OSError as reason:
        where = f"the traceback could not be kept: {reason}"
    return CnaiError(
        f"this is a bug in cnai: {type(error).__name__}: {error}",
        where=where,
        hint="`ai-cli --debug ...` shows the traceback; please report it with the command",
    )


def _leave_quietly() -> int:
    """Keep Python from complaining at exit that stdout is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return 0
