//! What an error of the system, of rustls or of hyper says about the backend.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, Error as TlsError, PeerIncompatible};

use super::brief;
use super::parity::Objection;
use super::trust::Sighting;
use crate::domain::observe::probe::{ProbeOutcome, ProbePhase, TlsFault};
use crate::io::error::{causes, with_causes};

/// The outcome of a TCP connection that failed.
pub(super) fn of_connect(error: &io::Error) -> ProbeOutcome {
    let why = brief(&error.to_string());
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ProbeOutcome::Refused,
        // The kernel gave up resending its SYN, after about two minutes by default.
        io::ErrorKind::TimedOut => ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        },
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => ProbeOutcome::Lost {
            phase: ProbePhase::Connect,
            why,
        },
        // EMFILE, EPERM and the like come from this process or its sandbox, and say nothing about the backend.
        _ if is_ours(error) => ProbeOutcome::NotProbed {
            why: format!("this machine could not connect: {why}"),
        },
        _ => ProbeOutcome::Unreachable { why },
    }
}

/// The outcome of a TLS handshake that failed.
pub(super) fn of_handshake(error: &io::Error, sighting: &Sighting) -> ProbeOutcome {
    match sighting.seen().objection {
        Some(Objection::Fault(fault, why)) => return ProbeOutcome::TlsRejected { fault, why },
        Some(Objection::Differs(why)) => return ProbeOutcome::VerifierDiffers { why },
        None => {}
    }
    let Some(tls) = tls_error(error) else {
        return ProbeOutcome::Lost {
            phase: ProbePhase::Tls,
            why: brief(&error.to_string()),
        };
    };
    let why = brief(&tls.to_string());
    let rejected = |fault| ProbeOutcome::TlsRejected {
        fault,
        why: why.clone(),
    };
    match tls {
        TlsError::AlertReceived(alert) if wants_certificate(*alert, sighting) => {
            ProbeOutcome::ClientCertificateWanted
        }
        // Go offers more than we do (CBC suites, P-521): a server that shares nothing with us may well
        // share something with the API server.
        TlsError::AlertReceived(
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity,
        ) => ProbeOutcome::VerifierDiffers {
            why: format!("nothing in common with what we offer: {why}"),
        },
        TlsError::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::NoApplicationProtocol,
        ) => rejected(TlsFault::Protocol),
        TlsError::AlertReceived(AlertDescription::UnrecognisedName) => rejected(TlsFault::WrongName),
        TlsError::AlertReceived(_) => rejected(TlsFault::Other),
        TlsError::InvalidMessage(_) | TlsError::InappropriateMessage { .. } => rejected(TlsFault::Protocol),
        TlsError::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => rejected(TlsFault::Protocol),
        _ => ProbeOutcome::VerifierDiffers { why },
    }
}

/// The outcome of a connection that broke after the handshake.
///
/// With TLS 1.3 a client has finished its handshake before the server has looked at its certificate, so
/// the complaint about a missing one arrives here.
pub(super) fn of_exchange(
    error: &(dyn StdError + 'static),
    phase: ProbePhase,
    sighting: &Sighting,
) -> ProbeOutcome {
    let io = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    match io.and_then(tls_error) {
        Some(TlsError::AlertReceived(alert)) if wants_certificate(*alert, sighting) => {
            return ProbeOutcome::ClientCertificateWanted;
        }
        _ => {}
    }
    // The reset that follows the alert may overtake it. When a server process crashes, its kernel closes the connection properly,
    // so only a reset is read this way.
    let reset = io.is_some_and(|io| {
        matches!(
            io.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted
        )
    });
    if reset && phase == ProbePhase::FirstByte && sighting.seen().asked {
        return ProbeOutcome::ClientCertificateWanted;
    }
    ProbeOutcome::Lost {
        phase,
        why: brief(&with_causes(error)),
    }
}

/// Whether an alert means that the server requires a client certificate.
fn wants_certificate(alert: AlertDescription, sighting: &Sighting) -> bool {
    match alert {
        AlertDescription::CertificateRequired => true,
        // Servers sent these before `certificate_required` existed, and some still do.
        AlertDescription::BadCertificate
        | AlertDescription::NoCertificate
        | AlertDescription::HandshakeFailure
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => sighting.seen().asked,
        _ => false,
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref::<TlsError>()
}

/// Errors of connect(2) with causes on this machine, not at the peer.
fn is_ours(error: &io::Error) -> bool {
    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOMEM: i32 = 12;
    const ENOBUFS: i32 = 105;
    matches!(
        error.raw_os_error(),
        Some(EPERM | EACCES | ENFILE | EMFILE | ENOMEM | ENOBUFS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(code: i32) -> ProbeOutcome {
        of_connect(&io::Error::from_raw_os_error(code))
    }

    #[test]
    fn why_a_connection_failed_leaves_the_remedy_its_room_in_an_alert() {
        let outcome = of_connect(&io::Error::other("long ".repeat(1_000)));
        let ProbeOutcome::Unreachable { why } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why, "long ".repeat(60));
    }

    #[test]
    fn each_connect_error_has_its_outcome() {
        assert_eq!(os(111), ProbeOutcome::Refused);
        // EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL, EINVAL, EAFNOSUPPORT.
        for code in [113, 101, 99, 22, 97] {
            assert!(matches!(os(code), ProbeOutcome::Unreachable { .. }), "{code}");
        }
        assert_eq!(
            os(110),
            ProbeOutcome::TimedOut {
                phase: ProbePhase::Connect
            }
        );
        assert!(matches!(
            os(104),
            ProbeOutcome::Lost {
                phase: ProbePhase::Connect,
                ..
            }
        ));
    }

    #[test]
    fn running_out_of_file_descriptors_says_nothing_about_the_backend() {
        assert!(matches!(os(24), ProbeOutcome::NotProbed { .. }));
    }

    fn alert(alert: AlertDescription) -> ProbeOutcome {
        let error = io::Error::new(io::ErrorKind::InvalidData, TlsError::AlertReceived(alert));
        of_handshake(&error, &Sighting::default())
    }

    #[test]
    fn an_unrequested_bad_certificate_alert_is_no_request_for_a_certificate() {
        let outcome = alert(AlertDescription::BadCertificate);
        assert!(matches!(
            outcome,
            ProbeOutcome::TlsRejected {
                fault: TlsFault::Other,
                ..
            }
        ));
        assert_eq!(
            alert(AlertDescription::CertificateRequired),
            ProbeOutcome::ClientCertificateWanted
        );
    }

    #[test]
    fn having_no_cipher_in_common_with_us_is_not_down() {
        let outcome = alert(AlertDescription::HandshakeFailure);
        assert!(matches!(outcome, ProbeOutcome::VerifierDiffers { .. }));
    }

    #[test]
    fn an_old_protocol_version_is_refused_by_the_api_server_too() {
        let outcome = alert(AlertDescription::ProtocolVersion);
        assert!(matches!(
            outcome,
            ProbeOutcome::TlsRejected {
                fault: TlsFault::Protocol,
                ..
            }
        ));
    }
}
