"""Doors to machines: what starts, watches and stops the ranks of a run.

An allocation and the name of a function go in; running ranks and the news of their ends come out.
It never decides how many ranks there are or what they do, and it does not import torch.
"""

from cnai.cluster.local import LocalGang, local_fleet
from cnai.cluster.ranks import RankEnded

__all__ = ["LocalGang", "RankEnded", "local_fleet"]
