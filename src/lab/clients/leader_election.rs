//! Leader election as kube-controller-manager and kube-scheduler do it (client-go `tools/leaderelection`): a leader
//! that cannot renew its Lease in time exits, and there is no leader until the Lease has expired and its process is
//! back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

use super::lease::{LeaseRecord, LeaseStore, RemoteLease, now, within};
use super::ledger::LossLedger;
use super::requests::RequestFailure;
use crate::lab::api::random;

/// How long a Lease is valid after a renewal: `--leader-elect-lease-duration`.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// After this time without a renewal the leader exits: `--leader-elect-renew-deadline`.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two attempts: `--leader-elect-retry-period`.
pub(super) const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// While another process holds the Lease, the pause is longer by up to this many periods at random: client-go's `JitterFactor`.
const JITTER_FACTOR: f64 = 1.2;
/// Timeout of a single request, also sent as `?timeout=`: half of the renew deadline (client-go,
/// `resourcelock.NewFromKubeconfig`).
pub(super) const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// How long the kubelet waits before it restarts a container that exited once: the first step of its crash back-off.
pub(super) const RESTART_AFTER: Duration = Duration::from_secs(10);

/// A process that leads whenever it can, does its work while it leads, exits when it cannot renew, and is started again.
pub(super) async fn hold_and_work<F>(lease: RemoteLease, ledger: Arc<LossLedger>, work: impl Fn() -> F)
where
    F: Future<Output = ()>,
{
    for run in 0_u64.. {
        // Each process has an identity of its own: client-go's is the host's name and a UUID.
        let mut elector = Elector::new(lease.clone(), format!("{}_{run}", lease.name()));
        elector.acquire().await;
        tokio::select! {
            () = elector.renew() => {}
            () = work() => {}
        }
        ledger.leader_lost(lease.name());
        sleep(RESTART_AFTER).await;
    }
}

/// One process's part in an election.
struct Elector<S> {
    lease: S,
    identity: String,
    /// The Lease as last seen or written.
    observed: Option<LeaseRecord>,
    /// When this process last saw it change, by its own clock.
    observed_at: Instant,
}

impl<S: LeaseStore> Elector<S> {
    fn new(lease: S, identity: String) -> Self {
        Self {
            lease,
            identity,
            observed: None,
            observed_at: Instant::now(),
        }
    }

    /// Returns when it leads.
    async fn acquire(&mut self) {
        while !self.try_acquire_or_renew().await {
            let unit = f64::midpoint(random::signed(), 1.0);
            sleep(RETRY_PERIOD.mul_f64(unit.mul_add(JITTER_FACTOR, 1.0))).await;
        }
    }

    /// Returns when it has not renewed in time.
    async fn renew(&mut self) {
        loop {
            let deadline = Instant::now() + RENEW_DEADLINE;
            if timeout_at(deadline, self.until_renewed(deadline)).await != Ok(true) {
                return;
            }
            sleep(RETRY_PERIOD).await;
        }
    }

    /// Tries until the Lease is renewed. False when the deadline has passed, after which no attempt begins.
    async fn until_renewed(&mut self, deadline: Instant) -> bool {
        let mut attempts = interval(RETRY_PERIOD);
        // As a Go ticker: of the ticks missed meanwhile, one fires at once and the others are lost.
        attempts.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            attempts.tick().await;
            if Instant::now() >= deadline {
                return false;
            }
            if self.try_acquire_or_renew().await {
                return true;
            }
        }
    }

    fn leads(&self) -> bool {
        let holder = self.observed.as_ref().map(|lease| &lease.holder);
        holder == Some(&self.identity)
    }

    fn is_valid(&self, at: Instant) -> bool {
        at < self.observed_at + LEASE_DURATION
    }

    fn observe(&mut self, lease: LeaseRecord) {
        self.observed = Some(lease);
        self.observed_at = Instant::now();
    }

    /// client-go's `tryAcquireOrRenew`.
    async fn try_acquire_or_renew(&mut self) -> bool {
        let began = Instant::now();
        let renewed = now();
        // A leader assumes that no other process wrote since, and skips the read.
        if let Some(held) = self
            .observed
            .clone()
            .filter(|_| self.leads() && self.is_valid(began))
        {
            let wanted = LeaseRecord {
                renewed: renewed.clone(),
                ..held
            };
            if let Ok(written) = within(ATTEMPT_LIMIT, self.lease.replace(&wanted)).await {
                self.observe(written);
                return true;
            }
        }
        let mut wanted = LeaseRecord {
            holder: self.identity.clone(),
            duration: LEASE_DURATION,
            acquired: Some(renewed.clone()),
            renewed,
            transitions: 0,
            version: String::new(),
        };
        let found = match within(ATTEMPT_LIMIT, self.lease.get()).await {
            Ok(found) => found,
            Err(RequestFailure::NotFound) => {
                return self.take(within(ATTEMPT_LIMIT, self.lease.create(&wanted)).await);
            }
            Err(_) => return false,
        };
        if self.observed.as_ref() != Some(&found) {
            self.observe(found.clone());
        }
        if !found.holder.is_empty() && self.is_valid(began) && !self.leads() {
            return false;
        }
        wanted.version = found.version;
        if self.leads() {
            (wanted.acquired, wanted.transitions) = (found.acquired, found.transitions);
        } else {
            wanted.transitions = found.transitions + 1;
        }
        let written = within(ATTEMPT_LIMIT, self.lease.replace(&wanted)).await;
        self.take(written)
    }

    fn take(&mut self, written: Result<LeaseRecord, RequestFailure>) -> bool {
        match written {
            Ok(lease) => {
                self.observe(lease);
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::super::lease::tests::{MemoryLease, Writes};
    use super::*;

    async fn leader(lease: &MemoryLease) -> Elector<MemoryLease> {
        let mut elector = Elector::new(lease.clone(), "first".to_owned());
        elector.acquire().await;
        elector
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_renewals_hang_has_two_attempts_of_five_seconds_and_exits() {
        let lease = MemoryLease::new();
        let mut elector = leader(&lease).await;
        lease.take_attempts();
        lease.set(Writes::Hang);
        let began = Instant::now();
        elector.renew().await;
        // The deadline runs from the first renewal that hangs, which comes up to a retry period after the fault.
        assert_eq!(began.elapsed(), RENEW_DEADLINE);
        assert_eq!(lease.take_attempts(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_renews_every_two_seconds() {
        let lease = MemoryLease::new();
        let mut elector = leader(&lease).await;
        lease.take_attempts();
        let renewed = timeout(RETRY_PERIOD * 5 - RETRY_PERIOD / 2, elector.renew()).await;
        assert!(renewed.is_err(), "it gave up");
        assert_eq!(lease.take_attempts(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_survives_writes_that_fail_for_less_than_its_deadline() {
        let lease = MemoryLease::new();
        let mut elector = leader(&lease).await;
        lease.set(Writes::Fail);
        let healed = async {
            // The last attempt begins a retry period before the deadline.
            sleep(RENEW_DEADLINE - RETRY_PERIOD * 3 / 2).await;
            lease.set(Writes::Succeed);
            sleep(LEASE_DURATION).await;
        };
        tokio::select! {
            () = elector.renew() => panic!("it gave up"),
            () = healed => {}
        }
        assert!(elector.leads());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_that_ends_while_a_leaders_second_attempt_is_under_way_comes_too_late_for_it() {
        let lease = MemoryLease::new();
        let mut elector = leader(&lease).await;
        lease.set(Writes::Hang);
        let healed = async {
            sleep(ATTEMPT_LIMIT + Duration::from_secs(1)).await;
            lease.set(Writes::Succeed);
            std::future::pending::<()>().await;
        };
        let began = Instant::now();
        tokio::select! {
            () = elector.renew() => {}
            () = healed => {}
        }
        assert_eq!(began.elapsed(), RENEW_DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_process_leads_only_when_it_has_seen_the_lease_unchanged_for_its_duration() {
        let lease = MemoryLease::new();
        leader(&lease).await;
        let mut next = Elector::new(lease.clone(), "second".to_owned());
        let began = Instant::now();
        next.acquire().await;
        let longest = LEASE_DURATION + RETRY_PERIOD.mul_f64(1.0 + JITTER_FACTOR);
        assert!(
            (LEASE_DURATION..=longest).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
        let found = lease.lease().unwrap();
        assert_eq!((found.holder.as_str(), found.transitions), ("second", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_process_renews_is_never_taken() {
        let lease = MemoryLease::new();
        let mut first = leader(&lease).await;
        let mut second = Elector::new(lease.clone(), "second".to_owned());
        tokio::select! {
            () = first.renew() => panic!("it gave up"),
            () = second.acquire() => panic!("it took a Lease that was held"),
            () = sleep(LEASE_DURATION * 4) => {}
        }
    }
}
