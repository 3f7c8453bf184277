"""A process that quantizes, and may die at a chosen point: SOURCE TARGET [STAGE DONE]."""

import os
import signal
import sys
from pathlib import Path

from cnai.compress.decoder import Guard, quantize
from cnai.core.errors import CnaiError
from models_shapes import TINY, tokens


def main() -> int:
    """Quantize; return the exit code that the command would have."""
    source, target, *point = sys.argv[1:]

    def progress(stage: str, done: int, _total: int) -> None:
        if point and stage == point[0] and done >= int(point[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        rows = tokens(TINY, rows=6).numpy()
        guard = Guard(allowed_loss=0.1)
        quantize(Path(source), Path(target), rows, guard=guard, progress=progress)
    except CnaiError as error:
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
