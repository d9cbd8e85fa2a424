"""The endpoints of `/api/v1`, one noun a file; each has a `router`."""
