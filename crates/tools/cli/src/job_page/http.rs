//! A small HTTP server for pages of this command: one request a connection, GET alone, nothing read
//! from disk.
//!
//! Requests are read by `httparse`. Clients may be slow, silent or rude: each has [`REQUEST_WAIT`]
//! for its request and as long for the answer. Of [`CONNECTIONS_MAX`] connections the oldest gives
//! way to a new one. Bounded by these, and by [`REQUEST_BYTES`] each.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that a client has to send its request, and to take the answer.
pub const REQUEST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// Connections at one time.
pub const CONNECTIONS_MAX: usize = 32;
/// Longest head of a request.
const REQUEST_BYTES: usize = 8192;
const HEADERS_MAX: usize = 64;
/// Between tries to take calls in where the system has no room for more.
const PAUSE: Duration = Duration::from_millis(100);

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The path, without what follows a question mark.
    pub path: String,
    /// The host that it thinks it speaks to, without the port; empty: it said none.
    pub host: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status and its words.
    pub status: &'static str,
    /// Type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Returns a successful response with this body.
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: "200 OK",
            content_type,
            body: body.into(),
        }
    }

    /// A refusal in a line.
    pub fn refused(status: &'static str, why: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{why}\n").into_bytes(),
        }
    }
}

/// Connections that are open, the oldest first.
type OpenConnections = Arc<Mutex<VecDeque<(SocketAddr, TcpStream)>>>;

fn lock(open: &OpenConnections) -> std::sync::MutexGuard<'_, VecDeque<(SocketAddr, TcpStream)>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers clients until the process ends.
pub fn serve(
    listener: &TcpListener,
    answer: impl Fn(&HttpRequest) -> HttpResponse + Send + Sync + 'static,
) {
    let (open, answer) = (OpenConnections::default(), Arc::new(answer));
    loop {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let Ok(twin) = stream.try_clone() else {
            continue;
        };
        let oldest = {
            let mut open = lock(&open);
            open.push_back((peer, twin));
            if open.len() > CONNECTIONS_MAX {
                open.pop_front()
            } else {
                None
            }
        };
        if let Some((_, stream)) = oldest {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let (of_thread, answer) = (Arc::clone(&open), Arc::clone(&answer));
        let served = std::thread::Builder::new().spawn(move || {
            serve_client(stream, &*answer);
            lock(&of_thread).retain(|(known, _)| *known != peer);
        });
        if served.is_err() {
            lock(&open).retain(|(known, _)| *known != peer);
        }
    }
}

/// One client. What goes wrong with it is its own affair.
fn serve_client(mut stream: TcpStream, answer: &dyn Fn(&HttpRequest) -> HttpResponse) {
    let response = match request(&mut stream) {
        Ok(Some(request)) => answer(&request),
        Ok(None) => return,
        Err(response) => response,
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n",
        response.status,
        response.content_type,
        response.body.len()
    );
    let until = Instant::now() + REQUEST_WAIT;
    let sent =
        send(&mut stream, head.as_bytes(), until) && send(&mut stream, &response.body, until);
    if sent {
        // What a client still sends would make the system take the answer back.
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = [0; 1024];
        while wait_for(&stream, until) && matches!(stream.read(&mut rest), Ok(1..)) {}
    }
}

/// Lets the next read or write take until then; whether there is any time left.
fn wait_for(stream: &TcpStream, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let set = |left| {
        stream
            .set_read_timeout(Some(left))
            .and_then(|()| stream.set_write_timeout(Some(left)))
    };
    !left.is_zero() && set(left).is_ok()
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> bool {
    while !bytes.is_empty() {
        if !wait_for(stream, until) {
            return false;
        }
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Reads a request. `None`: the client has gone, or takes too long; `Err`: the answer to what is
/// none.
fn request(stream: &mut TcpStream) -> Result<Option<HttpRequest>, HttpResponse> {
    let until = Instant::now() + REQUEST_WAIT;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some(request) = read(&head)? {
            return Ok(Some(request));
        }
        if !wait_for(stream, until) {
            return Ok(None);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(more) => head.extend_from_slice(&buffer[..more]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
        if head.len() > REQUEST_BYTES {
            return Err(HttpResponse::refused(
                "431 Request Header Fields Too Large",
                "that request is too long",
            ));
        }
    }
}

/// The request in these bytes; `None`: its end is not there yet.
fn read(bytes: &[u8]) -> Result<Option<HttpRequest>, HttpResponse> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let bad = || HttpResponse::refused("400 Bad Request", "that is no request");
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Err(bad()),
    }
    if parsed.method != Some("GET") {
        return Err(HttpResponse::refused(
            "405 Method Not Allowed",
            "only GET is understood",
        ));
    }
    let mut hosts = parsed
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map_or(Ok(""), |header| {
        std::str::from_utf8(header.value).map_err(|_| bad())
    })?;
    if hosts.next().is_some() {
        return Err(bad());
    }
    let path = parsed
        .path
        .and_then(|path| path.split('?').next())
        .unwrap_or_default();
    Ok(Some(HttpRequest {
        path: path.to_owned(),
        host: without_port(host.trim()).to_ascii_lowercase(),
    }))
}

/// The name in `name:80`, `name` or `[::1]:80`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns whether a name is this host's own for itself: a page of another host that was led here
/// by a false address has another.
pub fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(answer: impl Fn(&HttpRequest) -> HttpResponse + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, answer));
        address
    }

    fn said(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_are_answered_and_what_is_none_is_refused() {
        let address = served(|request| {
            HttpResponse::ok(
                "text/plain",
                format!("{} of {}", request.path, request.host),
            )
        });
        let cases: [(&[u8], &str, &str); 6] = [
            (
                b"GET /a?b=c HTTP/1.1\r\nHost: LOCALHOST:8080\r\n\r\n",
                "200",
                "/a of localhost",
            ),
            (
                b"GET / HTTP/1.1\r\nHost: [::1]:9\r\n\r\n",
                "200",
                "/ of [::1]",
            ),
            (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", "405", "only GET"),
            (
                b"\x16\x03\x01\x02\x00\x01 no HTTP\r\n\r\n",
                "400",
                "no request",
            ),
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                "400",
                "no request",
            ),
            (&[b'a'; 9000], "431", "too long"),
        ];
        for (request, status, body) in cases {
            let text = said(address, request);
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status} ")) && text.contains(body),
                "{text}"
            );
        }
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_from_being_answered() {
        let address = served(|_| HttpResponse::ok("text/plain", "here"));
        let mut silent: Vec<_> = (0..3 * CONNECTIONS_MAX)
            .map(|at| {
                let mut stream = TcpStream::connect(address).unwrap();
                // Some have begun.
                let _ = stream.write_all(&b"GET / HTTP/1.1\r\n"[..at % 16]);
                stream
            })
            .collect();
        for _ in 0..2 * CONNECTIONS_MAX {
            assert!(said(address, b"GET / HTTP/1.1\r\n\r\n").ends_with("here"));
        }
        // Those that waited longest have given way.
        let first = silent.first_mut().unwrap();
        first.set_read_timeout(Some(REQUEST_WAIT)).unwrap();
        assert!(!matches!(first.read(&mut [0]), Ok(1..)));
    }

    #[test]
    fn an_answer_that_is_not_taken_ends_with_its_time() {
        // More than the system keeps for a connection.
        let address = served(|_| HttpResponse::ok("text/plain", vec![b'x'; 64 << 20]));
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        std::thread::sleep(REQUEST_WAIT * 2);
        let mut rest = Vec::new();
        let read = slow.read_to_end(&mut rest);
        assert!(read.is_err() || rest.len() < 64 << 20, "{}", rest.len());
    }

    #[test]
    fn only_this_hosts_own_names_for_itself_are_loopback() {
        for (host, own) in [
            ("localhost:80", true),
            ("127.0.0.1", true),
            ("[::1]:1", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("evil.example", false),
            ("", false),
            ("[::1].evil.example", false),
        ] {
            assert_eq!(is_loopback(without_port(host)), own, "{host}");
        }
    }
}
