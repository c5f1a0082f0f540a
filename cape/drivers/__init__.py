"""The only input and output of cape: COINSTAC, container service, simulator."""
