//! Writes the packets around an event to a pcapng file.
