//! The hot paths. Each prepares in the same way and then repeats its work a given number of times, so the difference between two
//! runs is the work alone.

use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hookwatch_domain::cluster::matching::conditions::{ConditionCompiler, ConditionRequest};
use hookwatch_domain::cluster::matching::{RequestShape, Requester};
use hookwatch_domain::observe::exposition::Exposition;
use hookwatch_domain::observe::exposition::protobuf::ProtobufExposition;

use crate::quiet::{Quiet, assessment, schedule};

/// Size in bytes of the pieces in which a body is fed to a reader; about what a connection delivers at once.
const CHUNK: usize = 16 * 1024;

/// One measured piece of work.
pub struct HotPath {
    pub name: &'static str,
    /// What one repetition does, printed beside the count.
    pub what: &'static str,
    /// Repetitions in the two runs, the smaller number first.
    pub times: [usize; 2],
    pub run: fn(usize) -> anyhow::Result<()>,
}

const fn path(
    name: &'static str,
    what: &'static str,
    times: [usize; 2],
    run: fn(usize) -> anyhow::Result<()>,
) -> HotPath {
    HotPath {
        name,
        what,
        times,
        run,
    }
}

#[rustfmt::skip] // a table
pub const ALL: [HotPath; 8] = [
    path("exposition-text", "a scrape of 2.3 MB read as text", [1, 3], text),
    path("exposition-protobuf", "a scrape of 24 kB read as protobuf", [10, 110], protobuf),
    path("tick-3", "a tick of the watchdog with 3 quiet webhooks", [2, 22], |times| ticks(3, times)),
    path("tick-1000", "a tick of the watchdog with 1,000 quiet webhooks", [1, 6], |times| ticks(1_000, times)),
    path("inventory-1000", "an endpoint changes behind one of 1,000 webhooks", [2, 12], inventory),
    path("schedule-1000", "a tenth of a second of the schedule with 1,000 backends", [100, 200],
        |times| schedule(1_000, times)),
    path("json-100", "the assessment of 100 webhooks as JSON", [5, 55], json),
    path("cel", "four match conditions evaluated for one request", [10, 110], cel),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name)
}

fn text(times: usize) -> anyhow::Result<()> {
    let file = std::fs::File::open(fixture("scrapes/apiserver-1.36.2.prom.gz"))?;
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut body)?;
    for _ in 0..times {
        let mut reader = Exposition::new();
        body.chunks(CHUNK).for_each(|chunk| reader.feed(chunk));
        anyhow::ensure!(black_box(reader.finish()).0.is_api_server, "nothing was read");
    }
    Ok(())
}

fn protobuf(times: usize) -> anyhow::Result<()> {
    let body = std::fs::read(fixture("formats/apiserver-1.36.2.pb"))?;
    for _ in 0..times {
        let mut reader = ProtobufExposition::new();
        body.chunks(CHUNK).for_each(|chunk| reader.feed(chunk));
        anyhow::ensure!(black_box(reader.finish()).0.is_api_server, "nothing was read");
    }
    Ok(())
}

fn ticks(hooks: usize, times: usize) -> anyhow::Result<()> {
    let mut quiet = Quiet::new(hooks);
    for _ in 0..times {
        let published = quiet.tick().context("a tick publishes")?;
        anyhow::ensure!(published.hooks.len() == hooks, "not all are judged");
    }
    Ok(())
}

fn inventory(times: usize) -> anyhow::Result<()> {
    let mut quiet = Quiet::new(1_000);
    (0..times).for_each(|_| quiet.change());
    let published = quiet.tick().context("a tick publishes")?;
    anyhow::ensure!(published.hooks.len() == 1_000, "not all are judged");
    Ok(())
}

fn json(times: usize) -> anyhow::Result<()> {
    let assessment = assessment(100)?;
    for _ in 0..times {
        black_box(serde_json::to_vec(&*assessment)?);
    }
    Ok(())
}

fn cel(times: usize) -> anyhow::Result<()> {
    // Typical match conditions of policy engines.
    let expressions = [
        r#"!("system:nodes" in request.userInfo.groups)"#,
        r#"!request.userInfo.username.startsWith("system:serviceaccount:kube-system:")"#,
        r#"!(has(request.namespace) && request.namespace in ["kube-system", "policies"])"#,
        r#"request.resource.group != "coordination.k8s.io" || request.resource.resource != "leases""#,
    ];
    let conditions = ConditionCompiler::default().conditions(expressions.into_iter());
    let asked = ConditionRequest {
        shape: RequestShape {
            operation: "CREATE",
            version: "v1",
            resource: "configmaps",
            namespace: Some("team-a"),
            ..RequestShape::default()
        },
        kind: Some("ConfigMap"),
        name: "settings",
        by: Requester {
            user: "alice",
            groups: &["system:authenticated"],
        },
        dry_run: false,
    };
    for _ in 0..times {
        let said = black_box(conditions.let_through(&asked));
        anyhow::ensure!(said == Some(true), "the conditions say {said:?}");
    }
    Ok(())
}
