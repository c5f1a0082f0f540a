"""The border to COINSTAC: one document in, one document out."""
