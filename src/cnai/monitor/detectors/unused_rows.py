"""More than half of the rows of an embedding are never asked for.

That is how a tokenizer that does not belong to the model looks, or ids that were cut off. Rare
tokens are no fault: the data must have been long enough for each row to come up many times.
"""

from __future__ import annotations

from typing import ClassVar

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker

USED = 0.5
IDS_A_ROW = 20.0


class UnusedRows(Speaker):
    """Speaks when half of the rows did not come up in 20 ids for each of them."""

    name: ClassVar[str] = "unused_rows"

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        used = dict(zip(event.names("rows_used"), event.group("rows_used"), strict=True))
        for name, ids in zip(event.names("ids_a_row"), event.group("ids_a_row"), strict=True):
            share = float(used.get(name, 1.0))
            if ids >= IDS_A_ROW and share < USED:
                return self._found(
                    event,
                    event.step,
                    f"{1 - share:.0%} of the rows of `{name}` are never asked for",
                    f"{ids:.0f} ids came for each row",
                    advice=("look whether the tokenizer is that of the model",),
                    layer=name,
                )
        return None
