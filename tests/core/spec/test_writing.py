from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from cnai.core.spec import load_spec, to_yaml
from cnai.core.spec.sections import RunSpec

TEXT = st.text().filter(lambda text: "\0" not in text)


def read_back(spec, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(to_yaml(spec))
    return load_spec(path).spec


def test_only_what_differs_from_the_defaults_is_written():
    spec = load_spec({}, sets=["train.betas=[0.8, 0.9]", "resources.on=kubernetes"]).spec
    assert to_yaml(spec).decode() == snapshot("""\
version: 1
name: run
train:
  betas:
  - 0.8
  - 0.9
resources:
  on: kubernetes
""")


def test_a_default_spec_still_has_name_and_version():
    assert to_yaml(RunSpec()) == b"version: 1\nname: run\n"


@given(
    prompt=TEXT,
    source=TEXT,
    steps=st.integers(1, 2**53),
    rate=st.floats(0, 9.99, exclude_min=True, allow_subnormal=False),
    clip=st.none() | st.floats(1e-300, 1e300),
)
def test_a_written_spec_reads_back_the_same(tmp_path_factory, prompt, source, steps, rate, clip):
    spec = load_spec(
        {
            "serve": {"prompt": prompt},
            "data": {"source": source},
            "train": {"steps": steps, "learning_rate": rate, "clip_norm": clip},
        }
    ).spec
    assert read_back(spec, tmp_path_factory.mktemp("spec")) == spec
