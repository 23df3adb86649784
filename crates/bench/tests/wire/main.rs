//! The generator and the receiver on the real kernel: judged by a capture of others, and by a device with planted faults.

mod device;
mod faults;
mod frames;
mod machines;
