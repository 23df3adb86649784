//! What links were told of this router, as it is shown. Whoever advertises writes it, whoever asks reads it.

use std::sync::{PoisonError, RwLock};

use crate::api::RouterAdvertisementView;

#[derive(Debug, Default)]
pub struct Advertised(RwLock<Vec<RouterAdvertisementView>>);

impl Advertised {
    pub fn set(&self, views: Vec<RouterAdvertisementView>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = views;
    }

    pub fn get(&self) -> Vec<RouterAdvertisementView> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
