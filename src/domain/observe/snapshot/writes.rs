//! Sums over the writes of a snapshot.

use super::{Counted, Snapshot, WriteKey, WriteOperation, WriteSeries};

impl Snapshot {
    /// All writes that are no dry runs, together.
    pub fn all_writes(&self) -> WriteSeries {
        self.writes_where(|_| true)
    }

    /// Those of one operation.
    pub fn writes_of(&self, operation: WriteOperation) -> WriteSeries {
        self.writes_where(|key| key.operation == operation)
    }

    fn writes_where(&self, of: impl Fn(&WriteKey) -> bool) -> WriteSeries {
        let mut all = WriteSeries::default();
        for (_, series) in self.writes.iter().filter(|(key, _)| of(key)) {
            all.add(series);
        }
        all
    }
}
