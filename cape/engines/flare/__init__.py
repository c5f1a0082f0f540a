"""NVIDIA FLARE: its calls carry bytes between the sites and the aggregator."""
