"""The spec: the one text in which a user says what a run is to be.

In comes a YAML or JSON file or a dict, with `--set` flags and the user's own configuration; out
comes a checked, frozen `RunSpec` that knows where each value came from. It never looks at
machines, data or the network: what needs those is the planner's business.
"""

from cnai.core.spec.identity import digest, is_free, same_work, value_of
from cnai.core.spec.load import LoadedSpec, load_spec, user_config_path
from cnai.core.spec.sections import RunSpec
from cnai.core.spec.writing import to_yaml

__all__ = [
    "LoadedSpec",
    "RunSpec",
    "digest",
    "is_free",
    "load_spec",
    "same_work",
    "to_yaml",
    "user_config_path",
    "value_of",
]
