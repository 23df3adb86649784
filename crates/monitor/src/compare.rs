//! Two taps of one link: where packets were lost, and how long they took between the taps.
