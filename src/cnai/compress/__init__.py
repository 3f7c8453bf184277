"""Makes a trained model small and proves what that cost.

A model of any known format goes in; the same model with smaller weights comes out, with a report of
what each weight became and what was measured. It never replaces a target by something that is not
whole, never trusts a number that was not measured on the files as they lie on the disk, and never
trains. What needs torch is in `compress.decoder`.
"""

from cnai.compress.dry_run import DryRun, dry_run
from cnai.compress.formats import FILES, Format, recognise
from cnai.compress.guard import Order
from cnai.compress.manifest import check_whole, read_artifact
from cnai.compress.quantize_file import quantize_file
from cnai.compress.report import CompressionReport, report_files
from cnai.compress.target import check_target
from cnai.compress.weight_only import Scheme, Wishes

__all__ = [
    "FILES",
    "CompressionReport",
    "DryRun",
    "Format",
    "Order",
    "Scheme",
    "Wishes",
    "check_target",
    "check_whole",
    "dry_run",
    "quantize_file",
    "read_artifact",
    "recognise",
    "report_files",
]
