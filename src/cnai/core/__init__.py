"""The shared nouns: spec, layout, fleet, events, artifact, run folder, errors, units.

Text of the user and plain values come in, frozen records and files come out, and every room speaks
to the others through them. Nothing here imports torch or another part of cnai.
"""
