//! Chains of authenticators and authorizers.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

#[path = "auth/authenticators.rs"]
mod authenticators;
#[path = "auth/authorizers.rs"]
mod authorizers;

use std::sync::{Arc, Mutex};

use aggregated_apiserver::Kinds;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

fn kinds() -> Kinds {
    Kinds::new().crds_from_yaml(test_server::DEFINITION).unwrap()
}

/// The calls of authenticators and authorizers, in order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
