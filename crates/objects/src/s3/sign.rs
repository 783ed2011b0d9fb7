//! Signatures of requests: AWS signature version 4, without the payload (`UNSIGNED-PAYLOAD`).

use std::env;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use iosonde_harness::{Code, RunError};
use sha2::{Digest, Sha256};
use time::UtcDateTime;

/// Environment variables with the credentials, which no record contains.
const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
const PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// Signer of the requests of a run.
#[derive(Clone)]
pub(crate) struct Signer {
    access_key: String,
    secret_key: String,
    token: Option<String>,
    region: String,
}

/// A moment as signatures have it.
pub(crate) struct Moment {
    /// `20260131`.
    pub day: String,
    /// `20260131T235959Z`.
    pub second: String,
}

impl Signer {
    /// With the credentials of the environment.
    pub(crate) fn from_environment(region: &str) -> Result<Signer, RunError> {
        let required = |name: &str| {
            env::var(name).map_err(|_| {
                RunError::new(
                    Code::Authentication,
                    format!("the environment variable `{name}` is not set"),
                    format!("set `{ACCESS_KEY}` and `{SECRET_KEY}` to the credentials of the S3 server"),
                )
            })
        };
        Ok(Signer {
            access_key: required(ACCESS_KEY)?,
            secret_key: required(SECRET_KEY)?,
            token: env::var(SESSION_TOKEN).ok(),
            region: region.into(),
        })
    }

    /// Appends the headers that sign a request. The path consists of characters that need no encoding.
    pub(crate) fn append(&self, head: &mut String, method: &str, path: &str, host: &str, moment: &Moment) {
        let token = self.token.as_deref();
        let mut headers = format!(
            "host:{host}\nx-amz-content-sha256:{PAYLOAD}\nx-amz-date:{}\n",
            moment.second
        );
        let mut names = "host;x-amz-content-sha256;x-amz-date".to_owned();
        if let Some(token) = token {
            let _ = writeln!(headers, "x-amz-security-token:{token}");
            names.push_str(";x-amz-security-token");
        }
        let request = format!("{method}\n{path}\n\n{headers}\n{names}\n{PAYLOAD}");
        let scope = format!("{}/{}/s3/aws4_request", moment.day, self.region);
        let signed = format!(
            "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
            moment.second,
            hex(&Sha256::digest(request))
        );
        let signature = hex(&keyed(&self.key(&moment.day), &signed));
        let _ = write!(
            head,
            "x-amz-content-sha256: {PAYLOAD}\r\nx-amz-date: {}\r\n",
            moment.second
        );
        if let Some(token) = token {
            let _ = write!(head, "x-amz-security-token: {token}\r\n");
        }
        let _ = write!(
            head,
            "authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n",
            self.access_key
        );
    }

    fn key(&self, day: &str) -> Vec<u8> {
        [day, &self.region, "s3", "aws4_request"]
            .iter()
            .fold(format!("AWS4{}", self.secret_key).into_bytes(), |key, part| {
                keyed(&key, part)
            })
    }
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

impl Moment {
    /// Now, in UTC.
    pub(crate) fn now() -> Moment {
        UtcDateTime::now().into()
    }
}

impl From<UtcDateTime> for Moment {
    fn from(time: UtcDateTime) -> Moment {
        let (hour, minute, second) = time.as_hms();
        let day = format!("{:04}{:02}{:02}", time.year(), u8::from(time.month()), time.day());
        Moment {
            second: format!("{day}T{hour:02}{minute:02}{second:02}Z"),
            day,
        }
    }
}

#[cfg(test)]
impl Signer {
    /// The credentials of the examples in AWS's documentation.
    pub(crate) fn fixed() -> Signer {
        Signer {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
            region: "us-east-1".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: i64) -> Moment {
        UtcDateTime::from_unix_timestamp(seconds).unwrap().into()
    }

    /// Credentials and date are those of the examples in AWS's documentation of signature version 4; the signature was
    /// computed with botocore 1.44.
    #[test]
    fn a_signature_is_that_of_another_implementation_and_moments_are_dates_in_utc() {
        let mut signer = Signer::fixed();
        let mut head = String::new();
        let (path, host) = ("/bucket/iosonde-000000000001", "127.0.0.1:9000");
        signer.append(&mut head, "GET", path, host, &moment(1_369_353_600));
        let credential = "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";
        assert!(head.contains(credential), "{head}");
        let expected = "Signature=de5499f090579f9ad69df9ad71e1b0ddc05de1044b540acf467e6b0a2850fa4a";
        assert!(head.contains(expected), "{head}");
        signer.token = Some("token".into());
        head.clear();
        signer.append(&mut head, "GET", "/b/k", "h", &moment(0));
        assert!(head.contains("x-amz-security-token: token\r\n"));
        assert!(head.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (4_107_542_399, "21000228T235959Z"),
        ] {
            assert_eq!(moment(seconds).second, expected);
        }
    }
}
