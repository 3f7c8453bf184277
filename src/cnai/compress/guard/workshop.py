"""Makes the models that the guard tries, each a file that can be run as it lies on the disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from cnai.compress.bases import is_fixed_basis
from cnai.compress.channels import quantize_channels, rounding_error
from cnai.compress.formats import Format, open_model
from cnai.compress.guard.trials import Mode
from cnai.compress.onnx_int8 import (
    OpSet,
    Ranges,
    calibrate,
    calibrated_tensors,
    dynamic_nodes,
    prepare,
    static_nodes,
    write_dynamic,
    write_static,
)
from cnai.compress.onnx_int8.selection import View, attribute, between, weight_of
from cnai.compress.weight_only import Scheme, WeightReport, Wishes, shrink
from cnai.core.errors import CnaiError, RunError
from cnai.core.files import saving

Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model to make.

    Attributes:
        groups: What computes in INT8; () for weight-only.
        share: Share of the numbers that ranges hold; None = all of them.
        back: Groups left out, for the report.
    """

    name: str
    mode: Mode
    wishes: Wishes
    groups: tuple[str, ...] = ()
    share: float | None = None
    back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A model that was made."""

    path: Path
    weights: tuple[WeightReport, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the file and of the file of weights beside it."""
        return sum(one.stat().st_size for one in self.path.parent.iterdir())


@dataclass(kw_only=True)
class Workshop:
    """Makes candidates of one source.

    Args:
        source: The model file.
        folder: Where models are made; each gets a folder of its own.
        calibration: Inputs of runs to find ranges on; () = none.
    """

    kind: Format
    source: Path
    folder: Path
    name: str
    calibration: Sequence[Feeds] = ()
    _made: int = field(default=0, init=False)

    def make(self, candidate: Candidate) -> Made:
        """Write a candidate.

        Raises:
            CnaiError: It cannot be made; the message says why.
        """
        target = self._fresh()
        if candidate.mode is Mode.WEIGHT_ONLY:
            model = open_model(self.source)
            weights = shrink(model, candidate.wishes)
            model.save(target)
            return Made(path=target, weights=weights)
        self._write(self._computed(candidate), target)
        model = open_model(target)
        rest = shrink(model, candidate.wishes)
        model.save(target)
        return Made(path=target, weights=self._reports(candidate, rest))

    @contextmanager
    def alone(self, candidate: Candidate, group: str) -> Iterator[Path]:
        """Write the source with one group in INT8 arithmetic and all else in floats, for a while.

        Of a weight-only candidate one weight is INT8, and the candidate's others are float16.
        """
        if candidate.mode is Mode.WEIGHT_ONLY:
            half = candidate.wishes.half | (set(candidate.groups) - {group})
            single = replace(candidate, wishes=replace(candidate.wishes, half=half))
            target = self.make(single).path
        else:
            target = self._fresh()
            self._write(self._computed(candidate, [group]), target)
        try:
            yield target
        finally:
            shutil.rmtree(target.parent)

    def _fresh(self) -> Path:
        self._made += 1
        target = self.folder / f"trial-{self._made}" / self.name
        with saving(target):
            target.parent.mkdir(parents=True)
        return target

    def groups(self, mode: Mode, ops: OpSet, wishes: Wishes) -> tuple[str, ...]:
        """Return what can compute in INT8: nodes with weights, and kinds of nodes between them.

        Raises:
            RunError: The model cannot be prepared for it.
        """
        skip = self._floats(wishes)
        if mode is Mode.DYNAMIC:
            return dynamic_nodes(self.prepared, skip=skip)
        nodes = static_nodes(self.prepared, skip=skip)
        kinds = {f"all {one.op_type}" for one in between(self.prepared)}
        return (*nodes, *sorted(kinds)) if ops is OpSet.ALL and nodes else nodes

    @cached_property
    def prepared(self) -> Any:
        """The model, ready for INT8 arithmetic."""
        if self.kind is not Format.ONNX:
            raise RunError(
                f"INT8 arithmetic of {self.kind} models is not written yet",
                where=str(self.source),
                hint="weight-only INT8 is; for arithmetic give the model as ONNX",
            )
        return prepare(self.source)

    @cached_property
    def ranges(self) -> Ranges:
        """What the tensors of the model hold on the calibration data."""
        try:
            return calibrate(self.prepared, calibrated_tensors(self.prepared), self.calibration)
        except CnaiError:
            raise
        except Exception as error:
            raise RunError(
                f"ONNX Runtime cannot run the prepared model: {str(error).splitlines()[-1]}",
                where=str(self.source),
                hint="weight-only INT8 is possible, with `--mode weight-only`",
            ) from error

    def _computed(self, candidate: Candidate, groups: Sequence[str] | None = None) -> Any:
        chosen = candidate.groups if groups is None else groups
        if candidate.mode is Mode.DYNAMIC:
            return write_dynamic(self.prepared, set(chosen))
        kinds = {one.removeprefix("all ") for one in chosen if one.startswith("all ")}
        nodes = {one for one in chosen if not one.startswith("all ")}
        nodes |= {one.name for one in between(self.prepared) if one.op_type in kinds}
        ranges = self.ranges if candidate.share is None else self.ranges.narrowed(candidate.share)
        return write_static(self.prepared, ranges, nodes)

    def _write(self, model: Any, target: Path) -> None:
        with saving(target):
            onnx.save(model, str(target))

    def _floats(self, wishes: Wishes) -> Collection[str]:
        """Return the constants that must not be multiplied in INT8."""
        found = set(wishes.half)
        for one in self.prepared.graph.initializer:
            if len(one.dims) < 2:
                continue
            if wishes.ignore and re.search(wishes.ignore, one.name):
                found.add(one.name)
            elif not wishes.bases and one.data_type == onnx.TensorProto.FLOAT:
                values = numpy_helper.to_array(one)
                if is_fixed_basis(values.reshape(len(values), -1)):
                    found.add(one.name)
        return found

    def _reports(
        self, candidate: Candidate, rest: Sequence[WeightReport]
    ) -> tuple[WeightReport, ...]:
        """Return what became of each weight; constants that we added are none."""
        view = View.of(self.prepared.graph)
        known = set(view.constants)
        others = [one for one in rest if "/:/" in one.name or one.name in known]
        # A weight that is still there as floats is read by something that does not compute in INT8.
        left, computed = {one.name for one in others}, {}
        for node in self.prepared.graph.node:
            name = weight_of(view, node) if node.name in candidate.groups else None
            if name is not None and name not in left and name not in computed:
                computed[name] = _computed_report(view, node, name)
        return (*computed.values(), *others)


def _computed_report(view: View, node: Any, name: str) -> WeightReport:
    values = numpy_helper.to_array(view.constants[name])
    rows = node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0))
    new = quantize_channels(values, (0,) if rows else (1,))
    error = rounding_error(values, new.restored())
    return WeightReport(
        name=name,
        use=node.op_type,
        shape=values.shape,
        dtype=values.dtype.name,
        scheme=Scheme.COMPUTED,
        reason="",
        relative_error=error.relative,
        cosine=error.cosine,
        before_bytes=values.nbytes,
        after_bytes=new.values.nbytes + new.scale.nbytes,
    )
