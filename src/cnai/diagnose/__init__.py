"""Find the root cause of a run that broke off, and what to do about it.

In goes a run folder; out comes a Diagnosis: the class of fault, the rank and line where it began,
who only followed, and repairs; or `healthy`, or `unknown`. It never changes the run and never
guesses: what no rule knows is called unknown.
"""

from cnai.diagnose.diagnose import diagnose_run
from cnai.diagnose.diagnosis import Diagnosis, LogLine, Verdict
from cnai.diagnose.signatures import FAULTS

__all__ = ["FAULTS", "Diagnosis", "LogLine", "Verdict", "diagnose_run"]
