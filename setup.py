"""The entry of the build: metadata is in pyproject.toml, here is what TOML cannot say."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["retrieval", "retrieval.*", "vcl_plugin", "vcl_plugin.*"]),
        "retrieval.migrations",
        "retrieval.migrations.versions",
    ],
    # The migrations live at the top of the repository and travel inside the engine.
    package_dir={"retrieval.migrations": "migrations"},
)
