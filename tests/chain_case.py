"""A tiny chain that tests run for real: a folder of text, a spec, and `ai-cli` as a process."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import yaml

import cnai
from cnai.core.events import RankReady, StepDone
from cnai.core.runfolder import RunFolder, read_events

SPEC = {
    "name": "tiny",
    "model": {"layers": 2, "width": 32, "heads": 2, "vocab": 300, "sequence": 32},
    "data": {"source": "texts", "validation_fraction": 0.2, "block_rows": 32},
    "parallel": {"data_parallel": {"size": 2}},
    "train": {"steps": 8, "batch": 4, "warmup_steps": 2},
    "resources": {"ranks": 2},
    "checkpoint": {"every_steps": 4},
    "compress": {"validation_sequences": 24},
    "serve": {"prompt": "the cat", "max_tokens": 6},
}
SOURCES = str(Path(cnai.__file__).parents[1])
_WORDS = "the cat sat on a mat and ran to see what his dog had found in our old red barn by lake"
MARK = "CNAI_TESTMARK"


def write_texts(folder, files=48):
    """Write sentences of known words, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(0)
    for number in range(files):
        lines = (" ".join(dice.choices(_WORDS.split(), k=dice.randint(4, 9))) for _ in range(12))
        (folder / f"{number}.txt").write_text(". ".join(lines) + ".\n")


def write_spec(folder, changes=None, name="run.yaml"):
    """Write the tiny spec; `changes` maps dotted keys to values, None takes a section out."""
    spec = json.loads(json.dumps(SPEC))
    for key, value in (changes or {}).items():
        *sections, last = key.split(".")
        place = spec
        for section in sections:
            place = place.setdefault(section, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    path = folder / name
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def settle(folder, patch):
    """Go to a folder with text and a spec, and let processes find this package there."""
    patch.chdir(folder)
    patch.setenv("PYTHONPATH", SOURCES)
    patch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    patch.delenv("CNAI_DEBUG", raising=False)
    write_texts(folder / "texts")
    write_spec(folder)


class Command:
    """`ai-cli WORDS...` as a process in a session of its own, as a shell starts it."""

    def __init__(self, *words, folder):
        self.mark = uuid.uuid4().hex
        self._out, self._err = (folder / f".{self.mark}.{name}" for name in ("out", "err"))
        environment = {
            **os.environ,
            "PYTHONPATH": SOURCES,
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            MARK: self.mark,
        }
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cnai", *map(str, words)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self):
        return self._out.read_text()

    @property
    def err(self):
        return self._err.read_text()

    @property
    def json(self):
        """The one JSON object on stdout."""
        return json.loads(self.out)

    def wait(self, seconds=120):
        """Wait for the end; return the exit code."""
        return self.process.wait(seconds)

    def press_ctrl_c(self):
        """Do what a terminal does: signal the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def until(self, ready, seconds=60):
        """Wait until `ready()` returns something true, and return that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = ready()
            if found:
                return found
            if self.process.poll() is not None:
                raise AssertionError(f"ended early with {self.process.returncode}:\n{self.err}")
            time.sleep(0.01)
        raise AssertionError(f"nothing came:\n{self.err}")

    def url(self):
        """The address that `--json` told."""
        return self.until(lambda: self.out and self.json["url"])

    def end(self):
        """Kill what is left; for the end of a test."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)


def left_of(command, seconds=20):
    """Return what still runs of a command's processes, after a moment of patience."""
    return left(command.mark, seconds)


def left(mark, seconds=5):
    """Return what still runs of the processes with a mark, after a moment of patience."""
    deadline = time.monotonic() + seconds
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _marked(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(
                    f"{process.pid} {process.ppid()} {process.status()} {' '.join(process.cmdline())}"
                )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def pids(run, attempt=0):
    """Return the process of each rank of an attempt, as the ranks told."""
    events = (e for e in read_events(run) if isinstance(e, RankReady) and e.attempt == attempt)
    return {event.rank: event.pid for event in events}


def reached(run, step):
    """Tell whether some rank has done a step."""
    return any(isinstance(e, StepDone) and e.step >= step for e in read_events(run))


def curve(run):
    """Return the loss of each step as it was committed last."""
    return {e.step: e.loss for e in read_events(run) if isinstance(e, StepDone) and e.rank == 0}


def run_in(folder, name="tiny"):
    return RunFolder(folder / "runs" / name)


def logs(run):
    """Return what the ranks printed."""
    return "".join(f"--- {log.name}\n{log.read_text()}" for log in sorted(run.logs.iterdir()))
