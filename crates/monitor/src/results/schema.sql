-- Results of `sluice monitor`. One file may hold several runs; docs/MONITOR.md explains the figures.
--
-- Times are nanoseconds since the epoch, as captured. Sequence numbers and channel identities are unsigned 64-bit
-- numbers in SQLite's signed ones: printf('%016x', id) shows an identity as the REST interface does.

-- One analysis. A run that was killed keeps finished = 0: everything committed before is there.
CREATE TABLE run (
    number      INTEGER PRIMARY KEY,
    source      TEXT    NOT NULL,
    started_ms  INTEGER NOT NULL,           -- wall clock, milliseconds since the epoch
    sluice      TEXT    NOT NULL,           -- version that wrote it
    interval_ns INTEGER NOT NULL,
    mode        TEXT    NOT NULL,           -- fast | full, see channel_interval
    last_update INTEGER NOT NULL DEFAULT 0, -- number of the last update contained: one is never added twice
    finished    INTEGER NOT NULL DEFAULT 0,
    partial     TEXT,                       -- why results end early
    summary     TEXT                        -- JSON, as in /api/v1/stats/summary; absent until finished
);

-- A secure channel: one key of one sender. Evicted channels that came back have another row.
CREATE TABLE channel (
    number      INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL,
    id          INTEGER NOT NULL,           -- the same in every run and database
    name        TEXT    NOT NULL,
    protocol    TEXT    NOT NULL,
    interface   INTEGER NOT NULL,
    outer_vlan  INTEGER NOT NULL,
    vlan        INTEGER NOT NULL,
    sci         TEXT,
    source      TEXT,
    destination TEXT,
    key_id      INTEGER NOT NULL,           -- AN, SPI or TEID
    key_group   INTEGER NOT NULL            -- shared by successive keys of one secure channel
);

-- What is known of a channel. While provisional = 1 only counts, last_ns and highest_sequence are.
CREATE TABLE channel_total (
    channel             INTEGER PRIMARY KEY,
    provisional         INTEGER NOT NULL,
    first_ns            INTEGER NOT NULL,
    last_ns             INTEGER NOT NULL,
    first_frame         INTEGER NOT NULL,
    first_sequence      INTEGER NOT NULL,
    highest_sequence    INTEGER NOT NULL,
    sequence_bits       INTEGER NOT NULL,
    extended            INTEGER NOT NULL,
    packets             INTEGER NOT NULL,
    bytes               INTEGER NOT NULL,
    lost                INTEGER NOT NULL,
    late                INTEGER NOT NULL,
    duplicates          INTEGER NOT NULL,
    replays             INTEGER NOT NULL,
    reused              INTEGER NOT NULL,
    too_old             INTEGER NOT NULL,
    stray               INTEGER NOT NULL,
    restarts            INTEGER NOT NULL,
    jumps               INTEGER NOT NULL,
    gaps                INTEGER NOT NULL,
    jitter_ns           INTEGER NOT NULL,
    min_payload         INTEGER NOT NULL,
    max_payload         INTEGER NOT NULL,
    protection          INTEGER NOT NULL,   -- 0 none, 1 encrypted, 2 integrity only, 3 mixed
    length_mismatches   INTEGER NOT NULL,
    one_way             INTEGER,            -- NULL where it cannot be told
    evicted             INTEGER NOT NULL,
    exhaustion_rate_pps REAL,
    exhaustion_remaining INTEGER,
    exhaustion_s        REAL,
    max_depth           INTEGER NOT NULL,
    would_drop_0        INTEGER NOT NULL,   -- late packets that a replay window of 0, 32, 64, 512 drops
    would_drop_32       INTEGER NOT NULL,
    would_drop_64       INTEGER NOT NULL,
    would_drop_512      INTEGER NOT NULL,
    depths              TEXT                -- JSON: late packets by depth 1, -3, -7, ... -511, more; NULL: none
);

-- The link, interval by interval.
CREATE TABLE link_interval (
    run           INTEGER NOT NULL,
    number        INTEGER NOT NULL,         -- start_ns / length_ns
    start_ns      INTEGER NOT NULL,
    length_ns     INTEGER NOT NULL,
    packets       INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    lost          INTEGER NOT NULL,         -- negative: late packets gave back more than was lost
    late          INTEGER NOT NULL,
    duplicates    INTEGER NOT NULL,
    replays       INTEGER NOT NULL,
    reused        INTEGER NOT NULL,
    too_old       INTEGER NOT NULL,
    stray         INTEGER NOT NULL,
    unknown       INTEGER NOT NULL,
    active        INTEGER NOT NULL,
    capture_drops INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

-- What an interval added to a channel. Mode full has a row for every channel with packets, mode fast only where
-- something else than packets in order was seen.
CREATE TABLE channel_interval (
    number           INTEGER NOT NULL,
    channel          INTEGER NOT NULL,
    packets          INTEGER NOT NULL,
    bytes            INTEGER NOT NULL,
    lost             INTEGER NOT NULL,
    late             INTEGER NOT NULL,
    duplicates       INTEGER NOT NULL,
    replays          INTEGER NOT NULL,
    reused           INTEGER NOT NULL,
    too_old          INTEGER NOT NULL,
    stray            INTEGER NOT NULL,
    PRIMARY KEY (number, channel)
) WITHOUT ROWID;

-- Ranges of numbers that were lost.
CREATE TABLE gap (
    channel   INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    lost      INTEGER NOT NULL,             -- at most last - first + 1: some may have come late
    before_ns INTEGER NOT NULL,
    after_ns  INTEGER NOT NULL,
    frame     INTEGER NOT NULL,
    PRIMARY KEY (channel, first)
) WITHOUT ROWID;

-- One row a channel and kind; channel 0 is the link as a whole.
CREATE TABLE anomaly (
    run            INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    channel        INTEGER NOT NULL,
    channel_name   TEXT    NOT NULL,
    severity       TEXT    NOT NULL,
    count          INTEGER NOT NULL,
    first_ns       INTEGER NOT NULL,
    last_ns        INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL,
    frame          INTEGER NOT NULL,
    detail         TEXT    NOT NULL,
    PRIMARY KEY (run, kind, channel, channel_name)
) WITHOUT ROWID;

-- Changes of key within one secure channel.
CREATE TABLE rekey (
    run          INTEGER NOT NULL,
    at_ns        INTEGER NOT NULL,
    from_channel INTEGER NOT NULL,
    to_channel   INTEGER NOT NULL,
    from_name    TEXT    NOT NULL,
    to_name      TEXT    NOT NULL,
    pause_ns     INTEGER NOT NULL,          -- negative: both keys were in use
    lost         INTEGER NOT NULL,
    PRIMARY KEY (run, at_ns, from_channel, to_channel)
) WITHOUT ROWID;

-- Channels with their figures, for people.
CREATE VIEW flow AS
    SELECT channel.*, channel_total.*, printf('%016x', channel.id) AS identity
    FROM channel JOIN channel_total ON channel_total.channel = channel.number;
