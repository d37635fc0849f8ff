//! The results of all changes, those with the largest effect first.

use std::fmt;

use super::Change;
use crate::trace::Figures;

/// The differences of the figures with a change from those without.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Moved {
    /// Share of faults with the right culprit, in percentage points.
    pub right: f64,
    /// Share of incidents with a wrong culprit, in percentage points.
    pub wrong: f64,
    /// Number of bypasses of innocent webhooks.
    pub innocent: i64,
}

fn share(of: usize, all: usize) -> f64 {
    100.0 * of as f64 / all.max(1) as f64
}

impl Moved {
    pub fn between(before: &Figures, after: &Figures) -> Self {
        let right = |figures: &Figures| share(figures.right, figures.culprits);
        let wrong = |figures: &Figures| share(figures.wrong, figures.incidents);
        Self {
            right: right(after) - right(before),
            wrong: wrong(after) - wrong(before),
            innocent: after.innocent as i64 - before.innocent as i64,
        }
    }

    fn points(self) -> f64 {
        self.right.abs() + self.wrong.abs()
    }
}

/// One change and its result.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    pub change: Change,
    /// The change in words.
    pub done: String,
    /// Incidents, recordings and folders of scrapes with a different trace.
    pub differ: usize,
    /// Bypasses that are new or earlier.
    pub sooner: usize,
    pub moved: Option<Moved>,
    /// Why the change could not be tried; `None` when it could.
    pub broke: Option<String>,
}

impl Row {
    fn is_without_effect(&self) -> bool {
        self.broke.is_none() && self.differ == 0
    }

    fn effect(&self) -> (f64, usize, usize) {
        let points = self.moved.map_or(f64::MAX, Moved::points);
        (points, self.sooner, self.differ)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<38} {:<34} ", self.change.name, self.done)?;
        if let Some(why) = &self.broke {
            return write!(f, "broke: {why}");
        }
        let Moved {
            right,
            wrong,
            innocent,
        } = self.moved.unwrap_or_default();
        let (differ, sooner) = (self.differ, self.sooner);
        write!(
            f,
            "{differ:>6} {right:>+7.2} {wrong:>+7.2} {innocent:>+8} {sooner:>8}"
        )
    }
}

/// The figures without a change, and the rows by effect.
#[derive(Debug, serde::Serialize)]
pub struct Table {
    before: Figures,
    rows: Vec<Row>,
}

impl Table {
    pub fn new(before: Figures, mut rows: Vec<Row>) -> Self {
        rows.sort_by(|a, b| {
            let (a, b) = (a.effect(), b.effect());
            b.0.total_cmp(&a.0).then((b.1, b.2).cmp(&(a.1, a.2)))
        });
        Self { before, rows }
    }

    /// The changes that made no difference, each with its description.
    pub fn without_effect(&self) -> impl Iterator<Item = (&Change, &str)> {
        let rows = self.rows.iter().filter(|row| row.is_without_effect());
        rows.map(|row| (&row.change, row.done.as_str()))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures {
            incidents,
            culprits,
            right,
            wrong,
            bypasses,
            innocent,
        } = self.before;
        writeln!(
            f,
            "{incidents} incidents as it is: right culprit {right} of {culprits}, wrong culprit in {wrong}; \
             {bypasses} bypasses, {innocent} of innocent hooks"
        )?;
        let (name, done) = ("rule or threshold", "what was done");
        writeln!(
            f,
            "\n{name:<38} {done:<34} differ   right   wrong innocent   sooner"
        )?;
        for row in self.rows.iter().filter(|row| !row.is_without_effect()) {
            writeln!(f, "{row}")?;
        }
        writeln!(f, "\nchanged nothing:")?;
        for (change, done) in self.without_effect() {
            writeln!(f, "{:<38} {done}", change.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, differ: usize, right: f64) -> Row {
        Row {
            change: Change {
                name: name.to_owned(),
                factor: 2.0,
            },
            done: "x 2".to_owned(),
            differ,
            sooner: 0,
            moved: Some(Moved {
                right,
                ..Moved::default()
            }),
            broke: None,
        }
    }

    #[test]
    fn the_largest_effect_stands_first_and_what_changed_nothing_last() {
        let rows = vec![row("idle", 0, 0.0), row("words", 9, 0.0), row("heavy", 2, -3.0)];
        let text = Table::new(Figures::default(), rows).to_string();
        let place = |name: &str| text.find(name).unwrap();
        assert!(place("heavy") < place("words"), "{text}");
        assert!(place("words") < place("changed nothing"), "{text}");
        assert!(place("changed nothing") < place("idle"), "{text}");
    }

    #[test]
    fn figures_move_by_points_of_what_there_is() {
        let before = Figures {
            incidents: 100,
            culprits: 50,
            right: 50,
            ..Figures::default()
        };
        let after = Figures {
            right: 49,
            wrong: 1,
            innocent: 2,
            ..before.clone()
        };
        let moved = Moved::between(&before, &after);
        assert!((moved.right + 2.0).abs() < 1e-9 && (moved.wrong - 1.0).abs() < 1e-9);
        assert_eq!(moved.innocent, 2);
    }
}
