//! Where results go: SQLite, JSON lines, Prometheus.
