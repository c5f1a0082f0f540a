"""NeuroFLAME: the steps of its iterative workflow, and the author files that call them."""
