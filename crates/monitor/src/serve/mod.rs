//! REST interface and web page over a database of results.
