//! Every number of the diagnosis, once, with where it comes from.
//!
//! Three kinds: constants of Kubernetes, with their place in its source (release 1.36); numbers measured on a real API
//! server; and numbers chosen. `cargo run --release --features ablation --example campaign -- ablate` tries what a
//! chosen number is worth, with half and with twice its value.

use std::time::Duration;

/// One number.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// Its name.
    pub name: &'static str,
    /// Its value as written in the code, without its unit.
    pub value: &'static str,
    /// What it means, and why it is what it is.
    pub about: &'static [&'static str],
}

macro_rules! thresholds {
    ($(#[doc = $origin:literal])* $table:ident: $($(#[doc = $about:literal])+ $name:ident: $kind:ty = $value:expr;)+) => {
        $(
            $(#[doc = $about])+
            #[cfg(not(feature = "ablation"))]
            pub const fn $name() -> $kind { $value }
            $(#[doc = $about])+
            #[cfg(feature = "ablation")]
            pub fn $name() -> $kind { ablation::scaled(stringify!($name), $value) }
        )+
        $(#[doc = $origin])*
        pub const $table: &[Threshold] = &[$(Threshold {
            name: stringify!($name),
            value: stringify!($value),
            about: &[$($about),+],
        }),+];
    };
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

thresholds! {
    /// Constants of Kubernetes, or what follows from one.
    KUBERNETES:
    /// Seconds: the largest `timeoutSeconds` (`apis/admissionregistration/validation`).
    longest_timeout: f64 = 30.0;
    /// Seconds that a failed call takes at least if a timeout ended it: the smallest `timeoutSeconds` is 1 (the same
    /// place), less a tenth for what is measured a moment late.
    timeout_like: f64 = 0.9;
    /// Seconds that a failed conversion takes at least if a timeout ended it: a TLS handshake may take 10 s
    /// (`client-go/transport/cache.go`), all of it 30 s.
    handshake_timeout: f64 = 9.0;
    /// Leaders give each attempt to renew their Lease up after this (`client-go/tools/leaderelection`, half the renew
    /// deadline of 10 s).
    leader_attempt: Duration = s(5);
    /// Kubelets give each renewal of a node's Lease and each update of its status up after this (`kubelet/app/server.go`:
    /// the heartbeat client has `nodeStatusUpdateFrequency`).
    kubelet_attempt: Duration = s(10);
    /// The API server gives a create, update, patch or delete of one object up after this
    /// (`apiserver/pkg/endpoints/handlers/rest.go`, `requestTimeoutUpperBound`).
    longest_write: Duration = s(34);
    /// Seconds after which a client may have given up by a timeout of its own: what leaders give each attempt, less a
    /// fifth.
    impatient: f64 = 4.0;
    /// How long the API server keeps an idle connection to a hook (`apimachinery/pkg/util/net/http.go` takes over Go's
    /// `IdleConnTimeout`).
    pooled_connection_idle: Duration = s(90);
    /// After that its last call still runs into its timeout, of 30 s at most.
    pooled_connections_last: Duration = s(120);
    /// The aggregator looks at a service again after 30 s (`kube-aggregator/pkg/controllers/status/remote`): by then
    /// it has seen what we see, twice over.
    aggregator_looks: Duration = s(60);
    /// A watch with nothing to say gets a bookmark a minute (`apiserver/pkg/storage/cacher/cacher.go`): an inventory of which
    /// nothing was heard for longer is nothing to act by.
    silent_inventory: Duration = s(90);
}

thresholds! {
    /// Measured on a real API server.
    MEASURED:
    /// The part of the extra time per write that makes a slow hook a culprit. With a hook that took 803 ms a write took
    /// 808 ms: nearly all of it was the hook's.
    culprit_share: f64 = 0.25;
}

thresholds! {
    /// Chosen; docs/diagnosis.md has what half and twice each value change.
    CHOSEN:
    /// The breaker acts on no verdict whose webhook is less likely right than this, nor on the rules in `NOT_ACTED_ON`
    /// (`diagnose/rules.rs`). Every rule that it acts on is above.
    sure_enough: f64 = 0.9;
    /// Until a change of a webhook configuration has propagated to every API server. A canary sent sooner is no
    /// evidence about it.
    propagated: Duration = s(1);
    /// A probe refused this shortly before a change was seen may have met what the news of it was still under way for.
    news_lag: Duration = ms(500);
    /// A canary that is late by this much has its connection: hookwatch gives one without up after 5 s.
    connected: Duration = ms(5_500);
    /// A Pod stops before its endpoint is taken out, and the news takes its time.
    before_rollout: Duration = s(3);
    /// A failed call this long after a change of the endpoints may come from it, for routes follow within seconds.
    after_rollout: Duration = s(10);
    /// Failed calls further apart are two bursts.
    bursts_apart: Duration = s(5);
    /// Some failed calls that soon after a change of the endpoints may be a rollout's burst.
    rolling: Duration = s(15);
    /// A write or an attempt under way for this long does not come back. Sooner, slow ones count; later, it is known
    /// later by as much.
    late: Duration = ms(1_500);
    /// Where answers take long, silence counts after this many times the slowest answer of the last ten minutes.
    late_factor: f64 = 2.0;
    /// Silence of this length counts, however long answers take.
    late_at_most: Duration = s(3);
    /// The slowest answer is looked for over this time.
    slowest_of: Duration = s(600);
    /// hookwatch itself was stalled when its timer fired this much too late.
    stood_still: Duration = ms(500);
    /// Seconds: a call, a write or a conversion slower than this is slow whatever is usual.
    slow_always: f64 = 0.5;
    /// Seconds: a call or a canary faster than this is never slow; and what a hook usually takes counts up to this.
    slow_at_least: f64 = 0.1;
    /// Between the two it is slow when it takes this many times the usual.
    slow_factor: f64 = 5.0;
    /// Seconds: a direct probe faster than this is never slow. It may wait for a TLS handshake on a loaded machine.
    slow_probe_at_least: f64 = 0.3;
    /// Between the two it is slow when it takes this many times the usual, which counts more than a call's: probes are few,
    /// and the breaker acts on two of them.
    slow_probe_factor: f64 = 8.0;
    /// Seconds: a direct probe or a canary slower than this is slow whatever is usual.
    slow_probe_always: f64 = 1.0;
    /// Fewer failed calls than this may be a rollout's burst; fewer calls say nothing of their mean.
    few_calls: f64 = 3.0;
    /// With fewer calls, or denials, in the newest interval a longer span is looked at.
    enough_calls: f64 = 5.0;
    /// With fewer writes the time per write is not judged.
    enough_writes: f64 = 5.0;
    /// A smaller part of failed calls is no outage.
    notable_part: f64 = 0.05;
    /// Most of them: of calls that fail or are denied, of failed writes, of time that is explained.
    most_calls: f64 = 0.5;
    /// A failed call that took this part of an answer's usual time was answered.
    answer_like: f64 = 0.5;
    /// Calls that take this part of their timeout on average were ended by it, where nothing else is counted.
    timed_out_part: f64 = 0.9;
    /// A failed call that took this part of the hook's timeout was ended by it.
    ended_by_timeout: f64 = 0.8;
    /// A mean time of failed calls beyond this many timeouts is not theirs alone: others were slow too.
    timeout_alone: f64 = 1.2;
    /// What clients gave up, and what other calls took, counts as failed calls, up to this many timeouts.
    timeout_and_others: f64 = 2.0;
    /// A slow hook is a culprit when this part of the extra time of the writes that meet it is its own.
    culprit_call_share: f64 = 0.5;
    /// Seconds that a single call may be late by, for a lost packet or a pause to collect garbage.
    one_late_call: f64 = 1.2;
    /// Endpoints that are missing for less than this may be a rollout.
    no_backends: Duration = s(5);
    /// A burst of failed calls in that time is over after this long.
    burst_lasts: Duration = s(8);
    /// A hook that is dead by our probes alone is named after this long.
    dead_alone: Duration = s(5);
    /// A hook whose failures are ignored is dead only after this long, where silence is what tells, however short its timeout: a
    /// pause of a second or two exceeds a timeout of 1 s. A refusal need not last so long.
    dead_silent: Duration = s(5);
    /// Between two probes no one sees a backend die: the interval, and a second.
    between_probes: Duration = s(6);
    /// A hook named this long before another one seemed to die explains late canaries.
    long_before: Duration = s(10);
    /// A healthy webhook occasionally exceeds a timeout shorter than this.
    short_timeout: Duration = s(3);
    /// A span of counters may begin this much before the endpoint left.
    scraped_before: Duration = s(5);
    /// How long a rollout gap is reported after its last lost call: rollouts that follow each other lose calls up to
    /// 40 s apart.
    gap_told: Duration = s(45);
    /// When more than this part of the failed calls failed at other times, rollouts are not why.
    gap_elsewhere: f64 = 0.1;
    /// Older failures do not count as a rollout gap.
    gap_memory: Duration = s(600);
    /// Changes longer before the trouble than this are not told.
    just_before: Duration = s(120);
    /// Changes older than this explain nothing any more.
    changes_remembered: Duration = s(3_600);
    /// Calls of a removed hook may end this late: they last 30 s at most, and an API server may hear of the removal late.
    removed_still_called: Duration = s(40);
    /// The path to all webhooks was lost at once if every backend fell silent within this time. A lower value misses
    /// probes that run late, a higher one joins unrelated faults.
    path_lost_for: Duration = s(20);
    /// And within this time of each other: while a canary waits every backend is probed once. A lower value misses the path
    /// of more webhooks than are probed in that time, a higher one joins what hangs with a network of hookwatch's own that
    /// fails beside it. Webhooks that fall silent within this time of each other while others answer are no reason not to
    /// believe a canary that waits for one of them.
    path_lost_within: Duration = s(3);
    /// At least this many Services or addresses must be silent for that: two could be two independent faults.
    path_places: f64 = 3.0;
    /// Answers that come within so little of each other come together.
    together: Duration = ms(500);
    /// An inventory that could not be kept up for longer than this may be wrong about addresses.
    old_inventory: Duration = s(30);
    /// Every replica of hookwatch writes canaries, and none knows the results of the others: this many are
    /// assumed.
    replicas: f64 = 3.0;
    /// Writes a second that the one that leads makes beside those, to its Lease: at most one in two seconds at the default
    /// term.
    renewals: f64 = 0.5;
    /// After a webhook name stopped being shared, counters and canaries reflect it for a minute each. For that long the
    /// name may mean either webhook, and the breaker goes no further than a shield.
    shared_name: Duration = s(180);
    /// The EndpointSlice controller puts its slices right within a second or so. An endpoint that left twice within this
    /// time may be another writer's doing.
    unsettled: Duration = s(60);
    /// For this long after calls were answered while the hook failed, it may be overloaded.
    some_answered: Duration = s(30);
    /// Beside an API server that does not answer, a canary written within this time shows that others take writes.
    through_lately: Duration = s(20);
    /// Seconds of extra time per write, or of waiting for a seat in flow control, below which nothing is at fault.
    excess_at_least: f64 = 0.02;
    /// Writes are delayed when they take [`slow_factor`] times the usual, and at least this many seconds.
    delayed_at_least: f64 = 0.05;
    /// Writes that get through after they were blocked are still said to be blocked for this long: what hangs comes back
    /// in bursts, one timeout after the other.
    blocked_for: Duration = s(10);
    /// Writes that were blocked still are while this part of them fails. An interval of 2 s holds some 15 writes: when half
    /// of them fail, chance moves the part by 0.13, and twice that is taken off.
    still_blocked: f64 = 0.25;
    /// Writes that flow again after they were delayed are still said to be delayed for this long: three times what [`recent`]
    /// spans, as a few slow calls of a hook that is called rarely need not fall into every span.
    delayed_for: Duration = s(30);
    /// While a webhook that was named holds writes up, writes that flow, or of which nothing is heard, are said to be delayed
    /// for this long after they last were, and delayed ones to be blocked for this long after they last were blocked. On a quiet
    /// cluster one write a minute meets it.
    held_up_for: Duration = s(120);
    /// The API server's own part of a write, or a read, is slow when it takes this many times the usual.
    own_factor: f64 = 3.0;
    /// Without anything usual to compare with, own time above this many seconds is slow.
    own_always: f64 = 0.1;
    /// Without a baseline, an etcd request of this many seconds is slow.
    etcd_always: f64 = 0.05;
    /// An etcd request is slow at this many times the usual; this many times the usual reads at once are a crowd.
    etcd_factor: f64 = 4.0;
    /// And an etcd request of at least this many seconds.
    etcd_at_least: f64 = 0.015;
    /// A rate of reads above this part of the usual is no lower than usual.
    as_many_reads: f64 = 0.8;
    /// Fewer reads at once than this are no crowd.
    crowd: f64 = 10.0;
    /// This many times the usual is more than usual: of reads, of etcd's time beside them, of what a canary takes.
    more_than_usual: f64 = 2.0;
    /// A usual time below this many seconds counts as this.
    innocent_seconds: f64 = 0.005;
    /// Seconds that requests wait for a seat when flow control is to blame.
    queue_wait: f64 = 0.05;
    /// A rate of writes below this part of the usual is a standstill.
    standstill: f64 = 0.05;
    /// This many writes a second are a stream that can stall.
    stream_of_writes: f64 = 2.0;
    /// Seconds over which that must hold.
    stall_span: f64 = 3.0;
    /// One late or refused canary, or a few slow writes, may still be explained by the next observation.
    unexplained_after: Duration = s(8);
    /// What is suspect for longer than this is how things are: what is usual is learnt beside it.
    lasting: Duration = s(60);
    /// What is suspect for longer than this is looked at as often as everything else.
    attended: Duration = s(300);
    /// A hook whose endpoints changed is looked at closely for this long.
    moved: Duration = s(12);
    /// Intervals that ended within this time are lately.
    recent: Duration = s(10);
    /// Without an interval that fresh the newest one counts for this long.
    newest_speaks: Duration = s(60);
    /// An API server that was not heard of for this long is forgotten.
    forget_server: Duration = s(300);
    /// How far what happened lately may lag behind the clock while nothing new comes in.
    ageing: Duration = s(1);
    /// Two scrapes of one process closer together than this are one reading.
    min_interval: Duration = ms(500);
    /// How long the time after an interval must stay calm before it enters the baseline. A fault that begins within an
    /// interval of 15 s may be too small in it to be seen, but not in the next one.
    quarantine: Duration = s(20);
    /// With fewer intervals learnt than this, they are learnt at once.
    young: f64 = 3.0;
    /// How many calm intervals make up "usual".
    usual_intervals: f64 = 60.0;
    /// What was counted over longer than this, while a process was not to be reached, does not say when it was.
    long_interval: Duration = s(120);
    /// What a Prometheus has stored says nothing of now once its newest scrape is older than this: twice the usual interval
    /// of a minute.
    stored_speaks: Duration = s(120);
    /// A verdict that rests on a Prometheus loses that part of its confidence which the scrape interval and the age of the
    /// newest scrape, together, make up of this.
    stored_doubt: Duration = s(300);
    /// But keeps this part of it.
    stored_trust_at_least: f64 = 0.5;
    /// A canary older than this says nothing about now.
    canary_stale: Duration = s(60);
    /// A probe older than this says nothing about now. Probes come every minute at least.
    probe_stale: Duration = s(150);
    /// A canary that took longer may have waited for a call that failed open.
    passed_at_once: Duration = ms(900);
    /// Seconds above the usual that make two canaries worth a closer look.
    slowish_by: f64 = 0.03;
    /// A failed scrape older than this says nothing about now. An address out of reach is tried once a minute.
    failure_lately: Duration = s(75);
    /// An API server that answered within this time answers.
    answers_lately: Duration = s(45);
    /// Behind a shared address, one answer within this time shows that not all are gone.
    answered_a_moment_ago: Duration = s(15);
    /// After this many unanswered scrapes a process behind a shared address counts as silent: the first may be its end.
    unanswered: f64 = 2.0;
}

/// Other values than those that are shipped, to see what each is worth.
#[cfg(feature = "ablation")]
pub mod ablation {
    use std::sync::OnceLock;
    use std::time::Duration;

    /// The environment variable that changes thresholds of a process: `NAME=FACTOR`.
    pub const VARIABLE: &str = "HOOKWATCH_ABLATE";

    static CHANGED: OnceLock<(String, f64)> = OnceLock::new();

    /// Multiplies one threshold, or switches one rule off (any factor), for the rest of this process. Only the first
    /// call counts.
    pub fn change(name: &str, factor: f64) {
        let _ = CHANGED.set((name.to_owned(), factor));
    }

    fn factor(name: &str) -> Option<f64> {
        #[cfg(test)]
        from_test();
        let changed = CHANGED.get().filter(|(changed, _)| changed == name);
        changed.map(|(_, factor)| *factor)
    }

    /// The tests of the library have no other way in.
    #[cfg(test)]
    fn from_test() {
        let Ok(told) = std::env::var(VARIABLE) else {
            return;
        };
        if let Some((name, factor)) = told.split_once('=')
            && let Ok(factor) = factor.parse()
        {
            change(name, factor);
        }
    }

    /// Whether a rule is switched off.
    pub fn is_off(rule: &str) -> bool {
        factor(rule).is_some()
    }

    pub(super) fn scaled<T: Scale>(name: &str, value: T) -> T {
        value.scale(factor(name).unwrap_or(1.0))
    }

    pub(super) trait Scale {
        fn scale(self, factor: f64) -> Self;
    }

    impl Scale for f64 {
        fn scale(self, factor: f64) -> Self {
            self * factor
        }
    }

    impl Scale for Duration {
        fn scale(self, factor: f64) -> Self {
            self.mul_f64(factor)
        }
    }
}
