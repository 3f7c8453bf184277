"""What to do about each class of fault."""

from __future__ import annotations

from dataclasses import replace

from cnai.core.events import Repair
from cnai.core.runfolder import RunFolder
from cnai.diagnose.witness import Witness

_PLAN = "ai-cli plan {spec}"

REPAIRS: dict[str, tuple[Repair, ...]] = {
    "disk_full": (
        Repair(title="free space on the disk of the run", command="df -h {run}"),
        Repair(title="keep fewer checkpoints", spec_patch={"checkpoint.keep": 1}),
    ),
    "host_oom": (
        Repair(title="let each rank hold less: smaller train.batch, more microbatches",
               command=_PLAN),
        Repair(title="put fewer ranks on one machine"),
    ),
    "gpu_oom": (
        Repair(title="let each rank hold less: smaller train.batch, more microbatches",
               command=_PLAN),
        Repair(title="shard the parameters over the data axis",
               spec_patch={"parallel.data_parallel.sharding": "full"}),
    ),
    "killed": (
        Repair(title="see who sent SIGKILL: the kernel for memory, a scheduler, or a person",
               command="dmesg --ctime | grep -i -E 'oom|killed process'"),
    ),
    "ckpt_corrupt": (
        Repair(title="go back to the checkpoint before", command="ai-cli run {spec}", safe=True),
    ),
    "port_in_use": (
        Repair(title="end the process that holds the port", command="ss -ltnp"),
    ),
    "rendezvous_failure": (
        Repair(title="check that every rank started and that the machines reach each other"),
    ),
    "collective_timeout": (
        Repair(title="look at the rank that stayed silent: it hangs or is very late"),
        Repair(title="allow longer waits if a long phase is expected",
               spec_patch={"train.timeout_seconds": 1800}),
    ),
    "nan_loss": (
        Repair(title="lower train.learning_rate and clip the gradient",
               spec_patch={"train.clip_norm": 1.0}),
        Repair(title="compute in float32", spec_patch={"train.precision": "float32"}),
    ),
    "user_code_error": (Repair(title="mend the code{place}"),),
    "data_error": (Repair(title="check the data that the line names{place}"),),
    "config_error": (Repair(title="correct the spec", command="ai-cli validate {spec}"),),
    "dependency_import": (
        Repair(title="install the module that the line names, in matching versions"),
    ),
    "permission_denied": (
        Repair(title="make the place that the line names writable, or choose another output"),
    ),
    "native_crash": (
        Repair(title="run once more with PYTHONFAULTHANDLER=1 to see where it crashed"),
    ),
    "user_abort": (),
    "preempted": (),
}  # fmt: skip
"""Repairs by class; `{run}`, `{spec}` and `{place}` are filled in."""

TRY_AGAIN = frozenset({
    "disk_full", "host_oom", "killed", "port_in_use", "rendezvous_failure", "collective_timeout",
    "native_crash", "user_abort", "preempted",
})  # fmt: skip
"""Classes that may be gone when the same command is run again."""

_AGAIN_FIRST = frozenset({"killed", "preempted", "user_abort"})


def repairs_for(witness: Witness, run: RunFolder, *, recovered: bool = False) -> tuple[Repair, ...]:
    """Return the repairs of a fault, best first, with this run's own paths.

    A run that recovered need not be run again.
    """
    fault = witness.fault or ""
    own = (Repair(title=witness.hint),) if witness.hint else ()
    known = tuple(_filled(repair, witness, run) for repair in REPAIRS.get(fault, ()))
    helps = fault in TRY_AGAIN or fault not in REPAIRS
    again = (_again(run),) if helps and not recovered else ()
    return own + (again + known if fault in _AGAIN_FIRST else known + again)


def _again(run: RunFolder) -> Repair:
    steps = run.checkpoint_steps()
    place = f"from the checkpoint of step {steps[-1]}" if steps else "from the start"
    return Repair(
        title=f"run it again; it goes on {place}", command=f"ai-cli run {run.spec_file}", safe=True
    )


def _filled(repair: Repair, witness: Witness, run: RunFolder) -> Repair:
    place = f" at {witness.frame}" if witness.frame else ""
    words = {"{place}": place, "{run}": str(run.root), "{spec}": str(run.spec_file)}
    title, command = repair.title, repair.command or ""
    for word, value in words.items():
        title, command = title.replace(word, value), command.replace(word, value)
    return replace(repair, title=title, command=command or None)
