"""Part of schedule: simulation."""
