"""How tests look at the mistakes of a spec."""

from cnai.core.errors import SpecError
from cnai.core.spec import load_spec


def mistakes(source, **settings):
    """Return each mistake as `where | message | hint`."""
    try:
        load_spec(source, **settings)
    except SpecError as error:
        return [f"{one.where} | {one.message} | {one.hint}" for one in (error, *error.others)]
    return []
