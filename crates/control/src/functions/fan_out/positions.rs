//! Positions of the data plane's listeners, put into the tables of the generation in force.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_abi::tables::FanOutListener;
use sluice_dataplane::{Dataplane, Generation};

/// Positions that a listener should have.
pub struct News {
    pub listener: String,
    /// Index of the listener in its plan.
    pub index: usize,
    pub version: u64,
    pub positions: Vec<u16>,
}

/// A generation and its listeners in the order of its plan.
type Listening = (Generation, Vec<FanOutListener>);

/// The generation in force, when this process loaded it; a commit changes over while it holds this.
#[derive(Clone, Default)]
pub struct InForce(Arc<Mutex<Option<Listening>>>);

impl InForce {
    pub fn lock(&self) -> MutexGuard<'_, Option<Listening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes positions into the tables of a generation; false if it is not in force.
    pub fn write_positions(
        &self,
        generation: u32,
        news: &[News],
        dataplane: &Dataplane,
    ) -> sluice_dataplane::Result<bool> {
        let guard = self.lock();
        let Some((loaded, listeners)) = guard.as_ref().filter(|(loaded, _)| loaded.number() == generation)
        else {
            return Ok(false);
        };
        for one in news {
            let Some(listener) = listeners.get(one.index) else { return Ok(false) };
            dataplane.write_fan_out_positions(loaded, listener, &one.positions)?;
        }
        Ok(true)
    }
}
