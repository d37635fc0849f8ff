//! Where the binaries of a real control plane are, as setup-envtest lays them out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The binaries of one version, all from one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager and kube-scheduler, if both are there: setup-envtest does not install them.
    pub controllers: Option<Controllers>,
}

/// The processes that lead by a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers {
    /// kube-controller-manager.
    pub manager: PathBuf,
    /// kube-scheduler.
    pub scheduler: PathBuf,
}

/// Why no binaries were found.
#[derive(Debug, Error)]
pub enum MissingBinaries {
    /// `KUBEBUILDER_ASSETS` names a directory without one of the binaries. No other place is searched then.
    #[error("KUBEBUILDER_ASSETS is {}, and there is no {name} in it", directory.display())]
    InAssets {
        /// What the variable says.
        directory: PathBuf,
        /// The binary that is not there.
        name: &'static str,
    },
    /// `KUBEBUILDER_ASSETS` is not set, and setup-envtest's store has no complete version for this machine.
    #[error(
        "no kube-apiserver and etcd for {platform} in {}; get them with `go run \
         sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use`, or let KUBEBUILDER_ASSETS point to a \
         directory that holds both", store.display()
    )]
    InStore {
        /// The directory that was searched.
        store: PathBuf,
        /// The operating system and the architecture, as setup-envtest spells them.
        platform: String,
    },
}

/// Finds the binaries: in `KUBEBUILDER_ASSETS`, else the newest version in setup-envtest's store.
///
/// # Errors
/// When they are in neither place; the message says how to get them.
pub fn find() -> Result<Binaries, MissingBinaries> {
    find_with(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn find_with(variable: impl Fn(&str) -> Option<OsString>) -> Result<Binaries, MissingBinaries> {
    if let Some(directory) = variable("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        return in_directory(&directory).map_err(|name| MissingBinaries::InAssets { directory, name });
    }
    let store = store(variable);
    let platform = platform();
    newest(&store, &platform).ok_or(MissingBinaries::InStore { store, platform })
}

/// setup-envtest's default store: under the system's data directory of the user.
fn store(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let home = || PathBuf::from(variable("HOME").unwrap_or_default());
    let base = if cfg!(target_os = "macos") {
        home().join("Library/Application Support/io.kubebuilder.envtest")
    } else {
        variable("XDG_DATA_HOME")
            .map_or_else(|| home().join(".local/share"), PathBuf::from)
            .join("kubebuilder-envtest")
    };
    base.join("k8s")
}

/// The operating system and the architecture of this machine, as Go names them.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("{system}-{architecture}")
}

/// The binaries of a directory, or the name of a required one that is not there.
fn in_directory(directory: &Path) -> Result<Binaries, &'static str> {
    let binary = |name: &'static str| {
        let path = directory.join(name);
        if path.is_file() { Ok(path) } else { Err(name) }
    };
    Ok(Binaries {
        etcd: binary("etcd")?,
        kube_apiserver: binary("kube-apiserver")?,
        controllers: binary("kube-controller-manager")
            .and_then(|manager| {
                Ok(Controllers {
                    manager,
                    scheduler: binary("kube-scheduler")?,
                })
            })
            .ok(),
    })
}

/// The newest complete version for a platform.
fn newest(store: &Path, platform: &str) -> Option<Binaries> {
    let mut versions: Vec<_> = std::fs::read_dir(store)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_suffix(platform)?.strip_suffix('-')?;
            Some((numbers(version)?, entry.path()))
        })
        .collect();
    versions.sort();
    versions
        .iter()
        .rev()
        .find_map(|(_, directory)| in_directory(directory).ok())
}

/// A release's three numbers; pre-releases are passed over, as setup-envtest does unless asked for them.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::directory::PrivateDirectory;
    use super::*;

    fn install(store: &Path, version: &str, names: &[&str]) -> PathBuf {
        let directory = store.join(format!("{version}-{}", platform()));
        std::fs::create_dir_all(&directory).unwrap();
        for name in names {
            std::fs::write(directory.join(name), "").unwrap();
        }
        directory
    }

    fn find_in(data: &Path) -> Result<Binaries, MissingBinaries> {
        find_with(|name| (name == "XDG_DATA_HOME").then(|| data.as_os_str().to_owned()))
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn the_newest_complete_version_by_number_is_taken() {
        let data = PrivateDirectory::create().unwrap();
        let store = data.path().join("kubebuilder-envtest/k8s");
        for version in ["1.9.9", "1.36.2"] {
            install(&store, version, &["etcd", "kube-apiserver"]);
        }
        install(&store, "1.40.0", &["etcd"]);
        install(&store, "1.41.0-rc.1", &["etcd", "kube-apiserver"]);
        std::fs::create_dir_all(store.join("9.9.9-plan9-mips")).unwrap();
        let found = find_in(data.path()).unwrap();
        assert!(
            found
                .etcd
                .starts_with(store.join(format!("1.36.2-{}", platform())))
        );
    }

    #[test]
    fn the_controllers_are_taken_only_where_both_are_there() {
        let data = PrivateDirectory::create().unwrap();
        for (name, complete) in [("kube-controller-manager", false), ("kube-scheduler", true)] {
            install(data.path(), "1.36.2", &["etcd", "kube-apiserver", name]);
            let found = newest(data.path(), &platform()).unwrap();
            assert_eq!(found.controllers.is_some(), complete);
        }
    }

    #[test]
    fn without_any_the_message_says_how_to_get_them() {
        let data = PrivateDirectory::create().unwrap();
        let message = find_in(data.path()).unwrap_err().to_string();
        assert!(message.contains("setup-envtest@latest use"), "{message}");
        assert!(message.contains("KUBEBUILDER_ASSETS"), "{message}");
    }

    #[test]
    fn a_variable_that_points_nowhere_is_not_second_guessed() {
        let data = PrivateDirectory::create().unwrap();
        let directory = data.path().as_os_str().to_owned();
        std::fs::write(data.path().join("etcd"), "").unwrap();
        let missing = find_with(|name| (name == "KUBEBUILDER_ASSETS").then(|| directory.clone()));
        let message = missing.unwrap_err().to_string();
        assert!(message.contains("no kube-apiserver in it"), "{message}");
    }
}
