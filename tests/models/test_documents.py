"""Documents in one row that do not see each other."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from cnai.core.shape import DecoderShape
from cnai.models import Decoder, fill, initial_weights
from cnai.models.documents import Documents, attend_within, documents_of

SEPARATOR = 7
SHAPE = DecoderShape(
    layers=2, width=16, heads=4, kv_heads=2, ffn_width=32, vocab=32, sequence=12, tied_head=True
)


@pytest.fixture
def model() -> Decoder:
    decoder = Decoder(SHAPE)
    fill(decoder, initial_weights(SHAPE, 0))
    return decoder.eval()


def apart(model: Decoder, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens, None, documents_of(tokens, SEPARATOR))


def test_a_document_begins_with_its_separator() -> None:
    tokens = torch.tensor([[1, 2, SEPARATOR, 3, SEPARATOR, 4]])
    assert documents_of(tokens, SEPARATOR).tolist() == [[0, 0, 1, 1, 2, 2]]


def test_lengths_are_told_row_by_row() -> None:
    numbers = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 1, 1]])
    assert Documents.numbered(numbers).lengths == ((2, 2, 2), (6,))


def test_attention_within_documents_is_that_of_a_masked_row() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    numbers = torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 1, 2, 2, 2, 2, 2, 2, 3]])
    same = numbers[:, None, :, None] == numbers[:, None, None, :]
    mask = same & torch.ones(9, 9, dtype=torch.bool).tril()
    masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    found = attend_within(q, k, v, Documents.numbered(numbers))
    torch.testing.assert_close(found, masked)


def test_a_document_in_a_row_gives_the_logits_that_it_gives_alone(model: Decoder) -> None:
    first, second = torch.tensor([[SEPARATOR, 3, 1, 4]]), torch.tensor([[SEPARATOR, 5, 9, 2, 6]])
    together = apart(model, torch.cat((first, second), dim=1))
    with torch.no_grad():
        torch.testing.assert_close(together, torch.cat((model(first), model(second)), dim=1))


def test_a_row_of_one_document_gives_the_usual_logits(model: Decoder) -> None:
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    with torch.no_grad():
        torch.testing.assert_close(apart(model, tokens), model(tokens))


def test_a_token_of_another_document_changes_nothing(model: Decoder) -> None:
    one = torch.tensor([[3, 1, 4, SEPARATOR, 5, 9]])
    other = torch.tensor([[8, 8, 8, SEPARATOR, 5, 9]])
    torch.testing.assert_close(apart(model, one)[:, 3:], apart(model, other)[:, 3:])
