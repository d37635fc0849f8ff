//! What hookwatch tells: the assessment, alerts, announcements, and what was admitted without review.

pub mod alerts;
pub mod announcement;
pub mod assessment;
pub mod unchecked;
