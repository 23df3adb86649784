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
    last_update INTEGER NOT NULL DEFAULT 0, -- number of the last part contained: none is ever added twice
    finished    INTEGER NOT NULL DEFAULT 0,
    partial     TEXT,                       -- why results end early
    summary     TEXT                        -- JSON, as in /api/v1/stats/summary; absent until finished
);

-- A secure channel: one key of one sender. Numbers start at 1 in each run.
CREATE TABLE channel (
    run         INTEGER NOT NULL,
    number      INTEGER NOT NULL,
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
    key_group   INTEGER NOT NULL,           -- shared by successive keys of one secure channel
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX channel_by_id ON channel (run, id);

-- What is known of a channel. The counts are the sums of all intervals and always up to date. The columns from lives on
-- are written when the channel's state is dropped: at the end, or to make room for others; channels that come back
-- after that have several lives, and their figures are put together.
CREATE TABLE channel_total (
    run                 INTEGER NOT NULL,
    channel             INTEGER NOT NULL,
    last_ns             INTEGER NOT NULL,
    highest_sequence    INTEGER NOT NULL,
    packets             INTEGER NOT NULL,
    bytes               INTEGER NOT NULL,
    lost                INTEGER NOT NULL,
    late                INTEGER NOT NULL,
    duplicates          INTEGER NOT NULL,
    replays             INTEGER NOT NULL,
    reused              INTEGER NOT NULL,
    too_old             INTEGER NOT NULL,
    stray               INTEGER NOT NULL,
    lives               INTEGER NOT NULL DEFAULT 0,
    first_ns            INTEGER NOT NULL DEFAULT 0,
    first_frame         INTEGER NOT NULL DEFAULT 0,
    first_sequence      INTEGER NOT NULL DEFAULT 0,
    sequence_bits       INTEGER NOT NULL DEFAULT 0,
    extended            INTEGER NOT NULL DEFAULT 0,
    restarts            INTEGER NOT NULL DEFAULT 0,
    jumps               INTEGER NOT NULL DEFAULT 0,
    gaps                INTEGER NOT NULL DEFAULT 0,
    jitter_ns           INTEGER NOT NULL DEFAULT 0,
    min_payload         INTEGER NOT NULL DEFAULT 0,
    max_payload         INTEGER NOT NULL DEFAULT 0,
    protection          INTEGER NOT NULL DEFAULT 0, -- 0 none, 1 encrypted, 2 integrity only, 3 mixed
    length_mismatches   INTEGER NOT NULL DEFAULT 0,
    one_way             INTEGER,            -- NULL where it cannot be told
    evicted             INTEGER NOT NULL DEFAULT 0,
    exhaustion_rate_pps REAL,               -- NULL where the numbers do not run out
    exhaustion_remaining INTEGER,
    exhaustion_s        REAL,
    max_depth           INTEGER NOT NULL DEFAULT 0,
    would_drop_0        INTEGER NOT NULL DEFAULT 0, -- late packets that a replay window of 0, 32, 64, 512 drops
    would_drop_32       INTEGER NOT NULL DEFAULT 0,
    would_drop_64       INTEGER NOT NULL DEFAULT 0,
    would_drop_512      INTEGER NOT NULL DEFAULT 0,
    depth_1             INTEGER NOT NULL DEFAULT 0, -- late packets by depth: 1, 2 to 3, 4 to 7, ... 256 to 511, more
    depth_3             INTEGER NOT NULL DEFAULT 0,
    depth_7             INTEGER NOT NULL DEFAULT 0,
    depth_15            INTEGER NOT NULL DEFAULT 0,
    depth_31            INTEGER NOT NULL DEFAULT 0,
    depth_63            INTEGER NOT NULL DEFAULT 0,
    depth_127           INTEGER NOT NULL DEFAULT 0,
    depth_255           INTEGER NOT NULL DEFAULT 0,
    depth_511           INTEGER NOT NULL DEFAULT 0,
    depth_more          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, channel)
) WITHOUT ROWID;

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
    run        INTEGER NOT NULL,
    number     INTEGER NOT NULL,            -- of the interval, as in link_interval
    channel    INTEGER NOT NULL,
    packets    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    lost       INTEGER NOT NULL,
    late       INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    replays    INTEGER NOT NULL,
    reused     INTEGER NOT NULL,
    too_old    INTEGER NOT NULL,
    stray      INTEGER NOT NULL,
    PRIMARY KEY (run, number, channel)
) WITHOUT ROWID;

-- Ranges of numbers that were lost.
CREATE TABLE gap (
    run       INTEGER NOT NULL,
    channel   INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    lost      INTEGER NOT NULL,             -- at most last - first + 1: some may have come late
    before_ns INTEGER NOT NULL,             -- the packets before and after it: the loss happened between them
    after_ns  INTEGER NOT NULL,
    frame     INTEGER NOT NULL,
    PRIMARY KEY (run, channel, first)
) WITHOUT ROWID;

-- One row a kind and channel; channel 0 is the link as a whole.
CREATE TABLE anomaly (
    run            INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    channel        INTEGER NOT NULL,
    channel_id     INTEGER NOT NULL,
    channel_name   TEXT    NOT NULL,
    severity       INTEGER NOT NULL,        -- 0 info, 1 warning, 2 critical
    count          INTEGER NOT NULL,
    first_ns       INTEGER NOT NULL,
    last_ns        INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL,
    frame          INTEGER NOT NULL,
    detail         TEXT    NOT NULL,
    PRIMARY KEY (run, kind, channel)
) WITHOUT ROWID;

-- Changes of key within one secure channel.
CREATE TABLE rekey (
    run       INTEGER NOT NULL,
    at_ns     INTEGER NOT NULL,
    from_id   INTEGER NOT NULL,
    to_id     INTEGER NOT NULL,
    from_name TEXT    NOT NULL,
    to_name   TEXT    NOT NULL,
    pause_ns  INTEGER NOT NULL,             -- negative: both keys were in use
    lost      INTEGER NOT NULL,
    PRIMARY KEY (run, at_ns, from_id, to_id)
) WITHOUT ROWID;

-- Channels with their figures, for people.
CREATE VIEW flow AS
    SELECT printf('%016x', channel.id) AS identity, channel.*, channel_total.*
    FROM channel JOIN channel_total ON channel_total.run = channel.run AND channel_total.channel = channel.number;
