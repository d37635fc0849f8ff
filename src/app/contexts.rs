//! Several clusters in one call, each by a context of the kubeconfig.

/// Contexts in one call, at most.
const MAX: usize = 32;

/// What is wrong with these contexts, as the end of a sentence about the flag.
pub fn refused(contexts: &[String]) -> Option<String> {
    if contexts.len() > MAX {
        return Some(format!("is given more than {MAX} times"));
    }
    let mut all = contexts.iter().enumerate();
    let twice = all.find(|(at, context)| contexts[..*at].contains(context));
    twice.map(|(_, context)| format!("names {context:?} twice"))
}

/// The worst of the exit codes; the worst one is the last of `order`.
pub fn worst(order: &[u8], codes: impl Iterator<Item = u8>) -> u8 {
    let rank = |code: &u8| order.iter().position(|known| known == code);
    codes.max_by_key(rank).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_given_once_and_no_more_of_them_than_can_be_read_at_once() {
        let named = |count: usize| (0..count).map(|at| format!("c{at}")).collect::<Vec<_>>();
        assert_eq!(refused(&named(MAX)), None);
        assert!(refused(&named(MAX + 1)).is_some());
        assert_eq!(
            refused(&["a", "b", "a"].map(str::to_owned)).as_deref(),
            Some("names \"a\" twice")
        );
    }
}
