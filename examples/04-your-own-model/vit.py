"""A small vision transformer of one's own, and its data: pictures of digits, 8 x 8 pixels."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

PATCH, WIDTH, HEADS, LAYERS, CLASSES = 2, 64, 4, 4, 10


class Patches(nn.Module):
    """From pictures (rows, 8, 8) to a row of patches (rows, 16, WIDTH) that know their place."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(16, WIDTH))

    def forward(self, pictures: Tensor) -> Tensor:
        cut = pictures.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
        return self.embed(cut.flatten(3).flatten(1, 2)) + self.place


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        # -1: a rank of a model-parallel group has its share of the heads.
        size = (*x.shape[:2], -1, WIDTH // HEADS)
        q, k, v = (one(x).view(size).transpose(1, 2) for one in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first_norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.second_norm(x))))


class Head(nn.Module):
    """From patches to the logits of the ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.classes = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.norm(x).mean(dim=1))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = Patches()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = Head()

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


SHARDING = {
    "inlet": "patches",
    "layers": "blocks",
    "outlet": "head",
    "heads": HEADS,
    "split": {
        "blocks.*.attention.query": "column",
        "blocks.*.attention.key": "column",
        "blocks.*.attention.value": "column",
        "blocks.*.attention.output": "row",
        "blocks.*.up": "column",
        "blocks.*.down": "row",
    },
}


def model() -> tuple[nn.Module, dict]:
    return VisionTransformer(), SHARDING


class Digits:
    """1797 pictures with the digit that each shows; scikit-learn brings them along."""

    def __init__(self) -> None:
        digits = load_digits()
        self.pictures = (digits.images / 8 - 1).astype("float32")
        self.targets = digits.target.astype("int64")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple:
        return self.pictures[index], self.targets[index]


def data() -> Digits:
    return Digits()
