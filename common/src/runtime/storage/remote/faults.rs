//! What a store that fails or lies can do, tried with a small server that does it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3CopyIfNotExists};
use object_store::{BackoffConfig, RetryConfig};

use super::*;

/// A request as the server sees it.
struct Request {
    method: String,
    /// Key in the bucket, without the query.
    key: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// What the server does with a request.
enum Answer {
    /// Status, headers, body.
    Say(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// A body that ends before its announced length, and a closed connection.
    Break(u16, Vec<(&'static str, String)>, Vec<u8>, usize),
    /// A closed connection without a word.
    HangUp,
}

type Objects = BTreeMap<String, Vec<u8>>;
type Behaviour = dyn Fn(&Request, &mut Objects, usize) -> Option<Answer> + Send + Sync;

/// A server of one bucket. `behaviour` sees each request, with its number from 0, before the honest answer is given.
struct Server {
    root: RemoteRoot,
    objects: Arc<Mutex<Objects>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(behaviour: impl Fn(&Request, &mut Objects, usize) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (objects, requests) = (Arc::new(Mutex::new(Objects::new())), Arc::new(Mutex::new(Vec::new())));
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let (held, seen) = (objects.clone(), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (held, seen, behaviour) = (held.clone(), seen.clone(), behaviour.clone());
                std::thread::spawn(move || serve(stream.expect("a connection"), &held, &seen, &*behaviour));
            }
        });
        connect::install_tls();
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(1),
                max_backoff: Duration::from_millis(5),
                base: 2.0,
            },
            max_retries: 3,
            retry_timeout: Duration::from_secs(10),
        };
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_endpoint(format!("http://{address}"))
            .with_allow_http(true)
            .with_access_key_id("AKIATEST")
            .with_secret_access_key("hunter2hunter2")
            .with_retry(retry)
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
            .build()
            .expect("a client");
        let root = RemoteRoot { store: Arc::new(store), prefix: "p".to_owned(), location: "s3://bucket/p".to_owned() };
        Self { root, objects, requests }
    }

    fn has(&self, path: &str, content: &[u8]) {
        self.objects.lock().expect("whole").insert(format!("p/{path}"), content.to_vec());
    }

    fn held(&self, path: &str) -> Option<Vec<u8>> {
        self.objects.lock().expect("whole").get(&format!("p/{path}")).cloned()
    }

    fn requests(&self) -> usize {
        self.requests.lock().expect("whole").len()
    }

    /// Reads bytes 2 to 6 of `a`, which was planned as ten digits.
    fn read_a(&self) -> Result<Bytes, Failure> {
        let identity = Identity::Etag { etag: tag(b"0123456789"), version: None };
        self.root.source("a", 10, &identity).expect("a name").read(2..6)
    }
}

fn tag(content: &[u8]) -> String {
    let sum = content.iter().fold(17u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{sum:016x}-{}", content.len())
}

fn serve(stream: TcpStream, objects: &Mutex<Objects>, seen: &Mutex<Vec<String>>, behaviour: &Behaviour) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let key = path.strip_prefix("/bucket/").unwrap_or_default().to_owned();
    let request = Request { method, key, query: query.to_owned(), headers, body };
    let mut objects = objects.lock().expect("whole");
    let number = {
        let mut seen = seen.lock().expect("whole");
        seen.push(format!("{} {target}", request.method));
        seen.len() - 1
    };
    let answer = behaviour(&request, &mut objects, number).unwrap_or_else(|| honest(&request, &mut objects));
    drop(objects);
    let mut stream = reader.into_inner();
    let (status, headers, body, length) = match answer {
        Answer::HangUp => return,
        Answer::Say(status, headers, body) => {
            let length = body.len();
            (status, headers, body, length)
        }
        Answer::Break(status, headers, body, length) => (status, headers, body, length),
    };
    let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        head += &format!("Content-Length: {length}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}

fn error(status: u16, code: &str) -> Answer {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>As it is.</Message></Error>");
    Answer::Say(status, vec![], body.into_bytes())
}

fn object_headers(content: &[u8]) -> Vec<(&'static str, String)> {
    vec![("ETag", format!("\"{}\"", tag(content))), ("Last-Modified", "Tue, 01 Dec 2026 00:00:00 GMT".to_owned())]
}

fn range_of(request: &Request) -> Option<(usize, usize)> {
    let (first, last) = request.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
}

/// The part of `content` that was asked for, as an honest server sends it.
fn part(request: &Request, content: &[u8]) -> Answer {
    let mut headers = object_headers(content);
    match range_of(request) {
        Some((start, end)) => {
            let end = end.min(content.len());
            headers.push(("Content-Range", format!("bytes {start}-{}/{}", end - 1, content.len())));
            Answer::Say(206, headers, content[start..end].to_vec())
        }
        None => Answer::Say(200, headers, content.to_vec()),
    }
}

fn honest(request: &Request, objects: &mut Objects) -> Answer {
    let exists = objects.contains_key(&request.key);
    match (request.method.as_str(), request.query.as_str()) {
        ("GET" | "HEAD", "") => {
            let Some(content) = objects.get(&request.key) else { return error(404, "NoSuchKey") };
            let pinned = request.headers.get("if-match");
            if pinned.is_some_and(|pinned| *pinned != format!("\"{}\"", tag(content))) {
                return error(412, "PreconditionFailed");
            }
            if request.method == "HEAD" {
                let mut headers = object_headers(content);
                headers.push(("Content-Length", content.len().to_string()));
                return Answer::Say(200, headers, vec![]);
            }
            part(request, content)
        }
        ("PUT", "") if request.headers.contains_key("if-none-match") && exists => error(412, "PreconditionFailed"),
        ("PUT", "") => {
            objects.insert(request.key.clone(), request.body.clone());
            Answer::Say(200, vec![("ETag", format!("\"{}\"", tag(&request.body)))], vec![])
        }
        ("PUT", query) => {
            // A part is kept under its own name until the end; a copied one is the whole original.
            let number: usize = between(query, "partNumber=").parse().expect("a number");
            let content = match request.headers.get("x-amz-copy-source") {
                Some(source) => objects[source.trim_start_matches('/').trim_start_matches("bucket/")].clone(),
                None => request.body.clone(),
            };
            objects.insert(format!("part {} {number:05}", request.key), content.clone());
            let xml = format!("<CopyPartResult><ETag>\"{}\"</ETag></CopyPartResult>", tag(&content));
            Answer::Say(200, vec![("ETag", format!("\"{}\"", tag(&content)))], xml.into_bytes())
        }
        ("POST", query) if query.contains("uploads") => {
            let xml = "<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>";
            Answer::Say(200, vec![], xml.into())
        }
        ("POST", _) => {
            let prefix = format!("part {} ", request.key);
            let parts: Vec<String> = objects.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
            if parts.is_empty() {
                return error(404, "NoSuchUpload");
            }
            let whole: Vec<u8> = parts.iter().flat_map(|part| objects.remove(part).expect("listed")).collect();
            if exists && request.headers.contains_key("if-none-match") {
                return error(412, "PreconditionFailed");
            }
            let xml = format!(
                "<CompleteMultipartUploadResult><ETag>\"{}\"</ETag></CompleteMultipartUploadResult>",
                tag(&whole)
            );
            objects.insert(request.key.clone(), whole);
            Answer::Say(200, vec![], xml.into_bytes())
        }
        ("DELETE", query) => {
            objects.retain(|key, _| match query.is_empty() {
                true => *key != request.key,
                false => !key.starts_with(&format!("part {} ", request.key)),
            });
            Answer::Say(204, vec![], vec![])
        }
        _ => error(501, "NotImplemented"),
    }
}

fn between<'a>(query: &'a str, name: &str) -> &'a str {
    let (_, rest) = query.split_once(name).expect("a parameter");
    rest.split('&').next().unwrap_or(rest)
}

#[test]
fn an_honest_server_is_read_as_it_is() {
    let server = Server::start(|_, _, _| None);
    server.has("a", b"0123456789");
    assert_eq!(server.read_a(), Ok(Bytes::from_static(b"2345")));
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_wrong_range_or_length_is_asked_for_again_and_then_refused() {
    type Lie = fn(&Request, &[u8]) -> Answer;
    let lies: [(&str, Lie); 6] = [
        ("a short body with an honest range", |_, content| {
            let mut headers = object_headers(content);
            headers.push(("Content-Range", "bytes 2-5/10".to_owned()));
            Answer::Say(206, headers, b"23".to_vec())
        }),
        ("a long body", |_, content| {
            let mut headers = object_headers(content);
            headers.push(("Content-Range", "bytes 2-5/10".to_owned()));
            Answer::Say(206, headers, b"23456789".to_vec())
        }),
        ("another range", |_, content| {
            let mut headers = object_headers(content);
            headers.push(("Content-Range", "bytes 3-6/10".to_owned()));
            Answer::Say(206, headers, b"3456".to_vec())
        }),
        ("no range at all", |_, content| Answer::Say(206, object_headers(content), b"2345".to_vec())),
        ("the whole object", |_, content| Answer::Say(200, object_headers(content), content.to_vec())),
        ("an error as a success", |_, content| {
            Answer::Say(200, object_headers(content), b"<Error><Code>InternalError</Code></Error>".to_vec())
        }),
    ];
    for (name, lie) in lies {
        let server =
            Server::start(move |request, objects, _| (request.method == "GET").then(|| lie(request, &objects["p/a"])));
        server.has("a", b"0123456789");
        let failure = server.read_a().expect_err(name);
        assert_eq!(failure.class, FailureClass::InputCorrupt, "{name}: {failure}");
        assert_eq!(server.requests(), TRIES as usize, "{name}");
        // The same lie once: the second answer is taken.
        let server =
            Server::start(move |request, objects, number| (number == 0).then(|| lie(request, &objects["p/a"])));
        server.has("a", b"0123456789");
        assert_eq!(server.read_a(), Ok(Bytes::from_static(b"2345")), "{name}");
    }
}

#[test]
fn a_body_that_breaks_off_is_a_fault_that_may_pass() {
    let broken = |content: &[u8]| {
        let mut headers = object_headers(content);
        headers.push(("Content-Range", "bytes 2-5/10".to_owned()));
        Answer::Break(206, headers, b"2".to_vec(), 4)
    };
    let server = Server::start(move |_, objects, number| (number == 0).then(|| broken(&objects["p/a"])));
    server.has("a", b"0123456789");
    assert_eq!(server.read_a(), Ok(Bytes::from_static(b"2345")));
    let server = Server::start(|_, _, _| Some(Answer::HangUp));
    let failure = server.read_a().expect_err("it always hangs up");
    assert_eq!(failure.class, FailureClass::Transient, "{failure}");
}

#[test]
fn slow_down_is_waited_for_and_then_told() {
    let server = Server::start(|_, _, number| (number < 2).then(|| error(503, "SlowDown")));
    server.has("a", b"0123456789");
    assert_eq!(server.read_a(), Ok(Bytes::from_static(b"2345")));
    for status in [429, 500, 503] {
        let server = Server::start(move |_, _, _| Some(error(status, "SlowDown")));
        let failure = server.read_a().expect_err("always");
        assert_eq!(failure.class, FailureClass::Transient, "{failure}");
        assert!(failure.message.contains(&format!("{status} SlowDown: As it is")), "{failure}");
    }
}

#[test]
fn another_content_under_the_name_is_a_changed_input() {
    // A server that honours If-Match, and two that do not: another tag, another size.
    let server = Server::start(|_, _, _| None);
    server.has("a", b"0123456780");
    assert_eq!(server.read_a().expect_err("changed").class, FailureClass::InputChanged);
    for other in [b"0123456780".as_slice(), b"01234567890"] {
        let server = Server::start(move |request, _, _| Some(part(request, other)));
        assert_eq!(server.read_a().expect_err("changed").class, FailureClass::InputChanged);
    }
    let server = Server::start(|_, _, _| None);
    assert_eq!(server.read_a().expect_err("gone").class, FailureClass::InputMissing);
}

#[test]
fn what_is_forbidden_says_what_to_do_and_no_secret() {
    let server = Server::start(|_, _, _| {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message><Key>hunter2hunter2</Key></Error>";
        Some(Answer::Say(403, vec![], body.into()))
    });
    for failure in [
        server.read_a().expect_err("forbidden"),
        server.root.put_new("b", b"x").expect_err("forbidden"),
        server.root.put("b", b"x").expect_err("forbidden"),
        server.root.list("").expect_err("forbidden"),
        server.root.delete("b").expect_err("forbidden"),
        server.root.create("b").and_then(|sink| sink.finish(0)).expect_err("forbidden"),
    ] {
        assert_eq!(failure.class, FailureClass::Policy, "{failure}");
        let text = failure.to_string();
        assert!(text.contains("403 SignatureDoesNotMatch: No; check the credentials"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_create_whose_answer_is_lost_is_found_again() {
    // Stored, then silence: the client's second try meets its own object.
    let server = Server::start(|request, objects, number| {
        (request.method == "PUT" && number == 0).then(|| {
            honest(request, objects);
            Answer::HangUp
        })
    });
    assert_eq!(server.root.put_new("m", b"mine"), Ok(Creation::Created));
    assert_eq!(server.held("m").as_deref(), Some(b"mine".as_slice()));
    // The same silence, but the object is another writer's.
    let server = Server::start(|request, objects, number| {
        (request.method == "PUT" && number == 0).then(|| {
            objects.insert("p/m".to_owned(), b"theirs".to_vec());
            Answer::HangUp
        })
    });
    assert_eq!(server.root.put_new("m", b"mine"), Ok(Creation::Exists));
    // A conflict with a writer that then gave up: there is nothing, so it is tried again.
    let server = Server::start(|request, _, number| {
        (request.method == "PUT" && number == 0).then(|| error(409, "ConditionalRequestConflict"))
    });
    assert_eq!(server.root.put_new("m", b"mine"), Ok(Creation::Created));
    assert_eq!(server.held("m").as_deref(), Some(b"mine".as_slice()));
}

#[test]
fn an_upload_whose_end_is_unclear_is_looked_at() {
    let content = vec![7; (8 << 20) + 5];
    let upload = |server: &Server| {
        let mut sink = server.root.create("out.part").expect("created");
        sink.write_all(&content).expect("written");
        sink.finish(content.len() as u64)
    };
    // Completed, then silence: the client's second try meets no upload.
    let server = Server::start(|request, objects, _| {
        let completes = request.method == "POST" && request.query.contains("uploadId");
        (completes && !objects.contains_key(&request.key)).then(|| {
            honest(request, objects);
            Answer::HangUp
        })
    });
    assert_eq!(upload(&server), Ok(Identity::Etag { etag: tag(&content), version: None }));
    // An error as a success, every time: nothing is there, and the parts are given back.
    let server = Server::start(|request, _, _| {
        let completes = request.method == "POST" && request.query.contains("uploadId");
        let body = b"<Error><Code>InternalError</Code><Message>We failed.</Message></Error>".to_vec();
        completes.then(|| Answer::Say(200, vec![], body))
    });
    assert_eq!(upload(&server).expect_err("it never completes").class, FailureClass::Transient);
    assert_eq!(server.held("out.part"), None);
    for _ in 0..200 {
        if server.objects.lock().expect("whole").is_empty() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert!(server.objects.lock().expect("whole").is_empty(), "the parts are given back");
    // A success that stored something shorter.
    let server = Server::start(|request, objects, _| {
        let completes = request.method == "POST" && request.query.contains("uploadId");
        completes.then(|| {
            let answer = honest(request, objects);
            objects.get_mut(&request.key).expect("completed").pop();
            answer
        })
    });
    let failure = upload(&server).expect_err("a byte is missing");
    assert_eq!(failure.class, FailureClass::Transient);
    assert!(failure.message.contains("8388613 bytes were written, the store has 8388612"), "{failure}");
}

#[test]
fn a_part_that_cannot_be_uploaded_stops_the_writer() {
    let server = Server::start(|request, _, _| {
        (request.method == "PUT" && request.query.contains("partNumber")).then(|| error(500, "InternalError"))
    });
    let mut sink = server.root.create("out.part").expect("created");
    let piece = vec![1; 8 << 20];
    let failed = (0..20).find_map(|_| sink.write_all(&piece).err()).expect("the writer hears of it");
    let failure = failed.get_ref().and_then(|inner| inner.downcast_ref::<Failure>()).expect("with its reason");
    assert_eq!(failure.class, FailureClass::Transient, "{failure}");
    sink.abort();
    assert_eq!(server.held("out.part"), None);
}

#[test]
fn a_copy_is_not_believed_before_it_is_seen() {
    let server = Server::start(|_, _, _| None);
    server.has("staging", b"verified");
    assert_eq!(server.root.publish("staging", "out"), Ok(Creation::Created));
    assert_eq!(server.held("out").as_deref(), Some(b"verified".as_slice()));
    // A copy that stored something else.
    let server = Server::start(|request, objects, _| {
        (request.method == "POST" && request.query.contains("uploadId")).then(|| {
            let answer = honest(request, objects);
            objects.insert(request.key.clone(), b"short".to_vec());
            answer
        })
    });
    server.has("staging", b"verified");
    assert_eq!(server.root.publish("staging", "out").expect_err("short").class, FailureClass::Transient);
    // A copy whose answer was lost: the caller compares what is there.
    let server = Server::start(|request, objects, _| {
        let completes = request.method == "POST" && request.query.contains("uploadId");
        (completes && !objects.contains_key(&request.key)).then(|| {
            honest(request, objects);
            Answer::HangUp
        })
    });
    server.has("staging", b"verified");
    assert_eq!(server.root.publish("staging", "out"), Ok(Creation::Exists));
    // Another writer was first, between the look and the copy.
    let server = Server::start(|request, objects, _| {
        if request.method == "POST" && request.query.contains("uploadId") {
            objects.insert("p/out".to_owned(), b"theirs".to_vec());
        }
        None
    });
    server.has("staging", b"verified");
    assert_eq!(server.root.publish("staging", "out"), Ok(Creation::Exists));
    assert_eq!(server.held("out").as_deref(), Some(b"theirs".as_slice()));
}

fn listing(entries: &[(&str, &str, u64)]) -> Answer {
    let entries: String = entries
        .iter()
        .map(|(key, tag, size)| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-12-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;{tag}&quot;</ETag><Size>{size}</Size></Contents>"
            )
        })
        .collect();
    let xml = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>");
    Answer::Say(200, vec![], xml.into_bytes())
}

#[test]
fn a_listing_that_cannot_be_true_is_refused() {
    let list =
        |entries: &'static [(&str, &str, u64)]| Server::start(move |_, _, _| Some(listing(entries))).root.list("");
    let paths = |found: Vec<ObjectInfo>| found.into_iter().map(|info| info.path).collect::<Vec<_>>();
    // An object twice on two pages, and the marks by which some tools make folders.
    let found = list(&[("p/", "0", 0), ("p/en/", "0", 0), ("p/en/a", "1", 5), ("p/en/a", "1", 5), ("p/b", "2", 0)]);
    assert_eq!(paths(found.expect("it may be true")), ["b", "en/a"]);
    assert_eq!(list(&[("p/a", "1", 5), ("p/a", "2", 5)]).expect_err("twice").class, FailureClass::Transient);
    assert_eq!(list(&[("p2/a", "1", 5)]).expect_err("elsewhere").class, FailureClass::Transient);
    assert_eq!(list(&[("p/../q", "1", 5)]).expect_err("outside").class, FailureClass::Policy);
    assert_eq!(list(&[("p//q", "1", 5)]).expect_err("no name").class, FailureClass::Policy);
}
