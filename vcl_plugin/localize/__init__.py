"""Two videos become copied segments: the network, and the steps around it."""
