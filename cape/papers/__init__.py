"""The papers' wing: what exists to compare with the papers or to make their figures again."""
