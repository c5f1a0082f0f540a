"""NVIDIA FLARE: its calls carry bytes between the border of a site and that of the aggregator."""
