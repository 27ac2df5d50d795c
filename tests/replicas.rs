//! Several replicas of the program with one etcd. A write that one of them acknowledges is visible in all of them.
//! Nothing is lost, duplicated or reported in another order while members of etcd and replicas are suspended, killed
//! and restarted, and cannot reach each other.
//!
//! `SECONDS` is the duration of that test (20). Without etcd, these tests are skipped, which they print; with
//! `REQUIRE_CONTROL_PLANE` set, they fail.

#[path = "replicas/bad_etcd.rs"]
mod bad_etcd;
#[path = "replicas/clock.rs"]
mod clock;
#[path = "replicas/faults.rs"]
mod faults;
#[path = "replicas/history.rs"]
mod history;
#[path = "replicas/informers.rs"]
mod informers;
#[path = "replicas/installation.rs"]
mod installation;
#[path = "replicas/late.rs"]
mod late;
#[path = "replicas/link.rs"]
mod link;
#[path = "replicas/standalone.rs"]
mod standalone;
#[allow(dead_code, reason = "other tests break connections, too")]
#[path = "control_plane/switch.rs"]
mod switch;
#[path = "replicas/transfer.rs"]
mod transfer;

use farm_operator::v1alpha::{Llama, LlamaSpec};

fn llama(name: &str, weight: f64) -> Llama {
    Llama::new(name, LlamaSpec { weight, height: 0.0 })
}
