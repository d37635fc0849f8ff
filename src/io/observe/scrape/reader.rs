//! The right reader for a body, and whether the body is what it should be.

use super::sniff::{PATIENCE, Sniffer};
use crate::domain::observe::exposition::Exposition;
use crate::domain::observe::exposition::protobuf::{BodyStanding, ProtobufExposition};
use crate::domain::observe::snapshot::{Complaints, Snapshot};

/// What a body is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Protobuf,
}

impl Format {
    /// Reads a `Content-Type`; `None` for what is no exposition.
    pub(super) fn of(content_type: &str) -> Option<Self> {
        let mut parts = content_type.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        match kind.as_str() {
            "text/plain" => Some(Self::Text),
            "application/vnd.google.protobuf" => {
                // With other parameters this type means other messages, or the same ones without their lengths.
                let (mut is_family, mut is_delimited) = (false, false);
                for part in parts {
                    is_family |= part == "proto=io.prometheus.client.MetricFamily";
                    is_delimited |= part == "encoding=delimited";
                }
                (is_family && is_delimited).then_some(Self::Protobuf)
            }
            _ => None,
        }
    }

    /// Guesses by the first piece of a body. Protobuf begins with the length of a message and the tag of its name, which is the
    /// byte of a line feed; no text has a line feed as its second byte.
    fn guess(chunk: &[u8]) -> Self {
        let after_length = chunk.iter().skip_while(|byte| **byte >= 0x80).nth(1);
        if after_length == Some(&b'\n') {
            Self::Protobuf
        } else {
            Self::Text
        }
    }
}

/// Why a whole body is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnusableBody {
    /// It is not the metrics of an API server.
    NotMetrics(String),
    /// It ends in the middle of a line or a message.
    CutOff(&'static str),
}

/// Reads a body in either format.
pub(super) enum BodyReader {
    /// Nothing was read yet, and no header gave the format.
    Undecided,
    Text(Exposition, Box<Sniffer>),
    Protobuf(ProtobufExposition, u64),
}

impl BodyReader {
    /// A reader of this format; with `None` the body's first piece decides the format.
    pub(super) fn new(format: Option<Format>) -> Self {
        match format {
            None => Self::Undecided,
            Some(Format::Text) => Self::Text(Exposition::new(), Box::new(Sniffer::new())),
            Some(Format::Protobuf) => Self::Protobuf(ProtobufExposition::new(), 0),
        }
    }

    /// Takes the next piece; an error says why the rest is not worth waiting for.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<(), String> {
        match self {
            _ if chunk.is_empty() => Ok(()),
            Self::Undecided => {
                *self = Self::new(Some(Format::guess(chunk)));
                self.feed(chunk)
            }
            Self::Text(exposition, sniffer) => {
                sniffer.feed(chunk)?;
                exposition.feed(chunk);
                Ok(())
            }
            Self::Protobuf(exposition, seen) => {
                exposition.feed(chunk);
                *seen += chunk.len() as u64;
                match exposition.standing() {
                    BodyStanding::Lost => Err("no sequence of metric families".to_owned()),
                    BodyStanding::NoFamily if *seen > PATIENCE => {
                        Err(format!("no metric family within {seen} bytes"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// What the whole body said.
    pub(super) fn finish(self) -> Result<(Snapshot, Complaints), UnusableBody> {
        let not_metrics = |why: &str| Err(UnusableBody::NotMetrics(why.to_owned()));
        match self {
            Self::Undecided | Self::Protobuf(_, 0) => not_metrics("an empty body instead of metrics"),
            Self::Text(exposition, sniffer) => match sniffer.finish() {
                Ok(true) => Ok(exposition.finish()),
                Ok(false) => Err(UnusableBody::CutOff("line")),
                Err(why) => Err(UnusableBody::NotMetrics(why)),
            },
            Self::Protobuf(exposition, _) => match exposition.standing() {
                BodyStanding::Whole => Ok(exposition.finish()),
                BodyStanding::CutOff => Err(UnusableBody::CutOff("message")),
                BodyStanding::NotApiServer => {
                    not_metrics("metrics, but none of an API server (no apiserver_* family)")
                }
                BodyStanding::NoFamily => not_metrics("messages without any metric family"),
                BodyStanding::Lost => not_metrics("no sequence of metric families"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::metric_family::encode;

    #[test]
    fn only_delimited_metric_families_are_taken_for_the_binary_format() {
        const FULL: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                            encoding=delimited; escaping=underscores";
        assert_eq!(Format::of(FULL), Some(Format::Protobuf));
        assert_eq!(
            Format::of("text/plain; version=0.0.4; charset=utf-8"),
            Some(Format::Text)
        );
        for other in [
            // It has other names for counters, and is not asked for.
            "application/openmetrics-text; version=1.0.0",
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=text",
            "application/vnd.google.protobuf; proto=other.Message; encoding=delimited",
            "application/vnd.kubernetes.protobuf",
            "text/plainer",
            "text/html",
            "",
        ] {
            assert_eq!(Format::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_body_without_a_type_is_taken_for_what_it_looks_like() {
        let long = format!("apiserver_x{{a=\"{}\"}} 1\n", "y".repeat(40_000));
        for text in ["apiserver_x 1\n", &long] {
            assert_eq!(Format::guess(&encode(text)), Format::Protobuf);
            assert_eq!(Format::guess(text.as_bytes()), Format::Text);
        }
        assert_eq!(Format::guess(b"\n# TYPE apiserver_x gauge\n"), Format::Text);
        assert_eq!(Format::guess(b"#"), Format::Text);
        assert_eq!(
            BodyReader::new(None).finish(),
            Err(UnusableBody::NotMetrics(
                "an empty body instead of metrics".to_owned()
            ))
        );
    }

    #[test]
    fn an_endless_binary_body_without_a_family_is_left_early() {
        let mut reader = BodyReader::new(Some(Format::Protobuf));
        let zeros = [0; 64 * 1024];
        let why = (0..1_000).find_map(|_| reader.feed(&zeros).err());
        assert!(why.is_some_and(|why| why.contains("no metric family within")));
    }
}
