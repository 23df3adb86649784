//! Tables and progress for the terminal.
