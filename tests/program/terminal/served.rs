//! A daemon's server with assessments of ours, in a thread of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hookwatch::domain::report::assessment::Assessment;
use hookwatch::io::http::{self, Listening};
use hookwatch::io::report::Reported;
use hookwatch::io::report::metrics::Metrics;
use tokio::sync::watch;

/// It judges five times a second, as a daemon does, and always the same.
pub struct Served {
    pub address: SocketAddr,
    judged: Arc<Mutex<Assessment>>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub fn start(assessment: Assessment) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), assessment, |_| {})
    }

    /// Serves there, once what is to be changed about it is.
    pub fn at(address: SocketAddr, assessment: Assessment, change: impl FnOnce(&mut Listening)) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(http::listen(address, "--listen")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut listening = Listening::from(listener);
        change(&mut listening);
        let judged = Arc::new(Mutex::new(assessment));
        let (stop, stopped) = watch::channel(false);
        let judge = Arc::clone(&judged);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let (publish, assessment) = watch::channel(None);
                let (began, mut tick) = (Instant::now(), tokio::time::interval(Duration::from_millis(200)));
                let judging = async {
                    loop {
                        tick.tick().await;
                        let mut assessment = judge.lock().unwrap().clone();
                        assessment.at = assessment.at + began.elapsed();
                        publish.send_replace(Some(Arc::new(assessment)));
                    }
                };
                let shown = Reported {
                    assessment,
                    metrics: Arc::new(Metrics::new().unwrap()),
                    certificates: Arc::default(),
                    past: Arc::default(),
                };
                tokio::select! {
                    () = http::serve(listening, shown, stopped) => {}
                    () = judging => {}
                }
            });
        });
        Self {
            address,
            judged,
            stop,
            thread: Some(thread),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn judge(&self, assessment: Assessment) {
        *self.judged.lock().unwrap() = assessment;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
