"""The same network without the waste: equal numbers, for inference only."""
