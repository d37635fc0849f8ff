//! Faults of the control plane that can be switched while it runs: a slow etcd, too little CPU, forbidden changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::random;

/// The CPU that the API server and etcd share when nothing is wrong, in thousandths of a core.
pub const USUAL_MILLICORES: u32 = 2_000;

/// The faults that can be switched while the API server runs. Changes take effect on the next step of every request.
#[derive(Debug)]
pub struct Knobs {
    storage: Mutex<Storage>,
    cpu: Cpu,
    refusal: Mutex<Option<String>>,
    failing_check: Mutex<Option<String>>,
    firewalled: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Copy)]
struct Storage {
    latency: Duration,
    jitter: f64,
}

/// CPU that parts of a request cost, as time on one core. Chosen so that an idle lab API server is as quick as a recorded real
/// one, and a flood of LISTs slows both alike.
pub(super) mod cost {
    use std::time::Duration;

    /// Reading a request and writing its answer.
    pub const REQUEST: Duration = Duration::from_micros(100);
    /// Decoding, defaulting and validating an object, on top of that.
    pub const WRITE: Duration = Duration::from_micros(200);
    /// Encoding one object of a list.
    pub const LISTED: Duration = Duration::from_micros(20);
    /// Encoding a review, the client's part of TLS, decoding the answer.
    pub const CALL: Duration = Duration::from_micros(150);
    /// One of the [`STORAGE_TURNS`] turns of an etcd operation.
    pub const STORAGE: Duration = Duration::from_micros(30);
    /// An etcd operation waits for a core more than once: in its client, in etcd and for the answer. That is why
    /// starvation slows it more than it slows hooks.
    pub const STORAGE_TURNS: u32 = 3;
    /// One scrape of the metrics.
    pub const SCRAPE: Duration = Duration::from_millis(5);
}

impl Knobs {
    /// A quick etcd and two cores.
    pub(super) fn new() -> Self {
        Self {
            storage: Mutex::new(Storage {
                latency: Duration::from_millis(1),
                jitter: 0.3,
            }),
            cpu: Cpu::new(USUAL_MILLICORES),
            refusal: Mutex::new(None),
            failing_check: Mutex::new(None),
            firewalled: Mutex::new(None),
        }
    }

    /// "etcd is slow": every operation from now on takes `latency`, give or take the fraction `jitter` (0 to 1) of it.
    ///
    /// A create is one operation; an update, a patch or a delete two; a GET or a LIST one, unless the client is
    /// content with any version (`resourceVersion=0`). Timers have a granularity of 1 ms.
    pub fn set_storage_latency(&self, latency: Duration, jitter: f64) {
        *lock(&self.storage) = Storage {
            latency,
            jitter: jitter.clamp(0.0, 1.0),
        };
    }

    /// How much CPU the API server and etcd share, in thousandths of a core, as a CPU limit is given; 0 for as much as
    /// is needed. The default is 2,000.
    ///
    /// No real CPU is burnt. Every request costs simulated core time, a LIST in proportion to what it returns, and
    /// waits for its turn, so a flood of LISTs slows writes, reads, etcd and calls to hooks alike.
    pub fn set_cpu(&self, millicores: u32) {
        self.cpu.limit(millicores);
    }

    /// Refuses (403, with this reason) every change of a webhook configuration, as a ValidatingAdmissionPolicy or
    /// missing rights would; `None` ends it.
    pub fn refuse_configuration_writes(&self, reason: Option<&str>) {
        *lock(&self.refusal) = reason.map(str::to_owned);
    }

    /// Lets a check of `/readyz` fail, as that of a `poststarthook/...` does while it cannot write; `None` ends it.
    pub fn fail_check(&self, name: Option<&str>) {
        *lock(&self.failing_check) = name.map(str::to_owned);
    }

    /// The check set by [`Self::fail_check`].
    pub(super) fn failing_check(&self) -> Option<String> {
        lock(&self.failing_check).clone()
    }

    /// Drops every packet between the API server and the hook of this server name (`<service>.<namespace>.svc`), and no
    /// others; `None` ends it.
    pub fn firewall(&self, server_name: Option<&str>) {
        *lock(&self.firewalled) = server_name.map(str::to_owned);
    }

    /// Whether [`Self::firewall`] drops the packets of this server name.
    pub(super) fn is_firewalled(&self, server_name: &str) -> bool {
        lock(&self.firewalled).as_deref() == Some(server_name)
    }

    /// The reason set by [`Self::refuse_configuration_writes`].
    pub(super) fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// Waits for and then uses up core time.
    pub(super) async fn spend(&self, cost: Duration) {
        self.cpu.spend(cost).await;
    }

    /// Core time used so far.
    pub(super) fn cpu_used(&self) -> Duration {
        lock(&self.cpu.inner).used
    }

    /// Takes as long as one etcd operation takes now.
    pub(super) async fn storage_operation(&self) {
        let Storage { latency, jitter } = *lock(&self.storage);
        for _ in 0..cost::STORAGE_TURNS {
            self.spend(cost::STORAGE).await;
        }
        let factor = random::signed().mul_add(jitter, 1.0);
        let latency = latency.mul_f64(factor.max(0.0));
        if !latency.is_zero() {
            sleep_until(Instant::now() + latency).await;
        }
    }
}

/// Cores, as a queue in virtual time.
///
/// Work takes microseconds and timers milliseconds, so no task holds a core while it sleeps. Each piece of work is booked on
/// the core that is free first, and its task sleeps only when the work will be done later than a timer can resolve. However
/// coarse the timers, a core never does more than one second of work per second.
#[derive(Debug)]
struct Cpu {
    inner: Mutex<Cores>,
}

#[derive(Debug)]
struct Cores {
    /// When each core has done what is booked on it.
    free: Vec<Instant>,
    /// Seconds that a core takes for one second of work; more than 1.0 when only a part of the core may be used.
    slowness: f64,
    used: Duration,
}

/// Long work is booked in slices of this length, so that other work gets its turn, as under a scheduler.
const SLICE: Duration = Duration::from_millis(2);
/// The resolution of timers: a shorter wait is skipped.
const GRAIN: Duration = Duration::from_millis(1);

impl Cpu {
    fn new(millicores: u32) -> Self {
        let cpu = Self {
            inner: Mutex::new(Cores {
                free: Vec::new(),
                slowness: 1.0,
                used: Duration::ZERO,
            }),
        };
        cpu.limit(millicores);
        cpu
    }

    /// Rounds up to whole cores that are slower: 1,500 millicores become two cores of 750. 0 means no limit.
    fn limit(&self, millicores: u32) {
        let mut inner = lock(&self.inner);
        let cores = millicores.div_ceil(1_000);
        inner.free.sort();
        inner.free.resize(cores as usize, Instant::now());
        if millicores > 0 {
            inner.slowness = f64::from(cores) * 1_000.0 / f64::from(millicores);
        }
    }

    async fn spend(&self, cost: Duration) {
        let mut left = cost;
        while !left.is_zero() {
            let slice = left.min(SLICE);
            left -= slice;
            let done = lock(&self.inner).book(Instant::now(), slice);
            if let Some(done) = done
                && done > Instant::now() + GRAIN
            {
                // Wakes a little early: the rest stays booked on the core, and the next task waits for it.
                sleep_until(done - GRAIN / 2).await;
            }
        }
    }
}

impl Cores {
    /// Books work and returns when it will be done; `None` without a CPU limit.
    fn book(&mut self, now: Instant, work: Duration) -> Option<Instant> {
        self.used += work;
        let core = self.free.iter_mut().min()?;
        *core = now.max(*core) + work.mul_f64(self.slowness);
        Some(*core)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_booked_on_the_core_that_is_free_first() {
        let now = Instant::now();
        let mut cores = Cores {
            free: vec![now; 2],
            slowness: 1.0,
            used: Duration::ZERO,
        };
        let ms = Duration::from_millis;
        assert_eq!(cores.book(now, ms(10)), Some(now + ms(10)));
        assert_eq!(cores.book(now, ms(4)), Some(now + ms(4)));
        assert_eq!(cores.book(now, ms(4)), Some(now + ms(8)));
        assert_eq!(cores.book(now, ms(4)), Some(now + ms(12)));
        assert_eq!(cores.book(now + ms(100), ms(1)), Some(now + ms(101)));
        assert_eq!(cores.used, ms(23));
    }

    #[test]
    fn a_flood_takes_as_long_as_its_work_divided_by_the_cores() {
        let now = Instant::now();
        let mut cores = Cores {
            free: vec![now; 2],
            slowness: 1.0,
            used: Duration::ZERO,
        };
        let done = (0..1_000)
            .filter_map(|_| cores.book(now, Duration::from_millis(2)))
            .max();
        assert_eq!(done, Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn a_part_of_a_core_takes_as_much_longer() {
        let ms = Duration::from_millis;
        for (millicores, first, second) in [(2_000, 10, 10), (1_500, 13, 13), (1_000, 10, 20), (400, 25, 50)]
        {
            let cpu = Cpu::new(2_000);
            cpu.limit(millicores);
            let now = Instant::now();
            let mut cores = lock(&cpu.inner);
            let after = |done: Option<Instant>| done.map(|done| (done - now).as_millis());
            assert_eq!(after(cores.book(now, ms(10))), Some(first), "{millicores}");
            assert_eq!(after(cores.book(now, ms(10))), Some(second), "{millicores}");
            assert_eq!(cores.used, ms(20));
        }
    }

    #[tokio::test]
    async fn without_a_limit_nothing_waits_and_all_of_it_counts() {
        let knobs = Knobs::new();
        knobs.set_cpu(0);
        knobs.spend(Duration::from_secs(3_600)).await;
        assert_eq!(knobs.cpu_used(), Duration::from_secs(3_600));
    }
}
