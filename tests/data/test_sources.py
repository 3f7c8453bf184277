import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import DataError
from cnai.data.sources import cut, read_documents


def texts(source, **options):
    return [document.text for document in read_documents(str(source), **options)]


def refusal(source, **options):
    with pytest.raises(DataError) as caught:
        texts(source, **options)
    return caught.value


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / ".hidden").write_text("never")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("never")
    names = [document.name for document in read_documents(str(tmp_path))]
    assert (names, texts(tmp_path)) == (["a.md", "b/x.txt"], ["first", "second"])


def test_a_folder_may_mix_formats(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    pq.write_table(pa.table({"text": ["two"]}), tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("three")
    assert texts(tmp_path) == ["one", "two", "three"]


def test_empty_files_are_left_out(tmp_path):
    (tmp_path / "a.txt").write_text(" \n")
    (tmp_path / "b.txt").write_text("text")
    assert texts(tmp_path) == ["text"]


def test_a_byte_order_mark_is_dropped(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbftext")
    assert texts(tmp_path / "a.txt") == ["text"]


def test_a_lone_text_file_is_cut_into_pieces(tmp_path):
    text = "".join(f"paragraph {number} {'word ' * 100}\n\n" for number in range(60))
    (tmp_path / "a.txt").write_text(text)
    pieces = texts(tmp_path / "a.txt")
    assert len(pieces) > 3
    assert "".join(pieces) == text


@given(text=st.text(alphabet="ab\n \r", max_size=200), repeat=st.integers(1, 300))
def test_the_pieces_of_a_text_are_the_text(text, repeat):
    assert "".join(cut(text * repeat)) == text * repeat


def test_a_text_without_blank_lines_is_cut_too():
    assert len(list(cut("one line of words\n" * 3000))) > 2


def test_a_missing_source_gets_a_suggestion(tmp_path):
    (tmp_path / "corpus").mkdir()
    error = refusal(tmp_path / "korpus")
    assert "korpus" in error.message
    assert f"did you mean `{tmp_path / 'corpus'}`" in error.hint


def test_a_typo_in_a_built_in_source_gets_a_suggestion():
    assert "did you mean `pydocs`" in refusal("pydoc").hint


def test_a_remote_source_is_explained():
    assert "data.store" in refusal("s3://bucket/text").hint


def test_an_empty_folder_is_refused(tmp_path):
    assert "no text" in refusal(tmp_path).message


@pytest.mark.parametrize(
    ("content", "offset"), [(b"good \xff bad", 5), (b"bin\0ary", 3), ("text".encode("utf-16"), 0)]
)
def test_a_binary_file_is_named_with_the_place(tmp_path, content, offset):
    (tmp_path / "a.png").write_bytes(content)
    error = refusal(tmp_path)
    assert "`a.png` is not UTF-8" in error.message
    assert error.message.endswith(f"offset {offset}")


def test_jsonl_gives_one_document_a_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n\n{"body": null}\n{"body": "two"}')
    path = tmp_path / "a.jsonl"
    names = [document.name for document in read_documents(str(path), text_field="body")]
    assert texts(path, text_field="body") == ["one", "two"]
    assert names == ["a.jsonl:1", "a.jsonl:4"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', "broken JSON"),
        ('"text"', "a string"),
        ("[1]", "a list"),
        ('{"text": 3}', "a number"),
        ('{"text": {"a": 1}}', "an object"),
        ('{"text": "\\ud800"}', "broken JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "good"}}\n{line}\n')
    error = refusal(path)
    assert error.where == f"{path}:2"
    assert message in error.message


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "\xff"}\n')
    assert refusal(path).where == f"{path}:1"


def test_a_missing_field_gets_a_suggestion(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"texts": "x", "id": 1}\n')
    error = refusal(tmp_path / "a.jsonl")
    assert "no field `text`" in error.message
    assert "did you mean `texts`" in error.hint
    assert "data.text_field=texts" in error.hint


def test_parquet_gives_one_document_a_row(tmp_path):
    rows = [f"row {number}" for number in range(3000)] + [None]
    pq.write_table(pa.table({"id": range(3001), "body": rows}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", text_field="body") == rows[:-1]


def test_a_dictionary_encoded_column_is_text(tmp_path):
    column = pa.array(["x", "y", "x"]).dictionary_encode()
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["x", "y", "x"]


def test_a_missing_column_gets_a_suggestion(tmp_path):
    pq.write_table(pa.table({"content": ["x"]}), tmp_path / "a.parquet")
    assert "data.text_field=content" in refusal(tmp_path / "a.parquet").hint


def test_a_column_of_numbers_is_refused(tmp_path):
    pq.write_table(pa.table({"text": [1]}), tmp_path / "a.parquet")
    assert "holds int64" in refusal(tmp_path / "a.parquet").message


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    assert "a.parquet" in refusal(tmp_path).message


@pytest.mark.parametrize("source", ["pydocs", "pysources"])
@pytest.mark.slow
def test_the_standard_library_gives_megabytes_and_always_the_same(source):
    first = texts(source)
    assert sum(map(len, first)) > 2_000_000
    assert texts(source) == first
