"""A TensorFlow SavedModel, read, frozen and written without TensorFlow.

Its variables become constants, so that they can be quantized like those of a frozen graph. What is
written is a SavedModel with the same signatures and no variables, or a frozen graph of the one
signature that serves, when the target's name ends in `.pb`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from cnai.compress.formats.damage import telling_damage
from cnai.compress.formats.freeze import freeze, is_text
from cnai.compress.formats.graph_scope import scopes_of
from cnai.compress.formats.graphdef import LARGEST_BYTES, GraphWeights
from cnai.compress.formats.recognise import Format
from cnai.compress.formats.restored import VARIABLES, Entry, restored
from cnai.compress.formats.tensor_bundle import TensorBundle
from cnai.compress.formats.tensorflow_messages import SavedModel
from cnai.core.errors import DataError, SpecError
from cnai.core.files import file_atomically, read_bytes, write_atomically

FILE = "saved_model.pb"
GRAPH_ENDING = ".pb"
_ASSETS = "assets"
_SERVE = "serve"
_SERVING = "serving_default"
_INIT = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_TABLES = ("HashTable", "MutableHashTable", "LookupTable", "InitializeTable")


class SavedModelFile(GraphWeights):
    """A SavedModel with its variables frozen.

    Args:
        path: Its folder, or the `saved_model.pb` in it.
        target: What will be written; a name that ends in `.pb` asks for a frozen graph.

    Raises:
        DataError: It is damaged, or files are missing.
        SpecError: It has no signature to serve, or changes variables when it is used.
    """

    format = Format.SAVED_MODEL

    def __init__(self, path: Path, target: Path | None = None) -> None:
        self._folder = path if path.is_dir() else path.parent
        self._as_graph = target is not None and target.suffix == GRAPH_ENDING
        self._model = _parsed(self._folder / FILE)
        self._meta = _serving(self._model, self._folder)
        graph = self._meta.graph_def
        roots = self._roots()
        with telling_damage(str(self._folder)):
            self._freeze(graph, roots)
            super().__init__(graph, str(self._folder))
        if self._as_graph:
            self._require_no_tables(graph)

    def save(self, target: Path) -> None:
        """Write a frozen graph, or a folder with the graph, its signatures and its assets."""
        if self._as_graph:
            write_atomically(target, self.graph.SerializeToString(deterministic=True))
            return
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted((self._folder / _ASSETS).rglob("*")):
            if file.is_file():
                self._copy(file, target / file.relative_to(self._folder))
        meta = self._meta
        meta.ClearField("saver_def")
        meta.ClearField("object_graph_def")
        for name in list(meta.collection_def):
            if name not in _INIT_COLLECTIONS:
                del meta.collection_def[name]
        if _INIT in meta.signature_def:
            # Without the objects of TensorFlow 2 it is loaded as one of TensorFlow 1 would be.
            first = next(iter(meta.signature_def[_INIT].outputs.values()))
            meta.collection_def[_INIT_COLLECTIONS[0]].node_list.value[:] = [_node(first.name)]
            del meta.signature_def[_INIT]
        write_atomically(target / FILE, self._model.SerializeToString(deterministic=True))

    def _copy(self, file: Path, target: Path) -> None:
        with file_atomically(target) as written, file.open("rb") as read:
            shutil.copyfileobj(read, written)

    def _roots(self) -> set[str]:
        """Return the nodes that must stay: of all signatures, or of the one that serves."""
        signatures = dict(self._meta.signature_def)
        if self._as_graph:
            signatures = {_SERVING: self._one_signature()}
        roots = {
            _node(info.name)
            for one in signatures.values()
            for info in (*one.inputs.values(), *one.outputs.values())
        }
        if not self._as_graph:
            for name in _INIT_COLLECTIONS:
                if name in self._meta.collection_def:
                    listed = self._meta.collection_def[name].node_list.value
                    roots |= {_node(one) for one in listed}
            roots |= {_node(one.tensor_info.name) for one in self._meta.asset_file_def}
        roots.discard("")
        return roots

    def _one_signature(self) -> Any:
        named = {name: one for name, one in self._meta.signature_def.items() if name != _INIT}
        if _SERVING in named:
            return named[_SERVING]
        if len(named) == 1:
            return next(iter(named.values()))
        raise SpecError(
            f"`{self._folder.name}` has the signatures {sorted(named)}, and none is called "
            f"`{_SERVING}`",
            where=str(self._folder),
            hint="write a SavedModel with all of them: give a folder as `--output-model`",
        )

    def _freeze(self, graph: Any, roots: set[str]) -> None:
        scopes = {scope.name: scope for scope in scopes_of(graph)}
        entries = restored(scopes)
        prefix = self._folder / "variables" / "variables"
        if not any(node.op in VARIABLES for node in graph.node):
            freeze(graph, roots, lambda _node: None)
            return
        bundle = TensorBundle(prefix)
        self._check_size(bundle)

        def value(node: Any) -> tuple[NDArray[Any], int] | None:
            if is_text(node):
                return None
            entry = entries.get(node.name, Entry(node.name))
            return bundle.read(entry.key, entry.bounds), bundle.kind(entry.key)

        freeze(graph, roots, value)

    def _check_size(self, bundle: TensorBundle) -> None:
        if bundle.size_bytes() // 4 > LARGEST_BYTES:
            raise SpecError(
                f"the variables of `{self._folder.name}` take {bundle.size_bytes()} bytes; as "
                "constants they would not fit into a graph, which ends at 2 GB, even in INT8",
                where=str(self._folder),
                hint="export it as ONNX with external data, and give that",
            )

    def _require_no_tables(self, graph: Any) -> None:
        bodies = [graph.node, *(one.node_def for one in graph.library.function)]
        found = next(
            (node for body in bodies for node in body if node.op.startswith(_TABLES)), None
        )
        if found is not None:
            raise SpecError(
                f"the signature looks words up in a table (`{found.name}`), which a frozen graph "
                "cannot fill",
                where=str(self._folder),
                hint="write a SavedModel: give a folder as `--output-model`",
            )


def _parsed(file: Path) -> Any:
    hint = "copy the folder again, or export the model anew"
    if file.is_file() and file.stat().st_size > LARGEST_BYTES:
        raise DataError(
            f"`{file.name}` is larger than 2 GB, which a protobuf message cannot be",
            where=str(file),
            hint=hint,
        )
    model = SavedModel()
    try:
        model.ParseFromString(read_bytes(file, hint=hint))
    except (DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"`{file.name}` is no whole SavedModel: {error}", where=str(file), hint=hint
        ) from error
    return model


def _serving(model: Any, folder: Path) -> Any:
    """Return the graph for serving; the others are dropped, since they share the variables."""
    graphs = list(model.meta_graphs)
    chosen = next((one for one in graphs if _SERVE in one.meta_info_def.tags), None)
    if chosen is None and len(graphs) == 1:
        chosen = graphs[0]
    if chosen is None or not any(name != _INIT for name in chosen.signature_def):
        raise SpecError(
            f"`{folder.name}` has no signature to serve",
            where=str(folder),
            hint="export it with one: `tf.saved_model.save(model, FOLDER, signatures=...)`",
        )
    for place in reversed(range(len(graphs))):
        if model.meta_graphs[place] is not chosen:
            del model.meta_graphs[place]
    return model.meta_graphs[0]


def _node(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]
