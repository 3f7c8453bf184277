import subprocess
import sys
from pathlib import Path

import pytest

import cnai.serve

CODE = "import sys; sys.path.insert(0, {src!r}); import cnai.serve; print('torch' in sys.modules)"


def test_the_http_part_does_not_load_torch():
    src = str(Path(cnai.serve.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(src=src)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_every_name_that_is_promised_is_there():
    assert all(getattr(cnai.serve, name) for name in cnai.serve.__all__)


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="no attribute `Nothing`"):
        _ = cnai.serve.Nothing
