"""cnai: from a spec to a trained, compressed, served and monitored model."""

__version__ = "0.1.0"
