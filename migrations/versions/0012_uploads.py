"""Uploads are events: who put which content where and when. Claims and allowances name them."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = """
    -- `query_id` is the content. The same bytes by somebody else, or again, are another row.
    CREATE TABLE uploads (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        query_id    text NOT NULL REFERENCES videos,
        uploader    text, -- null: nobody said
        external_id text, -- the platform's own id of the upload
        url         text,
        uploaded_at timestamptz, -- when it was uploaded; `created_at` is when it was told of
        created_at  timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX uploads_by_query ON uploads (query_id, id);
    -- An upload that is told of twice is one row. Digests, for a name may be longer than an index
    -- takes.
    CREATE UNIQUE INDEX uploads_by_external_id ON uploads (query_id, md5(external_id))
        WHERE external_id IS NOT NULL;
    CREATE UNIQUE INDEX uploads_told_once
        ON uploads (query_id, md5(uploader), md5(url), uploaded_at) NULLS NOT DISTINCT
        WHERE external_id IS NULL;
    CREATE INDEX uploads_by_uploader ON uploads (md5(uploader)) WHERE uploader IS NOT NULL;

    -- The last uploader is the only one that was kept. All that was asked about had one.
    INSERT INTO uploads (query_id, uploader, created_at)
    SELECT id, uploader, created_at FROM videos
    WHERE uploader IS NOT NULL
       OR id IN (SELECT query_id FROM allowances)
       OR id IN (SELECT query_id FROM claims)
       OR NOT is_reference AND id IN (SELECT query_id FROM searches)
    ORDER BY created_at, id;

    -- Of which uploads a claim speaks: those of its content that nobody allowed. A closed claim
    -- keeps the ones that it was closed with.
    CREATE TABLE claim_uploads (
        claim_id    bigint NOT NULL REFERENCES claims,
        upload_id   bigint NOT NULL REFERENCES uploads,
        PRIMARY KEY (claim_id, upload_id)
    );
    CREATE INDEX claim_uploads_by_upload ON claim_uploads (upload_id);
    INSERT INTO claim_uploads (claim_id, upload_id)
    SELECT claims.id, uploads.id FROM claims JOIN uploads USING (query_id);
    ALTER TABLE claims
        ADD upload_id bigint REFERENCES uploads, -- the first of them
        ADD uploads   integer NOT NULL DEFAULT 0;
    UPDATE claims SET upload_id = claim_uploads.upload_id, uploads = 1
    FROM claim_uploads WHERE claim_uploads.claim_id = claims.id;

    -- An allowance was for a content; it is for the upload that was known.
    ALTER TABLE allowances ADD upload_id bigint REFERENCES uploads;
    UPDATE allowances SET upload_id = uploads.id FROM uploads
    WHERE uploads.query_id = allowances.query_id;
    ALTER TABLE allowances DROP query_id,
        ADD CHECK (num_nonnulls(uploader, upload_id) = 1);
    -- To release a claim as authorised is to allow the uploads that it spoke of.
    INSERT INTO allowances (owner_id, asset_id, upload_id, actor, note, created_at)
    SELECT assets.owner_id, claims.asset_id, claims.upload_id,
           coalesce((SELECT actor FROM claim_events WHERE claim_id = claims.id
                     ORDER BY id DESC LIMIT 1), 'engine'),
           'claim ' || claims.id || ' was released as authorised', claims.updated_at
    FROM claims JOIN assets ON assets.id = claims.asset_id
    WHERE claims.status = 'released' AND claims.reason = 'authorised'
      AND claims.upload_id IS NOT NULL;
    CREATE INDEX allowances_by_upload ON allowances (upload_id) WHERE upload_id IS NOT NULL;
    CREATE INDEX allowances_by_uploader ON allowances (md5(uploader)) WHERE uploader IS NOT NULL;

    -- Which upload may show which asset: by a holder of the asset, for the upload or its uploader.
    CREATE VIEW allowed_uploads AS
    SELECT allowed.upload_id, allowed.query_id, holders.asset_id
    FROM (SELECT uploads.id AS upload_id, uploads.query_id, allowances.owner_id,
                 allowances.asset_id
          FROM uploads JOIN allowances ON md5(allowances.uploader) = md5(uploads.uploader)
                                      AND allowances.uploader = uploads.uploader
          UNION ALL
          SELECT uploads.id, uploads.query_id, allowances.owner_id, allowances.asset_id
          FROM uploads JOIN allowances ON allowances.upload_id = uploads.id) AS allowed
    JOIN (SELECT id AS asset_id, owner_id FROM assets
          UNION SELECT asset_id, owner_id FROM asset_owners) AS holders
        ON holders.owner_id = allowed.owner_id
       AND (allowed.asset_id IS NULL OR allowed.asset_id = holders.asset_id);
"""

VIEWS = """
    CREATE OR REPLACE VIEW infringing_segments AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS query_id,
           query.title                      AS query,
           segments.reference_id            AS reference_id,
           reference.title                  AS reference,
           lower(segments.query_span)       AS query_start,
           upper(segments.query_span)       AS query_end,
           lower(segments.reference_span)   AS reference_start,
           upper(segments.reference_span)   AS reference_end,
           segments.score                   AS score,
           segments.is_reversed             AS is_reversed,
           segments.speed                   AS speed,
           segments.created_at              AS found_at,
           claims.uploads                   AS times_uploaded,
           claims.upload_id                 AS upload_id,
           upload.uploader                  AS uploader,
           upload.external_id               AS external_id,
           upload.url                       AS url,
           upload.uploaded_at               AS uploaded_at
    FROM segments
    JOIN claims ON claims.id = segments.claim_id AND claims.status NOT IN ('released', 'expired')
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN uploads AS upload ON upload.id = claims.upload_id;

    -- Each upload that a standing claim speaks of: a row of `claims_open` or `infringing_segments`
    -- names the first of them.
    CREATE VIEW infringing_uploads AS
    SELECT uploads.id                       AS upload_id,
           uploads.uploader                 AS uploader,
           uploads.external_id              AS external_id,
           uploads.url                      AS url,
           uploads.uploaded_at              AS uploaded_at,
           uploads.created_at               AS told_at,
           claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           claims.query_id                  AS query_id,
           query.title                      AS query,
           claims.seconds                   AS infringing_seconds
    FROM claim_uploads
    JOIN uploads ON uploads.id = claim_uploads.upload_id
    JOIN claims ON claims.id = claim_uploads.claim_id
               AND claims.status NOT IN ('released', 'expired')
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = claims.query_id;

    -- `uploads` counts contents, `times_uploaded` how often those were uploaded.
    CREATE OR REPLACE VIEW infringing_seconds_by_asset AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           grouped.uploads, grouped.segments, grouped.infringing_seconds, grouped.last_found_at,
           grouped.times_uploaded
    FROM (SELECT claims.asset_id            AS asset_id,
                 count(*)                   AS uploads,
                 sum(claims.segments)       AS segments,
                 sum(claims.seconds)        AS infringing_seconds,
                 max(claims.last_found_at)  AS last_found_at,
                 sum(claims.uploads)        AS times_uploaded
          FROM claims WHERE claims.status NOT IN ('released', 'expired')
          GROUP BY claims.asset_id) AS grouped
    JOIN assets ON assets.id = grouped.asset_id
    JOIN owners ON owners.id = assets.owner_id;

    CREATE OR REPLACE VIEW infringing_seconds_by_owner AS
    SELECT owners.name                      AS owner,
           grouped.uploads, grouped.claims, grouped.infringing_seconds, grouped.last_found_at,
           grouped.times_uploaded
    FROM (SELECT uploads.owner_id           AS owner_id,
                 count(*)                   AS uploads,
                 sum(uploads.claims)::bigint AS claims,
                 sum(CASE WHEN uploads.meeting < 2 THEN uploads.seconds
                     ELSE (SELECT sum(upper(span) - lower(span))::double precision
                           FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                                 FROM standing_claims AS same
                                 JOIN assets ON assets.id = same.asset_id
                                 WHERE same.query_id = uploads.query_id
                                   AND assets.owner_id = uploads.owner_id) AS united) END)
                                            AS infringing_seconds,
                 max(uploads.last_found_at) AS last_found_at,
                 -- Two claims on a content may speak of different uploads of it.
                 sum(CASE WHEN uploads.claims < 2 OR uploads.most < 2 THEN uploads.most
                     ELSE (SELECT count(DISTINCT claim_uploads.upload_id)
                           FROM standing_claims AS same
                           JOIN assets ON assets.id = same.asset_id
                           JOIN claim_uploads ON claim_uploads.claim_id = same.id
                           WHERE same.query_id = uploads.query_id
                             AND assets.owner_id = uploads.owner_id) END)::bigint
                                            AS times_uploaded
          FROM (SELECT assets.owner_id, claims.query_id, count(*) AS claims,
                       count(*) FILTER (WHERE claims.meets_another) AS meeting,
                       sum(claims.seconds) AS seconds, max(claims.last_found_at) AS last_found_at,
                       -- One upload each, but not the same one, is more than one.
                       CASE WHEN count(DISTINCT claims.upload_id) > 1 THEN 2
                            ELSE max(claims.uploads) END AS most
                FROM claims JOIN assets ON assets.id = claims.asset_id
                WHERE claims.status NOT IN ('released', 'expired')
                GROUP BY assets.owner_id, claims.query_id) AS uploads
          GROUP BY uploads.owner_id) AS grouped
    JOIN owners ON owners.id = grouped.owner_id;

    CREATE OR REPLACE VIEW claims_open AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           claims.query_id                  AS query_id,
           query.title                      AS query,
           upload.uploader                  AS uploader,
           claims.seconds                   AS infringing_seconds,
           claims.seconds / nullif(query.duration, 0) AS infringing_share,
           claims.score                     AS score,
           claims.created_at                AS raised_at,
           claims.uploads                   AS times_uploaded,
           claims.upload_id                 AS upload_id,
           upload.external_id               AS external_id,
           upload.url                       AS url,
           upload.uploaded_at               AS uploaded_at
    FROM claims
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = claims.query_id
    LEFT JOIN uploads AS upload ON upload.id = claims.upload_id
    WHERE claims.status IN ('potential', 'active', 'disputed');

    -- A row for each upload, and one for a content of which no upload was ever told.
    CREATE OR REPLACE VIEW uploads_by_infringing_share AS
    SELECT copying.query_id                 AS query_id,
           query.title                      AS query,
           upload.uploader                  AS uploader,
           query.duration                   AS duration,
           copying.seconds                  AS infringing_seconds,
           copying.seconds / nullif(query.duration, 0) AS infringing_share,
           copying.claims                   AS claims,
           copying.last_found_at            AS last_found_at,
           copying.upload_id                AS upload_id,
           upload.external_id               AS external_id,
           upload.url                       AS url,
           upload.uploaded_at               AS uploaded_at
    FROM (SELECT claims.query_id, claim_uploads.upload_id, count(*) AS claims,
                 max(claims.last_found_at) AS last_found_at,
                 CASE WHEN count(*) FILTER (WHERE claims.meets_another) < 2
                      THEN sum(claims.seconds)
                 ELSE (SELECT sum(upper(span) - lower(span))::double precision
                       FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                             FROM standing_claims AS same
                             LEFT JOIN claim_uploads AS theirs ON theirs.claim_id = same.id
                             WHERE same.query_id = claims.query_id
                               AND theirs.upload_id IS NOT DISTINCT FROM claim_uploads.upload_id)
                            AS united) END AS seconds
          FROM claims LEFT JOIN claim_uploads ON claim_uploads.claim_id = claims.id
          WHERE claims.status NOT IN ('released', 'expired')
          GROUP BY claims.query_id, claim_uploads.upload_id) AS copying
    JOIN videos AS query ON query.id = copying.query_id
    LEFT JOIN uploads AS upload ON upload.id = copying.upload_id;

    -- Of a match that claims nothing, all uploads of its content are meant.
    CREATE OR REPLACE VIEW held_segments AS
    SELECT segments.id                      AS segment_id,
           segments.held                    AS reason,
           owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS query_id,
           query.title                      AS query,
           segments.reference_id            AS reference_id,
           reference.title                  AS reference,
           lower(segments.query_span)       AS query_start,
           upper(segments.query_span)       AS query_end,
           lower(segments.reference_span)   AS reference_start,
           upper(segments.reference_span)   AS reference_end,
           segments.score                   AS score,
           segments.created_at              AS found_at,
           coalesce(upload.times_uploaded, 0) AS times_uploaded,
           upload.id                        AS upload_id,
           upload.uploader                  AS uploader,
           upload.external_id               AS external_id,
           upload.url                       AS url,
           upload.uploaded_at               AS uploaded_at
    FROM segments
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
    LEFT JOIN assets ON assets.id = reference_videos.asset_id
    LEFT JOIN owners ON owners.id = assets.owner_id
    LEFT JOIN LATERAL (SELECT uploads.*, count(*) OVER () AS times_uploaded FROM uploads
                       WHERE uploads.query_id = segments.query_id
                       ORDER BY uploads.id LIMIT 1) AS upload ON true
    WHERE segments.held IS NOT NULL;

    ALTER TABLE videos DROP uploader;
"""

EARLIER_VIEWS = """
    CREATE VIEW infringing_segments AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS query_id,
           query.title                      AS query,
           segments.reference_id            AS reference_id,
           reference.title                  AS reference,
           lower(segments.query_span)       AS query_start,
           upper(segments.query_span)       AS query_end,
           lower(segments.reference_span)   AS reference_start,
           upper(segments.reference_span)   AS reference_end,
           segments.score                   AS score,
           segments.is_reversed             AS is_reversed,
           segments.speed                   AS speed,
           segments.created_at              AS found_at
    FROM segments
    JOIN standing_claims AS claims ON claims.id = segments.claim_id
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id;

    CREATE VIEW infringing_seconds_by_asset AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           grouped.uploads, grouped.segments, grouped.infringing_seconds, grouped.last_found_at
    FROM (SELECT claims.asset_id            AS asset_id,
                 count(*)                   AS uploads,
                 sum(claims.segments)       AS segments,
                 sum(claims.seconds)        AS infringing_seconds,
                 max(claims.last_found_at)  AS last_found_at
          FROM standing_claims AS claims GROUP BY claims.asset_id) AS grouped
    JOIN assets ON assets.id = grouped.asset_id
    JOIN owners ON owners.id = assets.owner_id;

    CREATE VIEW infringing_seconds_by_owner AS
    SELECT owners.name                      AS owner,
           grouped.uploads, grouped.claims, grouped.infringing_seconds, grouped.last_found_at
    FROM (SELECT uploads.owner_id           AS owner_id,
                 count(*)                   AS uploads,
                 sum(uploads.claims)::bigint AS claims,
                 sum(CASE WHEN uploads.meeting < 2 THEN uploads.seconds
                     ELSE (SELECT sum(upper(span) - lower(span))::double precision
                           FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                                 FROM standing_claims AS same
                                 JOIN assets ON assets.id = same.asset_id
                                 WHERE same.query_id = uploads.query_id
                                   AND assets.owner_id = uploads.owner_id) AS united) END)
                                            AS infringing_seconds,
                 max(uploads.last_found_at) AS last_found_at
          FROM (SELECT assets.owner_id, claims.query_id, count(*) AS claims,
                       count(*) FILTER (WHERE claims.meets_another) AS meeting,
                       sum(claims.seconds) AS seconds, max(claims.last_found_at) AS last_found_at
                FROM claims JOIN assets ON assets.id = claims.asset_id
                WHERE claims.status NOT IN ('released', 'expired')
                GROUP BY assets.owner_id, claims.query_id) AS uploads
          GROUP BY uploads.owner_id) AS grouped
    JOIN owners ON owners.id = grouped.owner_id;

    CREATE VIEW claims_open AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           claims.query_id                  AS query_id,
           query.title                      AS query,
           query.uploader                   AS uploader,
           claims.seconds                   AS infringing_seconds,
           claims.seconds / nullif(query.duration, 0) AS infringing_share,
           claims.score                     AS score,
           claims.created_at                AS raised_at
    FROM claims
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = claims.query_id
    WHERE claims.status IN ('potential', 'active', 'disputed');

    CREATE VIEW uploads_by_infringing_share AS
    SELECT uploads.query_id                 AS query_id,
           query.title                      AS query,
           query.uploader                   AS uploader,
           query.duration                   AS duration,
           uploads.seconds                  AS infringing_seconds,
           uploads.seconds / nullif(query.duration, 0) AS infringing_share,
           uploads.claims                   AS claims,
           uploads.last_found_at            AS last_found_at
    FROM (SELECT query_id, count(*) AS claims, max(last_found_at) AS last_found_at,
                 CASE WHEN count(*) FILTER (WHERE meets_another) < 2 THEN sum(seconds)
                 ELSE (SELECT sum(upper(span) - lower(span))::double precision
                       FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                             FROM standing_claims AS same
                             WHERE same.query_id = claims.query_id) AS united) END AS seconds
          FROM claims WHERE status NOT IN ('released', 'expired') GROUP BY query_id) AS uploads
    JOIN videos AS query ON query.id = uploads.query_id;

    CREATE VIEW held_segments AS
    SELECT segments.id                      AS segment_id,
           segments.held                    AS reason,
           owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS query_id,
           query.title                      AS query,
           segments.reference_id            AS reference_id,
           reference.title                  AS reference,
           lower(segments.query_span)       AS query_start,
           upper(segments.query_span)       AS query_end,
           lower(segments.reference_span)   AS reference_start,
           upper(segments.reference_span)   AS reference_end,
           segments.score                   AS score,
           segments.created_at              AS found_at
    FROM segments
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
    LEFT JOIN assets ON assets.id = reference_videos.asset_id
    LEFT JOIN owners ON owners.id = assets.owner_id
    WHERE segments.held IS NOT NULL;
"""


def upgrade() -> None:
    op.execute(TABLES + VIEWS)


def downgrade() -> None:
    op.execute("""
    DROP VIEW infringing_segments, infringing_seconds_by_asset, infringing_seconds_by_owner,
              claims_open, uploads_by_infringing_share, held_segments, infringing_uploads,
              allowed_uploads;
    ALTER TABLE videos ADD uploader text;
    CREATE INDEX videos_by_uploader ON videos (uploader) WHERE uploader IS NOT NULL;
    UPDATE videos SET uploader = last.uploader
    FROM (SELECT DISTINCT ON (query_id) query_id, uploader FROM uploads
          WHERE uploader IS NOT NULL ORDER BY query_id, id DESC) AS last
    WHERE last.query_id = videos.id;

    -- A row that allows one upload allows its content again.
    ALTER TABLE allowances ADD query_id text REFERENCES videos;
    UPDATE allowances SET query_id = uploads.query_id FROM uploads
    WHERE uploads.id = allowances.upload_id;
    DROP INDEX allowances_by_uploader;
    ALTER TABLE allowances DROP upload_id,
        ADD CHECK (num_nonnulls(uploader, query_id) = 1);
    ALTER TABLE claims DROP upload_id, DROP uploads;
    DROP TABLE claim_uploads, uploads;
    """)
    op.execute(EARLIER_VIEWS)
