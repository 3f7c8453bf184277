"""`ai-cli scale`: other parallel sizes for a run, while it lives or for its next start.

The sizes asked for lie in `scale.json` of the run folder, together with those that they replace.
The supervisor of a living run looks at the file; a later start lays it over the user's spec, as
long as that still asks for what it asked for then: the newest word of the user's counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.core.errors import RunError, SpecError
from cnai.core.files import read_bytes, write_atomically
from cnai.core.layout import ParallelPlan
from cnai.core.records import decode, encode_pretty
from cnai.core.runfolder import RunFolder
from cnai.core.runs import RunStatus, run_state
from cnai.core.spec import RunSpec, load_spec, to_yaml, value_of
from cnai.core.spec.keys import FIELDS
from cnai.flows.folder import run_path, spec_of
from cnai.flows.plan import plan_run

Value = str | int | float | bool | None
_HINT = "remove the file, or ask again with `ai-cli scale`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequest:
    """What lies in `scale.json`: values of the scalable keys, before and after."""

    before: dict[str, Value]
    after: dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What `ai-cli scale` did.

    Attributes:
        process: The supervisor that was asked to change over; None = the run is not alive, and its
            next start uses the layout.
    """

    run: str
    before: str
    after: str
    process: int | None


def scale_run(run: RunFolder, sets: Sequence[str]) -> Scaled:
    """Ask for other parallel sizes; the run is left as it is when they cannot be had.

    Args:
        sets: `KEY=VALUE` each, keys of `parallel` or `resources.ranks`.

    Raises:
        SpecError: A key is not one of those, or the sizes contradict each other or the model.
        PlanError: The layout does not fit the machines.
        RunError: The run is done.
    """
    now = spec_of(run)
    asked = load_spec(run.spec_file, sets=sets).spec
    _check_keys(now, asked)
    plan = plan_run(asked)
    if run_state(run).status is RunStatus.DONE:
        raise RunError(
            f"run `{run.name}` is trained to its last step",
            where=str(run.root),
            hint="there is nothing to scale; start another run with `ai-cli run`",
        )
    request = ScaleRequest(before=_base(run, now), after=sizes_of(asked))
    owner = run.owner()
    write_atomically(run.scale_file, encode_pretty(request))
    if owner is None:
        with run.locked():
            write_atomically(run.spec_file, to_yaml(asked))
    return Scaled(run=str(run.root), before=_layout_now(run), after=str(plan.layout), process=owner)


def scaled_spec(spec: RunSpec) -> RunSpec:
    """Lay what was asked with `ai-cli scale` over the spec of a run that is to go on.

    A spec that has been given other sizes since then counts as it stands.
    """
    run = RunFolder(run_path(spec))
    if not run.scale_file.is_file():
        return spec
    request = request_of(run)
    return with_sizes(spec, request.after) if sizes_of(spec) == request.before else spec


def forget_outdated(run: RunFolder, spec: RunSpec) -> None:
    """Remove a request that the user's newer spec overrules."""
    if run.scale_file.is_file() and request_of(run).after != sizes_of(spec):
        run.scale_file.unlink()


def request_of(run: RunFolder) -> ScaleRequest:
    """Read what was asked.

    Raises:
        DataError: The file is damaged.
    """
    path = run.scale_file
    return decode(ScaleRequest, read_bytes(path, hint=_HINT), where=str(path))


def sizes_of(spec: RunSpec) -> dict[str, Value]:
    """Return the values of the keys that may be scaled."""
    return {key: value_of(spec, key) for key in FIELDS if _may_scale(key)}


def with_sizes(spec: RunSpec, sizes: dict[str, Value]) -> RunSpec:
    """Return the spec with other sizes, checked as a whole."""
    plain = spec.model_dump(mode="json", exclude_defaults=True)
    return load_spec(
        plain, sets=[f"{key}={json.dumps(value)}" for key, value in sizes.items()]
    ).spec


def _may_scale(key: str) -> bool:
    return key.startswith("parallel.") or key == "resources.ranks"


def _check_keys(now: RunSpec, asked: RunSpec) -> None:
    for key in FIELDS:
        if not _may_scale(key) and value_of(now, key) != value_of(asked, key):
            raise SpecError(
                f"`{key}` cannot be changed by scaling a run",
                where=f"--set {key}",
                hint="keys of `parallel` and `resources.ranks` can; for others stop the run and "
                "start it with a changed spec",
            )


def _base(run: RunFolder, now: RunSpec) -> dict[str, Value]:
    """Return the sizes of the user's own spec, also when the run was scaled before."""
    if run.scale_file.is_file():
        earlier = request_of(run)
        if earlier.after == sizes_of(now):
            return earlier.before
    return sizes_of(now)


def _layout_now(run: RunFolder) -> str:
    if not run.plan_file.is_file():
        return ""
    plan = decode(ParallelPlan, run.plan_file.read_bytes(), where=str(run.plan_file))
    return str(plan.layout)
