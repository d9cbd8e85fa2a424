"""Makes the weights of the default descriptor; nothing here runs in a search."""
