//! Measures what it costs a webhook to be watched. Three processes: the daemon, and one for each of the two endpoints of a
//! Service with many webhooks.
//!
//! `cargo run --release --example watching -- [--webhooks 200] [--paths 1] [--seconds 60] [--hookwatch BINARY] [--real]`
//!
//! Prints one line: handshakes and requests per second at the webhooks, and the share of a core that the daemon and each
//! webhook process used; with `--real`, which uses a real kube-apiserver, also the share of that. Nothing else should run
//! on the machine.

mod estate;
mod process;

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;

use estate::{Daemon, Size};
use process::Process;

/// Time for the daemon to find and probe every webhook before the measurement.
const WARM_UP: Duration = Duration::from_secs(20);

#[derive(Debug, Parser)]
struct Arguments {
    /// Webhooks of the Service
    #[arg(long, default_value_t = 200)]
    webhooks: usize,
    /// Number of different paths among the webhooks
    #[arg(long, default_value_t = 1)]
    paths: usize,
    /// How long to measure
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The hookwatch binary
    #[arg(long, default_value = estate::RELEASE)]
    hookwatch: PathBuf,
    /// Use a real kube-apiserver, which is found as the tests find it
    #[arg(long)]
    real: bool,
    /// Internal: serve the endpoint with this index
    #[arg(long, hide = true)]
    serve: Option<usize>,
    /// Internal: number of Services
    #[arg(long, hide = true, default_value_t = 1)]
    services: usize,
    /// Internal: address of the endpoints
    #[arg(long, hide = true)]
    host: Option<IpAddr>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match arguments.serve {
        Some(process) => estate::serve(process, arguments.services, arguments.host).await,
        None => measure(&arguments).await,
    }
}

/// An address of this machine that is not on the loopback device. To connect a UDP socket sends no packet.
fn own_address() -> anyhow::Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.real {
        let directory = PrivateDirectory::create()?;
        let server = Envtest::start(directory.path()).await?;
        return watch(arguments, &server.kubeconfig(), Some(server.api_server_id())).await;
    }
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    watch(arguments, &server.kubeconfig(), None).await
}

async fn watch(arguments: &Arguments, kubeconfig: &str, server: Option<u32>) -> anyhow::Result<()> {
    let client = client_for(kubeconfig).await?;
    let size = Size {
        webhooks: arguments.webhooks,
        paths: arguments.paths,
        services: arguments.services,
        endpoints: 2,
        host: arguments.real.then(own_address).transpose()?,
    };
    let mut webhooks = estate::build(&client, size).await?;
    let daemon = Daemon::start(&arguments.hookwatch, kubeconfig)?;
    tokio::time::sleep(WARM_UP).await;
    let served = || server.map_or(Ok(0.0), process::cpu_of);
    let (before, served_before) = (figures(&mut webhooks, &daemon).await?, served()?);
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let (after, served_after) = (figures(&mut webhooks, &daemon).await?, served()?);
    let per_second = |at: usize| (after[at] - before[at]) / arguments.seconds as f64;
    println!(
        "{} webhooks with {} paths at two endpoints: {:.1} handshakes/s, {:.1} requests/s; hookwatch {:.2} % of a core and \
         {:.0} MB, the webhook processes {:.2} % and {:.2} %",
        arguments.webhooks,
        arguments.paths,
        per_second(0),
        per_second(1) + per_second(2),
        per_second(3) * 100.0,
        daemon.process.memory()? / 1e6,
        per_second(4) * 100.0,
        per_second(5) * 100.0
    );
    if server.is_some() {
        let share = (served_after - served_before) / arguments.seconds as f64 * 100.0;
        println!("kube-apiserver {share:.2} % of a core");
    }
    Ok(())
}

/// Handshakes, requests at both endpoints, and the CPU seconds of the three processes.
async fn figures(webhooks: &mut [Process], daemon: &Daemon) -> anyhow::Result<[f64; 6]> {
    let [one, two] = webhooks else {
        anyhow::bail!("two webhooks");
    };
    Ok([
        daemon.handshakes().await?,
        one.ask("")?.trim().parse()?,
        two.ask("")?.trim().parse()?,
        daemon.process.cpu()?,
        one.cpu()?,
        two.cpu()?,
    ])
}
