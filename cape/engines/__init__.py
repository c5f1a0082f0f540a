"""The interfaces to the engines that start a run: COINSTAC, NVIDIA FLARE, NeuroFLAME."""
