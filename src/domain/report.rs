//! What hookwatch reports: the assessment, alerts, announcements, and objects admitted without review.

pub mod alerts;
pub mod announcement;
pub mod assessment;
pub mod unchecked;
