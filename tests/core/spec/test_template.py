import pytest
from inline_snapshot import snapshot

from cnai.core.errors import SpecError
from cnai.core.spec import load_spec
from cnai.core.spec.explain import all_keys
from cnai.core.spec.template import KINDS, template


def loaded(text, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return load_spec(path)


def uncommented(text):
    return "\n".join(line.removeprefix("#") for line in text.splitlines())


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_loads(kind, tmp_path):
    assert loaded(template(kind, name="mine"), tmp_path).spec.name == "mine"


def test_the_full_template_is_the_defaults(tmp_path):
    assert loaded(template("full", name="run"), tmp_path).spec == load_spec({}).spec


def test_the_full_template_shows_every_key(tmp_path):
    shown = loaded(uncommented(template("full", name="run")), tmp_path)
    assert [key for key in all_keys() if shown.origins[key] == "default"] == []


def test_the_full_template_shows_the_defaults(tmp_path):
    text = uncommented(template("full", name="run")).replace("  steps: 200\n", "")
    assert loaded(text, tmp_path).spec == load_spec({}).spec


def test_the_quickstart_is_short():
    useful = [line for line in template().splitlines() if line and not line.startswith("#")]
    assert len(useful) < 20
    assert max(map(len, template().splitlines())) < 100


def test_the_hidden_part_of_the_quickstart_loads(tmp_path):
    text = template().replace("\n# ", "\n").replace("How the model", "# How the model")
    assert loaded(text, tmp_path).spec.parallel.pipeline_parallel.stages == 2


@pytest.mark.parametrize("name", ["2026", "true", "1e5", "a-b"])
def test_a_name_that_looks_like_a_number_is_quoted(name, tmp_path):
    assert loaded(template(name=name), tmp_path).spec.name == name


def test_an_unknown_kind_is_refused():
    with pytest.raises(SpecError, match="unknown template `big`"):
        template("big")


def test_the_quickstart_reads_well():
    assert template() == snapshot("""\
# From data to a served model. `ai-cli explain KEY` tells what a key means.
version: 1
name: quickstart

model:
  layers: 4               # Transformer layers
  width: 128              # Hidden size
  heads: 4                # Query heads of attention
  sequence: 128           # Tokens in a training sequence, and the longest context when serving

data:
  source: pydocs          # `pydocs` (docstrings and comments of this Python's standard ...

train:
  steps: 200              # Optimizer steps
  batch: 16               # Sequences in a step over all ranks
  learning_rate: 0.003    # Peak learning rate

compress:
  max_loss: 0.01          # Largest relative rise of the validation perplexity

serve:
  port: 8000              # Port to listen on

# How the model lies over ranks is chosen for the machine; to say it yourself:
# parallel:
#   data_parallel: {size: 2}
#   model_parallel: {size: 2, split_layer: 0}
#   pipeline_parallel: {stages: 2}
""")
