//! Shared by `diagnose` and `audit` when `--context` is given several times.

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

#[cfg(test)]
mod tests {
    use super::*;

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
