//! A root of its own for the daemon, as a container has one: its files are where the manifests say, nothing can be
//! written, and, where that can be had, it is the user that the manifests name.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hookwatch::lab::ports::free_port;
use serde_json::Value;
use tempfile::TempDir;

/// Makes the root `$1`, of which `$2` is the program, and becomes it. The rest are its arguments.
const MAKE: &str = r#"
root=$1 binary=$2 as=$3
shift 3
mount --bind "$root" "$root"
for folder in /usr /lib /lib64 /bin; do
  [ ! -e "$root$folder" ] || [ -L "$root$folder" ] || mount --rbind "$folder" "$root$folder"
done
mount --rbind /proc "$root/proc"
mount --bind "$binary" "$root/hookwatch"
mount -o remount,bind,ro "$root"
cd /
exec chroot $as "$root" /hookwatch "$@"
"#;

/// As root, and as anybody where user namespaces are allowed.
const WAYS: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];

/// Where the pages of a daemon are.
pub struct Ports {
    pub page: u16,
    pub metrics: u16,
}

impl Ports {
    /// Two that were free a moment ago.
    fn free() -> Self {
        let [page, metrics] = [(); 2].map(|()| free_port().unwrap());
        Self { page, metrics }
    }
}

/// A running daemon; dropping it kills it.
pub struct Daemon {
    child: Child,
    pub ports: Ports,
    log: PathBuf,
    _root: TempDir,
}

fn unshare(way: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(way).args(["--", "sh", "-euc"]);
    command
}

fn way() -> Option<&'static [&'static str]> {
    WAYS.into_iter().find(|way| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = unshare(way);
        let tried = command
            .args([
                "mount --bind \"$0\" \"$0\"; command -v chroot; chroot --version",
                &folder.path().display().to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    })
}

/// Whether this machine lets anybody make one.
pub fn can_be_made() -> bool {
    way().is_some()
}

/// Starts the daemon with these arguments and variables in a root with these files, as these user and group.
///
/// All is as given but the two ports: several may be tested at once on one machine.
pub fn start(
    arguments: &[String],
    variables: &[(&str, String)],
    files: &[(String, String)],
    user: i64,
) -> Daemon {
    let root = tempfile::tempdir().unwrap();
    let ports = Ports::free();
    let inside = |path: &str| root.path().join(path.trim_start_matches('/'));
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for folder in ["usr", "proc"] {
        std::fs::create_dir(inside(folder)).unwrap();
    }
    // Where these are only links into /usr, so they are here.
    for folder in ["lib", "lib64", "bin"] {
        match std::fs::read_link(Path::new("/").join(folder)) {
            Ok(target) => std::os::unix::fs::symlink(target, inside(folder)).unwrap(),
            Err(_) => std::fs::create_dir(inside(folder)).unwrap(),
        }
    }
    std::fs::write(inside("hookwatch"), "").unwrap();
    for (path, text) in files {
        let text = text
            .replace(":9880", &format!(":{}", ports.page))
            .replace(":9881", &format!(":{}", ports.metrics));
        let path = inside(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let way = way().unwrap();
    // In a user namespace there is nobody else to be.
    let as_user = match way.len() {
        1 => format!("--userspec={user}:{user}"),
        _ => "--groups=".to_owned(),
    };
    let log = root.path().with_extension("log");
    let mut command = unshare(way);
    command
        .args([MAKE, "sh"])
        .arg(root.path())
        .arg(env!("CARGO_BIN_EXE_hookwatch"))
        .arg(as_user)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap());
    Daemon {
        child: command.spawn().unwrap(),
        ports,
        log,
        _root: root,
    }
}

impl Daemon {
    /// What it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The status and the text that it serves.
    pub async fn get(&mut self, port: u16, path: &str) -> Option<(u16, String)> {
        let ended = self.child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "the daemon ended with {ended:?}: {}",
            self.said()
        );
        let answer = reqwest::get(format!("http://127.0.0.1:{port}{path}"))
            .await
            .ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Its newest assessment, and null before the first.
    pub async fn assessment(&mut self) -> Value {
        let answer = self.get(self.ports.page, "/api/v1/assessment").await;
        answer
            .and_then(|(_, text)| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// Waits for an assessment of which this is true.
    pub async fn assessed(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = std::time::Instant::now();
        loop {
            let assessment = self.assessment().await;
            if is_so(&assessment) {
                return assessment;
            }
            assert!(
                begin.elapsed().as_secs() < 180,
                "waited in vain until {what}: {assessment:#}\n{}",
                self.said()
            );
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// Asks it to end as a kubelet does, and says whether it ended well.
    pub async fn terminate(mut self) -> bool {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        // What a kubelet grants.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), ended).await;
        ended.is_ok_and(|status| status.success())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}
