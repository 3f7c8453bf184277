"""Part of schedule: placement."""
