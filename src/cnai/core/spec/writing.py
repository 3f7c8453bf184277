"""A spec back to YAML: what differs from the defaults, always with name and version."""

from __future__ import annotations

from typing import Any

import yaml

from cnai.core.spec.dialect import Dumper
from cnai.core.spec.sections import RunSpec


def to_yaml(spec: RunSpec) -> bytes:
    """Return the spec as YAML that `load_spec` reads back the same."""
    changed: dict[str, Any] = spec.model_dump(exclude_defaults=True)
    plain = {"version": spec.version, "name": spec.name, **_lists(changed)}
    text: str = yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=99)
    return text.encode()


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value
