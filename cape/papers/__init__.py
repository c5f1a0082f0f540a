"""The papers' wing: their algorithms, accountants and figures, for comparison."""
