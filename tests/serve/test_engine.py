import json

import pytest
import torch

import cnai.models
import servekit
from cnai.core.errors import DataError, RunError, SpecError
from cnai.serve import FinishReason, Sampling, TextEngine, load_engine
from cnai.serve.engine import choose_token
from cnai.serve.generation import PromptTooLongError

GREEDY = Sampling(max_tokens=20, temperature=0)
PROMPT = [40, 41, 42, 43]


@pytest.fixture(scope="module")
def engine():
    return servekit.tiny_engine()


def tokens_of(pieces):
    return [piece.token for piece in pieces]


def text_of(pieces):
    return "".join(piece.text for piece in pieces)


def test_greedy_tokens_are_the_argmax_of_the_whole_forward_pass_without_a_cache(engine):
    decoder, tokens = servekit.decoder(), list(PROMPT)
    with torch.inference_mode():
        for _ in range(20):
            tokens.append(int(decoder(torch.tensor([tokens]))[0, -1].argmax()))
    assert tokens_of(engine.generate(PROMPT, GREEDY)) == tokens[4:]


def test_interleaved_generations_do_not_touch_each_other(engine):
    alone = [tokens_of(engine.generate(prompt, GREEDY)) for prompt in (PROMPT, [7, 8])]
    first, second = engine.generate(PROMPT, GREEDY), engine.generate([7, 8], GREEDY)
    pairs = list(zip(first, second, strict=True))
    assert [tokens_of(pieces) for pieces in zip(*pairs, strict=True)] == alone


def test_inference_mode_does_not_leak_to_the_caller_between_tokens(engine):
    pieces = engine.generate(PROMPT, GREEDY)
    next(pieces)
    assert not torch.is_inference_mode_enabled()


def test_a_seed_repeats_a_text_and_another_one_does_not(engine):
    texts = [
        tokens_of(engine.generate(PROMPT, Sampling(max_tokens=20, seed=seed))) for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_without_a_seed_texts_differ(engine):
    texts = [tokens_of(engine.generate(PROMPT, Sampling(max_tokens=20))) for _ in range(2)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    "options", [{"top_p": 1e-6}, {"temperature": 1e-5}, {"temperature": 1e-300}]
)
def test_a_tiny_nucleus_or_temperature_is_greedy(engine, options):
    sampled = engine.generate(PROMPT, Sampling(max_tokens=20, seed=0, **options))
    assert tokens_of(sampled) == tokens_of(engine.generate(PROMPT, GREEDY))


def draw(shares, count, **options):
    logits_V, generator = torch.log(torch.tensor(shares)), torch.Generator().manual_seed(0)
    return [choose_token(logits_V, Sampling(**options), generator) for _ in range(count)]


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, {1}), (0.7, {1, 3}), (0.95, {0, 1, 3})])
def test_the_nucleus_holds_the_likeliest_tokens_that_reach_top_p(top_p, kept):
    assert set(draw([0.15, 0.5, 0.05, 0.3], 300, top_p=top_p)) == kept


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.7), (0.5, 0.845), (2.0, 0.604)])
def test_sampling_follows_the_probabilities_at_a_temperature(temperature, share):
    drawn = draw([0.7, 0.3], 4000, temperature=temperature)
    assert drawn.count(0) / 4000 == pytest.approx(share, abs=0.03)


def test_the_text_is_that_of_the_tokens(engine):
    pieces = list(engine.generate(PROMPT, GREEDY))
    whole = servekit.tokenizer().decode(tokens_of(pieces))
    assert whole.startswith(text_of(pieces))
    assert len(whole) - len(text_of(pieces)) <= 3


def test_a_stop_string_ends_the_text_before_it(engine):
    whole = text_of(engine.generate(PROMPT, GREEDY))
    stop = whole[5:8]
    pieces = list(engine.generate(PROMPT, Sampling(max_tokens=20, temperature=0, stop=(stop,))))
    assert text_of(pieces) == whole[: whole.index(stop)]
    assert pieces[-1].finish_reason is FinishReason.STOP


def test_only_the_last_piece_has_a_reason(engine):
    reasons = [piece.finish_reason for piece in engine.generate(PROMPT, GREEDY)]
    assert reasons == [None] * 19 + [FinishReason.LENGTH]


def test_an_end_token_ends_the_text_and_is_not_shown():
    first = tokens_of(servekit.tiny_engine().generate(PROMPT, GREEDY))[3]
    engine = TextEngine(servekit.decoder(), servekit.tokenizer(), name="m", end_tokens=[first])
    pieces = list(engine.generate(PROMPT, GREEDY))
    assert (pieces[-1].token, pieces[-1].finish_reason) == (first, FinishReason.STOP)
    assert len(pieces) == 4
    assert servekit.tokenizer().decode([first]) not in pieces[-1].text


def test_the_tokenizers_end_of_text_ends_the_text():
    engine = fixed_engine(torch.tensor([9.0, 0.0]))
    engine_pieces = list(engine.generate([1], Sampling(temperature=0)))
    assert [(p.token, p.text, p.finish_reason) for p in engine_pieces] == [
        (0, "", FinishReason.STOP)
    ]


def test_the_context_bounds_the_answer(engine):
    pieces = list(engine.generate([5] * 60, Sampling(max_tokens=1000, temperature=0)))
    assert len(pieces) == 4
    assert pieces[-1].finish_reason is FinishReason.LENGTH


def test_a_prompt_of_the_whole_context_is_refused_with_numbers_before_any_work(engine):
    with pytest.raises(PromptTooLongError, match=r"64 tokens.*context of 64") as caught:
        engine.generate([5] * 64, GREEDY)
    assert "at least 1 token" in caught.value.hint


@pytest.mark.parametrize("token", [-1, 320, 2**70])
def test_an_unknown_token_is_refused(engine, token):
    with pytest.raises(SpecError, match=f"token {token}.*0 to 319"):
        engine.generate([1, token], GREEDY)


def test_no_tokens_are_refused(engine):
    with pytest.raises(SpecError, match="empty"):
        engine.generate([], GREEDY)


def test_an_empty_text_starts_a_new_one(engine):
    assert engine.encode("") == [0]


def test_a_special_token_in_a_text_is_plain_letters(engine):
    assert 0 not in engine.encode("a<|endoftext|>b")
    assert servekit.tokenizer().decode(engine.encode("<|endoftext|>")) == "<|endoftext|>"


def test_weights_that_are_no_numbers_are_an_error_and_no_text():
    decoder = servekit.decoder()
    torch.nn.init.constant_(decoder.norm.weight, float("nan"))
    engine = TextEngine(decoder, servekit.tokenizer(), name="m")
    with pytest.raises(RunError, match="nan"):
        next(engine.generate(PROMPT, GREEDY))


def test_a_tokenizer_that_does_not_fit_is_refused():
    with pytest.raises(DataError, match=r"tokenizer has 3\d\d tokens and the model 100"):
        TextEngine(servekit.decoder(vocab=100), servekit.tokenizer(), name="m")


def fixed_engine(logits_V):
    """Return an engine whose model always gives these logits to the first tokens."""
    decoder = servekit.decoder()
    full_V = torch.full((320,), -1e4)
    full_V[: len(logits_V)] = logits_V
    decoder.head.register_forward_hook(lambda _m, args, _o: full_V.expand(1, args[0].shape[1], -1))
    ends = None if logits_V[0] > 1 else []
    return TextEngine(decoder, servekit.tokenizer(), name="fixed", end_tokens=ends)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cnai.models, "load_decoder", lambda _f: servekit.decoder(), raising=False)
    model = tmp_path / "my-model"
    model.mkdir()
    servekit.tokenizer().save(str(model / "tokenizer.json"))
    (model / "config.json").write_text(json.dumps({"eos_token_id": 0, "hidden_size": 32}))
    return model


def test_a_folder_becomes_an_engine_named_after_it(folder):
    engine = load_engine(folder)
    assert (engine.name, engine.context_tokens) == ("my-model", 64)
    assert tokens_of(engine.generate(PROMPT, GREEDY)) == tokens_of(
        servekit.tiny_engine().generate(PROMPT, GREEDY)
    )


@pytest.mark.parametrize("others", [None, [1, 2]])
def test_the_config_says_which_tokens_end_a_text(folder, others):
    second = tokens_of(load_engine(folder).generate(PROMPT, GREEDY))[1]
    ends = second if others is None else [*others, second]
    (folder / "config.json").write_text(json.dumps({"eos_token_id": ends}))
    pieces = list(load_engine(folder).generate(PROMPT, GREEDY))
    assert (len(pieces), pieces[-1].finish_reason) == (2, FinishReason.STOP)


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json"])
@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff"])
def test_a_missing_or_broken_file_is_named(folder, file, content):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_engine(folder)
    assert caught.value.where.endswith(file)
