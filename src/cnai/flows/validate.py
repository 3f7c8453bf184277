"""`ai-cli validate`: from paper to the full job, and nothing spent on a rung above a failed one.

Rung 0 plans at full size. Rung 1 trains a small copy of the layout as processes of this machine,
beside a single process: losses, a killed rank, a checkpoint in another layout. Rung 2 builds the
full model without memory and holds what each rank gets against the plan. Rung 3, growing parts of
the real machines, is planned with its gates and its price.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from cnai.core.errors import CnaiError
from cnai.core.events import RankReady, StepDone
from cnai.core.files import write_atomically
from cnai.core.layout import ParallelPlan
from cnai.core.records import encode_pretty, to_dict
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.core.units import format_bytes, format_seconds
from cnai.flows.beginning import Beginning
from cnai.flows.folder import opened_run
from cnai.flows.listener import Listener, Silence
from cnai.flows.machines import fleet_of
from cnai.flows.plan import bill_of, exact_request, plan_run
from cnai.flows.rungs import PLANNED, SKIPPED, Gate, Ladder, Rung, judged
from cnai.flows.shrunk import SAVE_EVERY, shrunk, shrunk_layout
from cnai.monitor import RunProgress
from cnai.plan import PlanRequest
from cnai.plan.machines import Machines

TOLERANCE = 1e-5
"""Largest difference of a loss from that of the single process, in nats."""
NAMES = ("on paper", "a small copy here", "the full model without memory", "growing machines")


def validate_run(spec: RunSpec, listener: Listener) -> Ladder:
    """Climb as far as this machine allows; the evidence is kept in the folder of the ladder."""
    folder = Path(spec.output) / f"{spec.name}-validate"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    rungs: list[Rung] = []
    listener.stage(f"rung 0: {NAMES[0]}")
    first, plan = _on_paper(spec)
    rungs.append(first)
    layout = str(plan.layout) if plan else ""
    if plan is not None and first.status != "failed":
        request = exact_request(spec, plan)
        climbs: tuple[Callable[[], list[Gate]], ...] = (
            lambda: small_copy(spec, request, plan, folder, listener),
            lambda: without_memory(spec, plan),
        )
        for number, climb in enumerate(climbs, start=1):
            listener.stage(f"rung {number}: {NAMES[number]}")
            rungs.append(_climbed(number, climb))
            if rungs[-1].status == "failed":
                break
    good = rungs[-1].status != "failed" and len(rungs) == 3
    rungs.extend(
        Rung(number=number, name=NAMES[number], status=SKIPPED, gates=())
        for number in range(len(rungs), 3)
    )
    rungs.append(_growing(spec, plan) if good and plan else _not_yet())
    ladder = Ladder(name=spec.name, layout=layout, folder=str(folder), rungs=tuple(rungs))
    write_atomically(folder / "evidence.json", encode_pretty(to_dict(ladder)))
    return ladder


def _climbed(number: int, climb: Callable[[], list[Gate]]) -> Rung:
    start = time.monotonic()
    try:
        gates = climb()
    except CnaiError as error:
        gates = [
            Gate(name="it runs", expected="no error", measured=error.message, passed=False,
                 hint=error.hint)
        ]  # fmt: skip
    return judged(number, NAMES[number], gates, time.monotonic() - start)


def _on_paper(spec: RunSpec) -> tuple[Rung, ParallelPlan | None]:
    """Return rung 0, and the plan; None = there is none."""
    start = time.monotonic()
    try:
        plan = plan_run(spec, on_paper=True)
    except CnaiError as error:
        gate = Gate(
            name="rules and memory", expected="a layout that fits", measured=error.message,
            passed=False, hint=error.hint,
        )  # fmt: skip
        return judged(0, NAMES[0], [gate], time.monotonic() - start), None
    machines = Machines.of(fleet_of(spec))
    usable, need = machines.usable_bytes(plan.layout.ranks), plan.peak.memory.total_bytes
    step = format_seconds(plan.estimate.step_seconds) if plan.estimate else "not known"
    gates = [
        Gate(name="rules", expected="every size divides what it cuts", measured=str(plan.layout),
             passed=True),
        Gate(name="memory", expected=f"at most {format_bytes(usable)} a rank",
             measured=format_bytes(need), passed=need <= usable),
        Gate(name="time", expected="known before it is paid for", measured=f"{step} a step",
             passed=True),
    ]  # fmt: skip
    return judged(0, NAMES[0], gates, time.monotonic() - start), plan


def small_copy(
    spec: RunSpec, request: PlanRequest, plan: ParallelPlan, folder: Path, listener: Listener
) -> list[Gate]:
    """Train a small copy alone, laid out with a rank killed, and resharded; compare the losses."""
    parallel = shrunk_layout(request, plan)
    alone = losses_of(_trained(shrunk(spec, request, None, folder, "single"), Silence()))
    laid = shrunk(spec, request, parallel, folder, "laid-out")
    killer = Killer(after=2)
    run = _trained(laid, killer)
    killer.run = None
    together = losses_of(run)
    gates = [
        same_losses("loss under the layout", alone, together),
        Gate(
            name="a killed rank", expected="training goes on to the last step",
            measured=f"process {killer.killed} killed, {len(together)} steps done",
            passed=killer.killed is not None and len(together) == len(alone),
            hint="see the logs in " + str(run.logs),
        ),
    ]  # fmt: skip
    listener.note(f"{gates[0].measured}")
    gates.append(_resharded(spec, request, run, alone))
    return gates


def _resharded(
    spec: RunSpec, request: PlanRequest, run: RunFolder, alone: dict[int, float]
) -> Gate:
    """Go on from a checkpoint of the layout as a single process."""
    folder = run.root.parent
    single = shrunk(spec, request, None, folder, "resharded")
    copy = RunFolder(folder / "resharded")
    shutil.copytree(run.root, copy.root)
    for step in copy.checkpoint_steps():
        if step > SAVE_EVERY:
            shutil.rmtree(copy.checkpoint(step))
    for stale in (copy.spec_file, copy.plan_file, copy.scale_file, copy.results / "train.json"):
        stale.unlink(missing_ok=True)
    for events in copy.events.iterdir():
        events.unlink()
    later = losses_of(_trained(single, Silence()))
    expected = {step: loss for step, loss in alone.items() if step > SAVE_EVERY}
    return same_losses("a checkpoint in another layout", expected, later)


def same_losses(name: str, expected: dict[int, float], found: dict[int, float]) -> Gate:
    """Return the gate that two curves are the same."""
    hint = "set the sizes of `parallel` to 1 one after the other; the one that helps is at fault"
    if expected.keys() != found.keys():
        return Gate(
            name=name, expected=f"losses of steps {_span(expected)}",
            measured=f"losses of steps {_span(found)}", passed=False, hint=hint,
        )  # fmt: skip
    off = max(abs(expected[step] - found[step]) for step in expected)
    return Gate(
        name=name, expected=f"as of one process, within {TOLERANCE:g} nats",
        measured=f"off by {off:.1e} nats at most in {len(found)} steps",
        passed=off <= TOLERANCE, hint=hint,
    )  # fmt: skip


def _span(losses: dict[int, float]) -> str:
    return f"{min(losses)} to {max(losses)}" if losses else "none"


def _trained(spec: RunSpec, listener: Silence) -> RunFolder:
    with opened_run(spec, fresh=False) as run:
        if isinstance(listener, Killer):
            listener.run = run
        beginning = Beginning(spec, run, listener)
        beginning.train(plan_run(spec), beginning.data())
        return run


def losses_of(run: RunFolder) -> dict[int, float]:
    """Return the loss of each step as it was last done."""
    return {event.step: event.loss for event in read_events(run) if isinstance(event, StepDone)}


class Killer(Silence):
    """Ends one rank of a training that has done some steps, once."""

    def __init__(self, after: int) -> None:
        self.run: RunFolder | None = None
        self.killed: int | None = None
        self._after = after

    def training(self, progress: RunProgress) -> None:
        """Kill the last rank when the time has come."""
        if self.killed is not None or self.run is None or progress.step < self._after:
            return
        pids = {
            event.rank: event.pid for event in read_events(self.run) if isinstance(event, RankReady)
        }
        if pids:
            pid = pids[max(pids)]
            os.kill(pid, signal.SIGKILL)
            self.killed = pid


def without_memory(spec: RunSpec, plan: ParallelPlan) -> list[Gate]:
    """Build the full model on the meta device, and hold each rank's part against the plan."""
    from cnai.flows.rehearse import rehearse_run  # noqa: PLC0415 - loads torch

    found = rehearse_run(spec, plan)
    stages = {stage.index: stage for stage in plan.stages}
    gates = []
    for one in found.ranks:
        planned = sum(stages[index].parameters for index in one.stages)
        gates.append(
            Gate(
                name=f"parameters at place {one.pipeline}", expected=f"{planned:,}",
                measured=f"{one.whole_parameters:,}",
                passed=abs(one.whole_parameters - planned) <= 0.001 * planned,
                hint="the plan and the build count differently: report this with the spec",
            )
        )  # fmt: skip
    usable = Machines.of(fleet_of(spec)).usable_bytes(plan.layout.ranks)
    fullest = max(found.memory_bytes)
    gates.append(
        Gate(
            name="memory of the fullest rank", expected=f"at most {format_bytes(usable)}",
            measured=format_bytes(fullest), passed=fullest <= usable,
            hint="recompute more, or shard the parameters",
        )
    )  # fmt: skip
    return gates


def _growing(spec: RunSpec, plan: ParallelPlan) -> Rung:
    """Return what would be done on the real machines, part by part, with its price."""
    nodes = spec.resources.nodes
    parts = sorted({max(1, nodes // 8), max(1, nodes // 4), max(1, nodes // 2), nodes})
    step = plan.estimate.step_seconds if plan.estimate else 0.0
    gates = [
        Gate(
            name=f"{part} of {nodes} nodes, 50 steps",
            expected=f"a step within 15 % of {format_seconds(step)}, loss within the band of the "
            "smaller parts, goodput above 90 %, under 2 % of the time waiting for data",
        )
        for part in parts
    ]
    bill, cost = bill_of(spec, plan), ""
    if bill is not None:
        share = 50 * sum(parts) / nodes / max(1, spec.steps)
        cost = f"{bill.device_hours * share:,.1f} device hours"
        cost += f", about ${bill.dollars * share:,.0f}" if bill.dollars else ""
    return Rung(number=3, name=NAMES[3], status=PLANNED, gates=tuple(gates), cost=cost)


def _not_yet() -> Rung:
    return Rung(number=3, name=NAMES[3], status=SKIPPED, gates=())
