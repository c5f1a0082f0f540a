"""The protocol that all computations share: phases, messages, joining, secure sums, report."""
