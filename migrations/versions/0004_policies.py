"""Rights as data: ownership by territory, policies, exclusions, allowances, held segments."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# ISO 3166-1 alpha-2, and WW for everywhere that has no row of its own.
TERRITORIES = """
WW
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT
BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH
ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT
HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS
LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI
NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG
SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG
UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW
"""


def upgrade() -> None:
    op.execute("""
    CREATE TABLE territories (code text PRIMARY KEY);

    CREATE TABLE policies (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name        text NOT NULL UNIQUE CHECK (name <> ''),
        created_at  timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE policy_rules (
        policy_id           bigint NOT NULL REFERENCES policies ON DELETE CASCADE,
        position            integer NOT NULL,
        action              text NOT NULL
                            CHECK (action IN ('track', 'monetize', 'review', 'block')),
        min_seconds         double precision NOT NULL DEFAULT 0 CHECK (min_seconds >= 0),
        min_query_share     double precision NOT NULL DEFAULT 0
                            CHECK (min_query_share BETWEEN 0 AND 1),
        min_reference_share double precision NOT NULL DEFAULT 0
                            CHECK (min_reference_share BETWEEN 0 AND 1),
        min_score           double precision NOT NULL DEFAULT 0 CHECK (min_score BETWEEN 0 AND 1),
        territories         text[] NOT NULL DEFAULT '{}', -- empty: everywhere
        PRIMARY KEY (policy_id, position)
    );
    -- The policy of whoever has chosen none: a person looks at every match worth looking at.
    INSERT INTO policies (name) VALUES ('default');
    INSERT INTO policy_rules (policy_id, position, action, min_seconds, min_score)
    SELECT id, 1, 'review', 3.0, 0.3 FROM policies WHERE name = 'default';

    ALTER TABLE owners ADD policy_id bigint REFERENCES policies;
    ALTER TABLE assets ADD policy_id bigint REFERENCES policies;
    ALTER TABLE videos ADD uploader text;
    CREATE INDEX videos_by_uploader ON videos (uploader) WHERE uploader IS NOT NULL;

    CREATE TABLE asset_owners (
        asset_id    bigint NOT NULL REFERENCES assets,
        owner_id    bigint NOT NULL REFERENCES owners,
        territory   text NOT NULL REFERENCES territories,
        share       numeric NOT NULL CHECK (share > 0 AND share <= 100), -- per cent
        PRIMARY KEY (asset_id, territory, owner_id)
    );
    CREATE INDEX asset_owners_by_owner ON asset_owners (owner_id);

    CREATE TABLE reference_exclusions (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        video_id    text NOT NULL REFERENCES videos,
        span        numrange NOT NULL CHECK (NOT isempty(span)),
        actor       text NOT NULL,
        note        text,
        claim_id    bigint REFERENCES claims,
        created_at  timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX reference_exclusions_by_video ON reference_exclusions (video_id);

    -- Who may use what: an uploader or one upload, for one asset or all of an owner's.
    CREATE TABLE allowances (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        owner_id    bigint NOT NULL REFERENCES owners,
        asset_id    bigint REFERENCES assets,
        uploader    text,
        query_id    text REFERENCES videos,
        actor       text NOT NULL,
        note        text,
        created_at  timestamptz NOT NULL DEFAULT now(),
        CHECK (num_nonnulls(uploader, query_id) = 1)
    );
    CREATE INDEX allowances_by_owner ON allowances (owner_id);

    -- Why a segment claims nothing by itself; such segments are kept and shown.
    ALTER TABLE segments ADD held text
        CHECK (held IN ('low_information', 'shared_footage', 'excluded', 'allowed', 'reference'));
    ALTER TABLE segments ADD seconds double precision
        GENERATED ALWAYS AS ((upper(query_span) - lower(query_span))::double precision) STORED;

    ALTER TABLE claims
        ADD action      text NOT NULL DEFAULT 'review'
                        CHECK (action IN ('track', 'monetize', 'review', 'block')),
        ADD policy_id   bigint REFERENCES policies,
        ADD query_spans nummultirange NOT NULL DEFAULT '{}', -- union of its segments
        ADD seconds     double precision NOT NULL DEFAULT 0,
        ADD segments    integer NOT NULL DEFAULT 0,
        ADD score       double precision NOT NULL DEFAULT 0,
        ADD last_found_at timestamptz NOT NULL DEFAULT now();
    CREATE TABLE claim_territories (
        claim_id    bigint NOT NULL REFERENCES claims,
        territory   text NOT NULL REFERENCES territories,
        action      text NOT NULL CHECK (action IN ('track', 'monetize', 'review', 'block')),
        PRIMARY KEY (claim_id, territory)
    );
    CREATE INDEX claims_by_asset_standing ON claims (asset_id, status);
    CREATE INDEX segments_held ON segments (held) WHERE held IS NOT NULL;
    """)
    codes = ", ".join(f"('{code}')" for code in TERRITORIES.split())
    op.execute(f"INSERT INTO territories VALUES {codes};")
    op.execute("""
    INSERT INTO asset_owners (asset_id, owner_id, territory, share)
    SELECT id, owner_id, 'WW', 100 FROM assets;
    UPDATE claims SET query_spans = found.spans, segments = found.segments, score = found.score,
           last_found_at = found.last_found_at,
           policy_id = (SELECT id FROM policies WHERE name = 'default'),
           seconds = (SELECT sum(upper(span) - lower(span)) FROM unnest(found.spans) AS span)
    FROM (SELECT claim_id, range_agg(query_span) AS spans, count(*) AS segments,
                 max(score) AS score, max(created_at) AS last_found_at
          FROM segments WHERE claim_id IS NOT NULL GROUP BY claim_id) AS found
    WHERE found.claim_id = claims.id;
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE claim_territories, allowances, reference_exclusions, asset_owners;
    ALTER TABLE claims DROP action, DROP policy_id, DROP query_spans, DROP seconds, DROP segments,
                       DROP score, DROP last_found_at;
    DROP INDEX claims_by_asset_standing;
    ALTER TABLE segments DROP held, DROP seconds;
    ALTER TABLE videos DROP uploader;
    ALTER TABLE assets DROP policy_id;
    ALTER TABLE owners DROP policy_id;
    DROP TABLE policy_rules, policies, territories;
    """)
