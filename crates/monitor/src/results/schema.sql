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
    mode        TEXT    NOT NULL,           -- fast | full, see part
    last_update INTEGER NOT NULL DEFAULT 0, -- number of the last update contained: none is ever added twice
    merges      INTEGER NOT NULL DEFAULT 0, -- how often parts of kind 4 were put together
    merged_to   INTEGER NOT NULL DEFAULT 0, -- number of the part up to which that was done
    finished    INTEGER NOT NULL DEFAULT 0,
    partial     TEXT,                       -- why results end early
    summary     TEXT                        -- JSON, as in /api/v1/stats/summary; absent until finished
);

-- What concerns single channels, thousands of them in a row: a row each would take longer to write than the packets to
-- analyse. `sluice monitor export --db results.db --output tables.db` turns parts into plain tables (channel,
-- channel_interval), and the REST interface reads them. The bytes are described in crates/monitor/src/results/parts.rs.
CREATE TABLE part (
    number        INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL,
    kind          INTEGER NOT NULL,         -- 1 channels seen for the first time; 2 what an interval added to channels;
                                            -- 3 figures of channels whose state was dropped: at the end, or to make room;
                                            -- 4 as 2, in mode fast: packets in order only, of several intervals together
    interval      INTEGER NOT NULL,         -- as in link_interval; of the last one that is contained
    channels      INTEGER NOT NULL,         -- how many are contained
    first_channel INTEGER NOT NULL,         -- lowest and highest number of these channels within the run
    last_channel  INTEGER NOT NULL,
    data          BLOB    NOT NULL
);
CREATE INDEX part_by_interval ON part (run, kind, interval);

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

-- Ranges of numbers that were lost.
CREATE TABLE gap (
    run       INTEGER NOT NULL,
    channel   INTEGER NOT NULL,             -- identity, the same in every run and database
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
    channel        INTEGER NOT NULL,        -- identity
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
