"""How tests run `ai-cli`: in this process, with what it wrote."""

import json
from dataclasses import dataclass

from cnai.cli.app import main


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object on stdout."""
        return json.loads(self.out)


def runner(capsys):
    """Return a function that runs `ai-cli WORDS...`."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        written = capsys.readouterr()
        return Ran(code=code, out=written.out, err=written.err)

    return run
