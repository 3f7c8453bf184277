"""A process that compresses a folder and dies once some bytes are done: SOURCE TARGET BYTES."""

import os
import signal
import sys
from pathlib import Path

from cnai.compress.folder import FolderWish
from cnai.compress.folder.unmeasured import quantize_unmeasured


def main() -> None:
    """Compress until the point of death."""
    source, target, limit = sys.argv[1:]

    def progress(_stage: str, done: int, _total: int) -> None:
        if done >= int(limit):
            os.kill(os.getpid(), signal.SIGKILL)

    quantize_unmeasured(Path(source), Path(target), FolderWish(), why="test", progress=progress)


if __name__ == "__main__":
    main()
