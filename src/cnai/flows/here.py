"""Whether a spec can run on this machine at all."""

from __future__ import annotations

from cnai.core.errors import SpecError
from cnai.core.spec import RunSpec


def check_is_here(spec: RunSpec) -> None:
    """Refuse a spec whose machines are not this one.

    Raises:
        SpecError: It names Kubernetes, another device, or several nodes.
    """
    asked = spec.resources
    if asked.on != "local":
        raise SpecError(
            f"runs on `{asked.on}` are not built yet",
            where="resources.on",
            hint="run on this machine with `--on local`",
        )
    if asked.device not in {"auto", "cpu"} or asked.nodes > 1:
        raise SpecError(
            f"the spec is for {asked.nodes} x {asked.device}, and this machine is not that",
            where="resources.device",
            hint="plan it with `ai-cli plan`; to run it here set `resources.device: auto` and "
            "`resources.nodes: 1`",
        )
