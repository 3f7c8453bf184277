from cnai.data.pydocs import prose, standard_library

MODULE = '''# A heading
# in two lines.
"""About the module."""

TEXT = """
# not a comment
"""

class Thing:
    """About the thing.

    Line one.
        Indented more.
    """

    # About the method.
    def method(self):
        return "# no comment"  # trailing

async def later():
    """Later."""
'''


def test_prose_is_docstrings_and_comment_lines_in_their_order():
    assert prose(MODULE) == (
        "# A heading\n# in two lines.\n\nAbout the module.\n\n"
        "About the thing.\n\nLine one.\n    Indented more.\n\n# About the method.\n\nLater.\n"
    )


def test_code_without_words_has_no_prose():
    assert prose("x = 1\n") == ""


def test_a_form_feed_does_not_shift_the_lines():
    assert prose('x = """\f\n# inside\n"""\n# outside\n') == "# outside\n"


def test_a_warning_of_the_compiler_is_no_failure():
    assert prose('"""Fine."""\nx = "\\d"\n') == "Fine.\n"


def test_the_library_holds_known_modules_and_no_tests():
    names = [name for name, _ in standard_library()]
    assert {"json.decoder", "asyncio.events", "this"} <= set(names)
    assert not [name for name in names if "test" in name.split(".") or "idlelib" in name]
    assert names.index("abc") < names.index("json.decoder")
