import ast
import importlib.util
import re
import tomllib

import click
import pytest

from cnai.cli.app import app
from cnai.cli.framework import CONTEXT
from cnai.cli.output import Output
from cnai.core.spec import load_spec
from house import ROOT, SOURCE
from pages import DOCS, PAGES, anchors, blocks, commands, everything, label, links, words_of

COMMANDS = sorted({(page, tuple(words)) for page, words in commands()})
SPECS = [block for block in blocks("yaml") if not block.title]
SCRIPTS = blocks("python")
STEP = DOCS / "how-a-step-flows.md"
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)*\.py):([A-Za-z_.]+)`")
FILES = re.compile(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`")


def test_the_patterns_find_something():
    assert len(COMMANDS) > 40
    assert len(SPECS) > 8
    assert len(SCRIPTS) > 8


def parse(words):
    """Parse a command as `ai-cli` does, without running it."""
    if words[0].startswith("-"):
        assert words[0] in {name for option in app.params for name in option.opts} | {"--help"}
        return
    command, context = app, click.Context(app, info_name="ai-cli", obj=Output(), **CONTEXT)
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"`{context.command_path} {name}` is no command"
        command, context = found, click.Context(found, parent=context, info_name=name)
    if not isinstance(command, click.Group):
        command.make_context(command.name, list(words), parent=context.parent)


def shown(one):
    return one if isinstance(one, str) else " ".join(one)[:60]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=shown)
def test_a_command_in_the_docs_parses(page, words):
    try:
        parse(list(words))
    except click.exceptions.MissingParameter:
        assert len(words) <= 2, f"{page}: `ai-cli {' '.join(words)}` lacks an argument"
    except click.ClickException as error:
        pytest.fail(f"{page}: `ai-cli {' '.join(words)}`: {error.format_message()}")


@pytest.mark.parametrize(
    "line", ["ai-cli frobnicate", "ai-cli run --frobnicate", "ai-cli serve m --port x"]
)
def test_a_wrong_command_would_be_found(line):
    with pytest.raises((AssertionError, click.ClickException)):
        parse(words_of(line))


def test_words_end_where_the_shell_takes_over():
    assert words_of("ai-cli plan run.yaml --json | jq .layout") == ["plan", "run.yaml", "--json"]
    assert words_of("ai-cli init run.yaml   # a spec") == ["init", "run.yaml"]


@pytest.mark.parametrize("block", SPECS, ids=lambda block: block.page)
def test_a_yaml_block_is_a_spec(block, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(block.text)
    assert load_spec(file).spec.version == 1


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.page)
def test_a_python_block_compiles_and_its_names_are_there(block):
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "cnai":
            assert [one.name for one in node.names if not is_there(node.module, one.name)] == []


def is_there(module, name):
    """Tell whether a module has a name, or a module of that name below it."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_link_leads_somewhere(page):
    broken = [
        f"{target.name}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []


def functions_and_classes(file):
    """Return the dotted names that a file defines."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign)
        if isinstance(node, kinds):
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else node.name
            names.add(name)
            inner = getattr(node, "body", [])
            names |= {f"{name}.{one.name}" for one in inner if isinstance(one, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_named_function_exists(page):
    missing = [
        f"{file}:{name}"
        for file, name in NAMED.findall(" ".join(page.read_text().split()))
        if not (SOURCE / file).is_file() or name not in functions_and_classes(SOURCE / file)
    ]
    assert missing == []


def test_the_step_names_many_functions():
    assert len(set(NAMED.findall(STEP.read_text()))) > 30


def test_a_function_that_is_gone_would_be_found():
    assert "Trainer.step" in functions_and_classes(SOURCE / "train" / "trainer.py")
    assert "Trainer.stop" not in functions_and_classes(SOURCE / "train" / "trainer.py")


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_named_file_exists(page):
    roots = (SOURCE, ROOT, SOURCE.parent, SOURCE / page.stem)
    named = set(FILES.findall(page.read_text()))
    assert {one for one in named if not any((root / one).is_file() for root in roots)} == set()


@pytest.mark.parametrize("page", sorted((DOCS / "rooms").glob("*.md")), ids=label)
def test_the_tables_of_a_room_name_files_that_it_has(page):
    folder = SOURCE / ("core/spec" if page.stem == "spec" else page.stem)
    cells = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("|")]
    named = re.findall(r"`([a-z_0-9]+\.py)`", " ".join(cells))
    assert [name for name in named if not (folder / name).is_file()] == []


def test_every_page_of_the_site_is_in_its_navigation():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(targets(site["nav"])) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    )


def targets(entry):
    """Return the files of a navigation, however deep."""
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [one for part in inner for one in targets(part)]


def test_the_site_fetches_no_fonts():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert site["theme"]["font"] is False


def test_the_literal_layout_of_the_readme_is_the_one_of_the_product():
    (literal,) = blocks("json", pages=[ROOT / "README.md"])
    layout = {
        "data_parallel": {"size": 8},
        "model_parallel": {"size": 4, "split_layer": 16},
        "pipeline_parallel": {"stages": 4},
    }
    assert ast.literal_eval(literal.text) == layout
    assert load_spec(layout).spec.parallel.model_parallel.split_layer == 16


@pytest.mark.parametrize(
    ("page", "lines"), [("README.md", 170), ("ARCHITECTURE.md", 150), ("AGENTS.md", 100)]
)
def test_a_page_that_everybody_reads_is_short(page, lines):
    assert len((ROOT / page).read_text().splitlines()) <= lines


def test_the_pages_are_plain_ascii():
    assert sorted({letter for letter in everything() if ord(letter) > 126}) == []
