//! The contexts of a command: how many it takes, one exit code over all, and command lines for the cluster that was looked at.

use std::borrow::Cow;
use std::path::Path;

/// Most contexts in one run: their clusters are all read at the same time.
const MAX_CONTEXTS: usize = 32;

/// Why these contexts are refused, phrased to follow the flag: (`--context`) `names "dev" twice`.
pub fn refusal(contexts: &[String]) -> Option<String> {
    if contexts.len() > MAX_CONTEXTS {
        return Some(format!("is given more than {MAX_CONTEXTS} times"));
    }
    let mut all = contexts.iter().enumerate();
    let repeated = all.find(|(at, context)| contexts[..*at].contains(context));
    repeated.map(|(_, context)| format!("names {context:?} twice"))
}

/// The exit code that comes last in `worst_last`. A code that is not in it ranks lowest; without any codes it is 0.
pub fn worst(worst_last: &[u8], codes: impl Iterator<Item = u8>) -> u8 {
    let rank = |code: &u8| worst_last.iter().position(|known| known == code);
    codes.max_by_key(rank).unwrap_or(0)
}

/// The arguments `--kubeconfig` and `--context`, for hookwatch or kubectl, each with a space before it.
pub fn source(kubeconfig: Option<&Path>, context: Option<&str>) -> String {
    let kubeconfig = kubeconfig.map(Path::to_string_lossy);
    let kubeconfig = kubeconfig.map(|path| format!(" --kubeconfig {}", shell_word(&path)));
    let context = context.map(|context| format!(" --context {}", shell_word(context)));
    [kubeconfig, context].into_iter().flatten().collect()
}

/// Quotes a text, where necessary, as one word for a POSIX shell.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Adapts the commands in a verdict for pasting: with this program's name, and for the cluster that was diagnosed.
#[derive(Debug, Clone)]
pub struct CommandAim {
    /// The command that a user types to run this program: `hookwatch` or `kubectl hookwatch`.
    pub program: &'static str,
    /// The arguments that select the cluster, from [`source`].
    pub source: String,
}

impl CommandAim {
    /// Adapts one command, or two joined by `&&`.
    pub fn of(&self, command: &str) -> String {
        let Self { program, source } = self;
        command
            .replace("kubectl annotate ", &format!("kubectl{source} annotate "))
            .replace("hookwatch break ", &format!("{program} break{source} "))
            .replace("hookwatch restore ", &format!("{program} restore{source} "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_for_the_cluster_that_was_looked_at_and_for_the_program_that_is_installed() {
        let told = "kubectl annotate mutatingwebhookconfiguration c a- && hookwatch break c/w --namespace hw --reason TEXT";
        let aim = CommandAim {
            program: "kubectl hookwatch",
            source: source(Some(Path::new("/my config")), Some("prod")),
        };
        let expected = "kubectl --kubeconfig '/my config' --context prod annotate mutatingwebhookconfiguration c a- && \
             kubectl hookwatch break --kubeconfig '/my config' --context prod c/w --namespace hw --reason TEXT";
        assert_eq!(aim.of(told), expected);
        let here = CommandAim {
            program: "hookwatch",
            source: source(None, None),
        };
        assert_eq!(here.of(told), told);
    }

    #[test]
    fn a_name_stays_one_word_of_a_shell() {
        assert_eq!(
            shell_word("arn:aws:eks:eu-west-1:1:cluster/x"),
            "arn:aws:eks:eu-west-1:1:cluster/x"
        );
        assert_eq!(shell_word("it's; here"), r"'it'\''s; here'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn repeated_and_too_many_contexts_are_refused() {
        let named = |count: usize| (0..count).map(|at| format!("c{at}")).collect::<Vec<_>>();
        assert_eq!(refusal(&named(MAX_CONTEXTS)), None);
        assert!(refusal(&named(MAX_CONTEXTS + 1)).is_some());
        assert_eq!(
            refusal(&["a", "b", "a"].map(str::to_owned)).as_deref(),
            Some("names \"a\" twice")
        );
    }
}
