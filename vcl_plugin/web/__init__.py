"""`vcl serve`: an API for engines and a desk for analysts, over one layer of functions."""
