//! Network-namespace topologies: what the demo, the end-to-end tests and the bench run on.
//!
//! Everything happens inside namespaces that this crate makes and removes; the root namespace's devices and routes
//! are never touched.

pub mod netns;
