"""Programs that make parts of this repository. Not installed."""
