"""The hybrid-parallel runtime: the loop that every rank runs, and what it is built from.

A plan, a reader of batches and a source of initial weights go in; events and sharded checkpoints
come out. It never opens a data store, draws a screen or decides where ranks run: its reader, its
recorder of events and its checkpoints are handed in by the worker's composition root.
"""
