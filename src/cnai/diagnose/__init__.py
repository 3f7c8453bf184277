"""Find the root cause of a run that broke off, and what to do about it.

In go a run folder or logs of any kind; out comes a Diagnosis: the class of fault, the rank and line
where it began, who only followed, and repairs; or `healthy`, or `unknown`. It never changes the run
and never guesses: what no rule knows is called unknown.
"""

from cnai.diagnose.diagnose import diagnose_run
from cnai.diagnose.diagnosis import Diagnosis, Guess, LogLine, Verdict
from cnai.diagnose.faults import FAULTS, Fault, fault_of
from cnai.diagnose.logs import diagnose_streams
from cnai.diagnose.readers import diagnose_logs

__all__ = [
    "FAULTS",
    "Diagnosis",
    "Fault",
    "Guess",
    "LogLine",
    "Verdict",
    "diagnose_logs",
    "diagnose_run",
    "diagnose_streams",
    "fault_of",
]
