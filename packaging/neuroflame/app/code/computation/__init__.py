"""coinstac-cape for NeuroFLAME."""
