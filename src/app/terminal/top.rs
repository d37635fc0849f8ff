//! `hookwatch top`: what a running daemon sees, as it changes.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::view::shown::ShownAssessment;
use super::view::state::{Next, ScreenRoom, ScreenState};
use super::view::{ViewModel, screen};
use super::{ServerArguments, TerminalGuard, parse};
use crate::app::contexts::CommandAim;
use crate::app::text::CleanText;
use crate::app::{BadUsage, every};
use crate::io::daemon::{AskError, DaemonClient};

/// Shortest pause between two requests.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after an answer, as a multiple of the time that the answer took: at most a quarter of the time is spent on
/// requests.
const PATIENCE: u32 = 3;
/// Longest pause between two requests: the daemon closes a connection that was idle for 5 s.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The screen is redrawn this often, as it shows ages in seconds.
const TICK: Duration = Duration::from_secs(1);

/// What `top` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct TopArguments {
    /// Which daemon
    #[command(flatten)]
    pub server: ServerArguments,
    /// No colours; none either where NO_COLOR is set or TERM is dumb
    #[arg(long)]
    pub no_color: bool,
}

/// The assessment, with the daemon's own words if it has stopped judging; or why there is no assessment.
type PollOutcome = Result<(Arc<ShownAssessment>, Option<CleanText>), CleanText>;

/// Shows the assessment until a key or a signal ends it.
///
/// # Errors
/// When there is no terminal or it fails, or no client for the cluster can be made.
pub async fn top(
    arguments: TopArguments,
    program: &'static str,
    in_cluster: bool,
) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let why = format!("top needs a terminal; without one, use `{program} status`");
        return Err(BadUsage::new(why).into());
    }
    let daemon = arguments.server.daemon(in_cluster).await?;
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let colour =
        !arguments.no_color && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
    let server = arguments.server;
    let aim = server.aim(program, in_cluster);
    let hint = move |error: &AskError| server.hint(error, program, in_cluster);
    let mut known = ViewModel {
        server: CleanText::new(&daemon.name()),
        ..ViewModel::default()
    };
    let (tell, mut heard) = mpsc::channel(1);
    let asker = tokio::spawn(ask(daemon, aim, hint, tell));
    let guard = TerminalGuard::take()?;
    let (typed, mut events) = mpsc::channel(16);
    // This thread ends with the process: it blocks until a key is pressed.
    std::thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || read(&typed))?;
    let shown = show(&mut known, &mut heard, &mut events, colour).await;
    drop(guard);
    asker.abort();
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Polls the daemon, no faster than it answers, and sends each outcome.
async fn ask(
    mut daemon: DaemonClient,
    aim: CommandAim,
    hint: impl Fn(&AskError) -> Option<String>,
    tell: mpsc::Sender<PollOutcome>,
) {
    loop {
        let began = Instant::now();
        let heard = match daemon.ask().await {
            Ok(answer) => match parse(&answer.assessment, &aim) {
                Ok(seen) => Ok((Arc::new(seen), answer.silent.as_deref().map(CleanText::new))),
                Err(error) => Err(CleanText::new(&error.to_string())),
            },
            Err(error) => {
                let said = hint(&error).map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"));
                Err(CleanText::new(&said))
            }
        };
        if tell.send(heard).await.is_err() {
            return;
        }
        sleep((began.elapsed() * PATIENCE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
    }
}

/// Forwards input until the receiver or the terminal is gone.
fn read(typed: &mpsc::Sender<io::Result<Event>>) {
    loop {
        let event = event::read();
        let over = event.is_err();
        if typed.blocking_send(event).is_err() || over {
            return;
        }
    }
}

/// Draws whenever anything is new, until a key or a signal ends it.
async fn show(
    known: &mut ViewModel,
    heard: &mut mpsc::Receiver<PollOutcome>,
    events: &mut mpsc::Receiver<io::Result<Event>>,
    colour: bool,
) -> anyhow::Result<()> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut stop = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ];
    let [terminate, interrupt, hangup] = &mut stop;
    let (mut state, mut room) = (ScreenState::default(), ScreenRoom::default());
    let mut answered = Instant::now();
    // While the screen is paused: the last assessment, and the last failure after it.
    let mut held_back: Vec<(PollOutcome, Instant)> = Vec::new();
    let mut tick = every(TICK);
    loop {
        known.age = answered.elapsed();
        // A terminal that supports this never shows half a screen.
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        terminal.draw(|frame| {
            room = screen::draw(known, &state, colour, frame.area(), frame.buffer_mut());
        })?;
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        tokio::select! {
            _ = tick.tick() => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            news = heard.recv() => match news {
                Some(news) if state.paused => {
                    held_back.retain(|(held, _)| held.is_ok() && news.is_err());
                    held_back.push((news, Instant::now()));
                }
                Some(news) => record(known, news, Instant::now(), &mut answered),
                None => anyhow::bail!("the task that asks the daemon has ended"),
            },
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) => {
                    if state.key(key, known.seen.as_deref(), room) == Next::Quit {
                        return Ok(());
                    }
                    if !state.paused {
                        for (news, came) in held_back.drain(..) {
                            record(known, news, came, &mut answered);
                        }
                    }
                }
                // A new size takes effect when the screen is drawn next.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
        }
    }
}

/// Records the outcome of a request, and when. The last assessment stays when there is no answer.
fn record(known: &mut ViewModel, news: PollOutcome, came: Instant, answered: &mut Instant) {
    match news {
        Ok((seen, silent)) => {
            known.history.observe(&seen);
            known.seen = Some(seen);
            (known.silent, known.trouble) = (silent, None);
            *answered = came;
        }
        Err(trouble) => known.trouble = Some(trouble),
    }
}
