"""`python -m vcl_plugin.cli`: the same as `vcl`, for a process that must not look for a script."""

from vcl_plugin.cli import main

main()
