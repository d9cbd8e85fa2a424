"""The desk: pages on which analysts review claims, made on the server."""
