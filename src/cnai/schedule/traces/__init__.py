"""Part of schedule: traces."""
