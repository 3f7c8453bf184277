import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cnai.cli.app import app
from cnai.cli.framework import CONTEXT, Verb, Verbs, command
from cnai.cli.output import Output


@pytest.fixture
def quantize():
    """Build the verb of the first page, which prints what it was given."""

    @command("quantize", examples=["ai-cli quantize"], context_settings=CONTEXT)
    @click.option("--input-model")
    @click.option("--output-model")
    @click.option("--precision", type=click.Choice(["int8", "fp32"], case_sensitive=False))
    def verb(out, **values):
        """Quantize."""
        out.text(" ".join(f"{key}={value}" for key, value in sorted(values.items())))

    return verb


def ran(verb, *words):
    return CliRunner().invoke(verb, list(words), obj=Output())


@pytest.mark.parametrize("flag", ["--input_model", "--input-model"])
@pytest.mark.parametrize("precision", ["INT8", "int8", "Int8"])
def test_both_spellings_mean_the_same(quantize, flag, precision):
    words = [flag, "model.pb", "--output_model=model_quant.pb", "--precision", precision]
    assert ran(quantize, *words).output == (
        "input_model=model.pb output_model=model_quant.pb precision=int8\n"
    )


def test_the_help_shows_dashes_only(quantize):
    text = ran(quantize, "--help").output
    assert "--input-model" in text
    assert "--input_model" not in text


def test_a_wrong_flag_in_underscores_names_the_one_that_was_meant(quantize):
    error = ran(quantize, "--input_modle", "x").output
    assert "--input-model" in error


def test_the_examples_stand_in_the_help_as_they_are_typed():
    @command("x", examples=["ai-cli x  --two   spaces", "ai-cli x"])
    def verb(out):
        """Do."""

    assert ran(verb, "--help").output.endswith(
        "Examples:\n  ai-cli x  --two   spaces\n  ai-cli x\n"
    )


def test_every_verb_takes_the_output_flags(quantize):
    names = {spelling for one in quantize.params for spelling in one.opts}
    assert {"--json", "-q", "--quiet", "-v", "--verbose"} <= names


def test_the_output_flags_set_the_output():
    seen = []

    @command("x", examples=["ai-cli x"])
    def verb(out):
        """Do."""
        seen.append((out.as_json, out.quiet, out.verbose))

    ran(verb, "--json", "-q", "-v")
    assert seen == [(True, True, True)]


def completions(root, words, incomplete):
    return [
        one.value
        for one in ShellComplete(root, {}, "ai-cli", "X").get_completions(words, incomplete)
    ]


def test_completion_understands_underscores(quantize):
    group = click.Group("ai-cli", commands={"quantize": quantize}, context_settings=CONTEXT)
    assert completions(group, ["quantize"], "--input_m") == ["--input-model"]


def test_verbs_are_completed_without_being_imported():
    broken = Verbs("x", lazy={"run": "Run.", "runs": "List."}, package="no.such.package")
    assert completions(broken, [], "ru") == ["run", "runs"]


def test_the_list_of_verbs_is_shown_without_importing_one():
    broken = Verbs("x", lazy={"run": "Run."}, package="no.such.package")
    assert "run  Run." in CliRunner().invoke(broken, ["--help"]).output


def test_keys_of_the_spec_are_completed():
    assert completions(app, ["explain"], "train.st") == ["train.steps"]


def test_a_flag_of_the_group_is_completed():
    assert completions(app, [], "--de") == ["--debug"]


def test_a_group_knows_only_its_table():
    group = Verbs("x", lazy={}, package="cnai.cli.commands")
    assert group.get_command(click.Context(group), "explain") is None


def test_a_verb_is_found_under_its_name():
    assert isinstance(app.get_command(click.Context(app), "explain"), Verb)
