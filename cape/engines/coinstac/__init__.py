"""The interface to COINSTAC: one document in, one document out."""
