import ast

import pytest

from house import FILES, LAYERS, ROOMS, SOURCE, functions_of, name_of, tree_of

BANNED = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
TREES = {name_of(path): tree_of(path) for path in FILES}


def nodes(*kinds):
    """Yield every node of these kinds with its place."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield f"{name}:{node.lineno}", node


def test_the_rules_look_at_the_whole_source():
    assert len(FILES) > 100


def test_no_file_or_folder_has_a_name_that_says_nothing():
    assert [name_of(path) for path in SOURCE.rglob("*") if path.stem in BANNED] == []


def test_every_file_is_short():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_every_function_is_short():
    lengths = {
        f"{name}:{one.name}": one.end_lineno - one.lineno + 1
        for name, tree in TREES.items()
        for one in functions_of(tree)
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def test_every_module_says_what_it_is():
    silent = [name for name, tree in TREES.items() if len(ast.get_docstring(tree) or "") < 10]
    assert silent == []


def test_nothing_is_global():
    assert [place for place, _ in nodes(ast.Global)] == []


def test_no_error_of_every_kind_is_swallowed():
    silent = [
        place
        for place, handler in nodes(ast.ExceptHandler)
        if catches_all(handler) and all(isinstance(line, ast.Pass) for line in handler.body)
    ]
    assert silent == []


def catches_all(handler):
    caught = ast.unparse(handler.type) if handler.type else "Exception"
    return "Exception" in caught.replace("(", " ").replace(",", " ").split()


@pytest.mark.parametrize("layer", LAYERS)
def test_a_room_says_what_it_never_does(layer):
    doc = ast.get_docstring(TREES[f"{layer}/__init__.py"]) or ""
    assert any(word in doc for word in ("never", "Nothing here", "does no work"))


def test_every_room_exports_a_handful_of_names():
    assert {room: n for room in ROOMS if not 1 <= (n := exported(room)) <= 16} == {"train": 0}
    # Flows take single modules of `train`: some need torch, some must not load it.


def exported(room):
    lists = [
        node.value
        for node in TREES[f"{room}/__init__.py"].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return sum(len(one.elts) for one in lists)


def test_every_folder_of_the_house_is_a_known_layer():
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(LAYERS)
