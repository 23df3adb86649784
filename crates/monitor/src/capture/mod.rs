//! Sources of frames: capture files, standard input, live interfaces.

use thiserror::Error;

use crate::frame::Batch;

/// Something that yields frames in their order of capture.
pub trait Source: Send {
    /// Fills `batch` with the next frames, a few hundred kilobytes of them, and says whether more may follow. Live
    /// sources return an empty batch when nothing came for a while. On an error the batch holds the frames before it,
    /// which are to be used.
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError>;

    /// What to call the source in reports.
    fn name(&self) -> &str;

    /// Bytes read and, where it is known, bytes in all.
    fn progress(&self) -> (u64, Option<u64>);

    /// Frames that the capture itself lost so far (PACKET_STATISTICS, pcapng interface statistics).
    fn drops(&self) -> u64 {
        0
    }
}

#[derive(Debug, Error)]
pub enum CaptureError {
    #[error("{name}: {source}")]
    Io { name: String, source: std::io::Error },
    #[error("{name} is not a capture: it starts with {start}, expected pcap, pcapng, gzip or zstd")]
    NotACapture { name: String, start: String },
    #[error("{name} is cut in the middle, at byte {at} after {frames} frames; results up to there are kept")]
    Cut { name: String, at: u64, frames: u64 },
    #[error("{name} is damaged at byte {at} after {frames} frames: {what}; results up to there are kept")]
    Damaged { name: String, at: u64, frames: u64, what: String },
    #[error("there is no interface {name}; interfaces here: {known}")]
    NoInterface { name: String, known: String },
}

impl CaptureError {
    /// Whether frames before the error are worth a partial result.
    pub fn is_partial(&self) -> bool {
        !matches!(self, CaptureError::NotACapture { .. } | CaptureError::NoInterface { .. })
    }
}
