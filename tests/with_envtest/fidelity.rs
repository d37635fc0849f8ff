//! The fidelity cases on a real API server, one for all of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hookwatch::lab::control_plane::ControlPlaneKind;
use tokio::runtime::Runtime;

use super::cases::lab::Lab;
use super::{Named, Outcome, cases, named};

/// Started by the first test that needs it, gone with the last.
#[derive(Default)]
struct Shared(RefCell<Option<(Arc<Lab>, Runtime)>>);

impl Shared {
    fn with<T>(&self, play: impl AsyncFnOnce(&Arc<Lab>) -> T) -> T {
        let mut slot = self.0.borrow_mut();
        let (lab, runtime) = slot.get_or_insert_with(|| {
            let runtime = Runtime::new().unwrap();
            let lab = runtime.block_on(Lab::start(ControlPlaneKind::Envtest, None));
            (Arc::new(lab), runtime)
        });
        runtime.block_on(play(lab))
    }
}

pub fn tests() -> Vec<Named> {
    let shared = Rc::new(Shared::default());
    cases::cases()
        .into_iter()
        .map(|case| {
            let shared = Rc::clone(&shared);
            named(&format!("fidelity_{}", case.name), move || {
                let played = shared.with(async |lab| cases::play(lab, &case, true).await);
                played.map_or_else(Outcome::Skipped, |()| Outcome::Held)
            })
        })
        .collect()
}
