"""Spec, flags and user configuration to one checked RunSpec.

Precedence, highest first: `--set`, the spec, the user's configuration, the defaults. All mistakes
of a spec are told in one error, so that it is mended in one go; contradictions between keys are
only looked for once each key by itself is sound.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cnai.core.errors import SpecError
from cnai.core.spec.checks import contradictions
from cnai.core.spec.keys import FIELDS, SECTIONS, children, nearest
from cnai.core.spec.layers import Layer, Setting
from cnai.core.spec.sections import SPEC_VERSION, RunSpec
from cnai.core.spec.words import choices, is_text, is_truth, range_words, type_words, value_words


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A spec with the source of each value.

    Attributes:
        origins: For every key that holds a value: `default`, `spec.yaml:12` (file and line),
            `spec` (a dict), `--set` or `user config`.
        path: The file, None for a dict.
    """

    spec: RunSpec
    origins: dict[str, str]
    path: Path | None


def load_spec(
    source: Path | str | Mapping[str, Any],
    *,
    sets: Sequence[str] = (),
    user_config: Path | None = None,
) -> LoadedSpec:
    """Read, merge and check a spec.

    Args:
        source: A YAML or JSON file, or the same keys as a dict. The three sections of `parallel`
            may also stand at the top.
        sets: `a.b=c` each, laid over the spec.
        user_config: The user's own defaults; a file that is absent says nothing. None = none are
            read (the command line passes `user_config_path()`).

    Raises:
        SpecError: Something is wrong; further mistakes are in its `others`.
    """
    path = None if isinstance(source, Mapping) else Path(source)
    layers = []
    if user_config is not None and user_config.is_file():
        layers.append(Layer.from_file(user_config, origin="user config"))
    layers.append(
        Layer.from_mapping(source) if isinstance(source, Mapping) else Layer.from_file(Path(source))
    )
    layers.extend(Layer.from_flag(text) for text in sets)
    settings = {key: one for layer in layers for key, one in layer.settings.items()}
    _refuse_newer(settings)
    mistakes = [mistake for layer in layers for mistake in layer.mistakes]
    spec = _build(settings, mistakes)
    origins = {key: settings[key].origin if key in settings else "default" for key in FIELDS}
    return LoadedSpec(spec=spec, origins=origins, path=path)


def user_config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file with the user's own defaults, whether or not it is there."""
    folder = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.path.expandvars(folder)).expanduser() / "cnai" / "config.yaml"


def _refuse_newer(settings: Mapping[str, Setting]) -> None:
    """Stop before keys of a newer format look like typos."""
    setting = settings.get("version")
    if setting and type(setting.value) is int and setting.value > SPEC_VERSION:
        raise SpecError(
            f"the spec has version {setting.value}, but this cnai knows only up to {SPEC_VERSION}",
            where=setting.place,
            hint="upgrade with `pip install --upgrade cnai`",
        )


def _build(settings: Mapping[str, Setting], mistakes: list[SpecError]) -> RunSpec:
    """Make the spec of the settings, or raise all mistakes as one error."""
    known = {key: one for key, one in settings.items() if key in FIELDS}
    try:
        spec = RunSpec.model_validate(_nested(known), strict=True)
    except ValidationError as error:
        wrong = {_field_key(one["loc"]) for one in error.errors()}
        raise _together(mistakes + _key_mistakes(settings, wrong)) from error
    mistakes = mistakes + _key_mistakes(settings, set()) or contradictions(spec, known)
    if mistakes:
        raise _together(mistakes)
    return spec


def _key_mistakes(settings: Mapping[str, Setting], wrong: set[str]) -> list[SpecError]:
    """Tell of unknown keys and wrong values in the order in which they stand."""
    return [
        _wrong_value(one) if key in wrong else _unknown(one)
        for key, one in settings.items()
        if key in wrong or key not in FIELDS
    ]


def _together(mistakes: list[SpecError]) -> SpecError:
    first, *others = mistakes
    return SpecError(first.message, where=first.where, hint=first.hint, others=tuple(others))


def _nested(settings: Mapping[str, Setting]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, setting in settings.items():
        *sections, name = key.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = setting.value
    return tree


def _field_key(location: tuple[int | str, ...]) -> str:
    """Return the key of a pydantic location; what lies inside a value belongs to the value."""
    parts = [str(part) for part in location]
    while ".".join(parts) not in FIELDS:
        parts.pop()
    return ".".join(parts)


def _unknown(setting: Setting) -> SpecError:
    key = setting.key
    if key in SECTIONS:
        return SpecError(
            f"`{key}` is `{value_words(setting.value)}`, but it is a section with keys of its own",
            where=setting.place,
            hint=f"its keys are {_listing(key)}",
        )
    parent = key.rpartition(".")[0]
    if parent in FIELDS:
        return SpecError(
            f"`{parent}` has a key `{key.rpartition('.')[2]}`, but it wants "
            f"{type_words(FIELDS[parent])}",
            where=setting.place,
            hint=f"see `ai-cli explain {parent}`",
        )
    match = nearest(key)
    if match:
        hint = f"did you mean `{match}`?"
    elif parent in SECTIONS:
        hint = f"the keys of `{parent}` are {_listing(parent)}"
    else:
        hint = f"the sections are {_listing('')}; see `ai-cli explain`"
    return SpecError(f"unknown key `{key}`", where=setting.place, hint=hint)


def _listing(section: str) -> str:
    return ", ".join(f"`{key.rpartition('.')[2]}`" for key in children(section))


def _wrong_value(setting: Setting) -> SpecError:
    """Say what a key wants; the only place where pydantic's findings become words."""
    field = FIELDS[setting.key]
    limits = range_words(field)
    given = "empty" if setting.value is None else f"`{value_words(setting.value)}`"
    return SpecError(
        f"`{setting.key}` is {given}, but it wants {type_words(field)}"
        + (f", {limits}" if limits else ""),
        where=setting.place,
        hint=_value_hint(setting),
    )


def _value_hint(setting: Setting) -> str:
    field, value = FIELDS[setting.key], setting.value
    name = setting.key.rpartition(".")[2]
    if is_text(field) and isinstance(value, bool | int | float):
        return f'put it in quotes: `{name}: "{value_words(value)}"`'
    if is_truth(field):
        said = str(value).lower()
        yes = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false"}
        return f"write `{name}: {yes.get(said, 'false' if said == '0' else 'true')}`"
    match = get_close_matches(str(value).lower(), [one.lower() for one in choices(field)], n=1)
    if match:
        meant = next(one for one in choices(field) if one.lower() == match[0])
        return f"did you mean `{meant}`?"
    default = f"the default is `{value_words(field.default)}`; " if field.default else ""
    return f"{default}see `ai-cli explain {setting.key}`"
