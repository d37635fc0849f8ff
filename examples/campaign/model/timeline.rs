//! A value that changes at instants that are known in advance.

use super::At;

/// A piecewise constant function of time.
#[derive(Debug, Clone)]
pub struct Timeline<T> {
    first: T,
    /// Ordered by instant.
    changes: Vec<(At, T)>,
}

impl<T: Clone> Timeline<T> {
    /// A timeline that always has this value, until [`Self::set`] or [`Self::during`] changes it.
    pub fn always(value: T) -> Self {
        Self {
            first: value,
            changes: Vec::new(),
        }
    }

    /// Sets the value from `at` until the next existing change.
    pub fn set(&mut self, at: At, value: T) {
        let index = self.changes.partition_point(|(known, _)| *known <= at);
        self.changes.insert(index, (at, value));
    }

    /// Sets the value from `from` until `until`; at `until` it takes the value that it had for that instant before.
    pub fn during(&mut self, from: At, until: At, value: T) {
        let after = self.at(until).clone();
        self.changes.retain(|(at, _)| *at < from || *at > until);
        self.set(from, value);
        self.set(until, after);
    }

    /// The value at an instant.
    pub fn at(&self, at: At) -> &T {
        match self.changes.partition_point(|(known, _)| *known <= at) {
            0 => &self.first,
            n => &self.changes[n - 1].1,
        }
    }

    /// The first change after an instant.
    pub fn next_change(&self, after: At) -> Option<At> {
        let index = self.changes.partition_point(|(known, _)| *known <= after);
        self.changes.get(index).map(|(at, _)| *at)
    }

    /// Every value within a span: the one at `from`, and each that a change up to and including `until` sets.
    pub fn within(&self, from: At, until: At) -> impl Iterator<Item = &T> {
        let rest = self
            .changes
            .iter()
            .skip_while(move |(at, _)| *at <= from)
            .take_while(move |(at, _)| *at <= until);
        std::iter::once(self.at(from)).chain(rest.map(|(_, value)| value))
    }

    /// The instants of all changes.
    pub fn changes(&self) -> impl Iterator<Item = At> {
        self.changes.iter().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_over_at_its_end_and_what_held_before_holds_again() {
        let mut line = Timeline::always('a');
        line.set(50, 'b');
        line.during(20, 70, 'x');
        let seen: Vec<char> = [0, 19, 20, 69, 70, 100].map(|at| *line.at(at)).to_vec();
        assert_eq!(seen, ['a', 'a', 'x', 'x', 'b', 'b']);
        assert_eq!(line.next_change(20), Some(70));
        assert_eq!(line.within(10, 30).collect::<String>(), "ax");
    }
}
