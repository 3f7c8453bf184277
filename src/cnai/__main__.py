"""Runs `ai-cli` as `python -m cnai`."""

import sys

from cnai.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
