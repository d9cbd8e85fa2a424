"""The whole way once, on films that are rendered here: references, uploads, workers, SQL."""
