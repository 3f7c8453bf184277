"""Small modules as a user writes them, with their sharding tables."""

from torch import nn

WIDTH, HEADS, LAYERS, PLACES = 16, 4, 4, 6


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head_norm = nn.LayerNorm(WIDTH // HEADS)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        size = (*x.shape[:2], -1, WIDTH // HEADS)
        q, k, v = (one(x).view(size).transpose(1, 2) for one in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(self.head_norm(q), k, v)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(WIDTH, 2)

    def forward(self, x):
        return self.classes(x.mean(dim=1))


class Transformer(nn.Module):
    def __init__(self, judges: bool = False) -> None:
        super().__init__()
        self.inlet = nn.Linear(WIDTH, WIDTH)
        self.body = nn.Module()
        self.body.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = Head()
        self.judges = judges

    def forward(self, pictures, target=None):
        x = self.inlet(pictures)
        for block in self.body.blocks:
            x = block(x)
        x = self.head(x)
        return nn.functional.cross_entropy(x, target, reduction="none") if self.judges else x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(PLACES * WIDTH, WIDTH))
        self.rows = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
            for _ in range(LAYERS)
        )
        self.last = nn.Sequential(nn.Dropout(0.2), nn.Linear(WIDTH, 2))

    def forward(self, x):
        x = self.first(x)
        for row in self.rows:
            x = row(x)
        return self.last(x)


BLOCK = "body.blocks.*."
TABLE = {
    "inlet": "inlet", "layers": "body.blocks", "outlet": ["head"], "heads": HEADS,
    "split": {
        f"{BLOCK}attention.head_norm": "summed",
        **{f"{BLOCK}attention.{name}": "column" for name in ("query", "key", "value")},
        f"{BLOCK}attention.output": "row",
        f"{BLOCK}up": "column",
        f"{BLOCK}down": "row",
    },
}  # fmt: skip
FORGOT = {**TABLE, "split": {k: v for k, v in TABLE["split"].items() if v != "summed"}}

MODULES = {
    "transformer": lambda: (Transformer(), TABLE),
    "judging": lambda: (Transformer(judges=True), TABLE),
    "forgetful": lambda: (Transformer(), FORGOT),
    "counting": lambda: (Counting(), {"inlet": "first", "layers": "rows", "outlet": "last"}),
}
