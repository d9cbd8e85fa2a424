"""Measures of the plugin: how fast pairs are compared, how long the model takes, claims by state.

In: nothing. Out: `MEASURES`, statements for `retrieval.site.metrics` to read at each scrape.
"""

from __future__ import annotations

from retrieval.site.metrics import Measure

MEASURES = (
    Measure(
        "vcl_runs",
        "number of the latest comparison; for rate()",
        (),
        "SELECT coalesce(max(id), 0) FROM runs",
        kind="counter",
    ),
    Measure(
        "vcl_pairs_per_second",
        "pairs compared and written, mean of the last minute",
        (),
        "SELECT count(*) / 60.0 FROM runs WHERE created_at > now() - interval '1 minute'",
    ),
    Measure(
        "vcl_localize_seconds",
        "time of the model for a pair, quantiles of the last five minutes",
        ("localizer", "quantile"),
        """
        SELECT localizer, quantile, seconds
        FROM (SELECT localizer,
                     percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY seconds) AS
                         found
              FROM runs WHERE created_at > now() - interval '5 minutes'
              GROUP BY localizer) AS recent,
             unnest(ARRAY['0.5', '0.95', '0.99'], found) AS each (quantile, seconds)""",
    ),
    Measure(
        "vcl_claims",
        "claims by their state",
        ("status",),
        "SELECT status, count(*) FROM claims GROUP BY status",
    ),
)
