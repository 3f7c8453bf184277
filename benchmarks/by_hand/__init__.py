"""Training steps as a good engineer writes them with PyTorch alone, one file a layout.

Each file has `make(shape, weights, ...)`, which returns a function from a step's rows and learning
rate to the loss of the whole batch. Nothing of `cnai.train` is used: the module is the same, and
whatever lays it over ranks is torch's own, or written here.
"""
