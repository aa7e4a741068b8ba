//! A real browser: Debian's Chromium, driven over WebDriver.
//!
//! `TOLLGATE_TEST_CHROMEDRIVER` and `TOLLGATE_TEST_CHROMIUM` say where the programs are, `TOLLGATE_TEST_AXE` where
//! axe-core's script is; `tests/run` sets all three. Everything is plain JSON over HTTP, so that nothing but the driver is
//! needed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::process::Process;
use crate::wait_for;

/// The member by which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The driver says so when it listens.
const STARTED: &str = "started successfully on port ";
/// So often a driver is started until one finds a port.
const DRIVER_TRIES: u32 = 5;
/// Enter, for [`Browser::keys`].
pub const ENTER: &str = "\u{e007}";
/// Tab, for [`Browser::keys`].
pub const TAB: &str = "\u{e004}";

/// How a window looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Part of a screenshot's name.
    pub name: &'static str,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Whether the browser wishes for dark pages.
    pub dark: bool,
}

/// The looks in which each page is opened.
pub const LOOKS: [Look; 4] = [
    Look { name: "light", size: (1280, 900), dark: false },
    Look { name: "dark", size: (1280, 900), dark: true },
    Look { name: "phone", size: (390, 844), dark: false },
    Look { name: "phone-dark", size: (390, 844), dark: true },
];

/// A browser with one window; it ends when dropped.
pub struct Browser {
    /// Ends with this, after the session has.
    _driver: Process,
    client: Client<HttpConnector, Full<Bytes>>,
    session: String,
    base: String,
    axe: String,
}

/// What a page has asked for and complained about since the last look.
#[derive(Clone, Debug, Default)]
pub struct Noise {
    /// Messages of the console at the level of errors, and of refused loads.
    pub errors: Vec<String>,
    /// The addresses of all requests.
    pub requests: Vec<String>,
}

fn program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.filter(|path| path.exists())
        .unwrap_or_else(|| panic!("{variable} names no file. Run the tests with ./tests/run, which sets it"))
}

/// A driver and its port. None where it ended: the port that it found free for one family of addresses may be taken for
/// the other.
fn start_driver() -> Option<(Process, String)> {
    let mut command = Command::new(program("TOLLGATE_TEST_CHROMEDRIVER"));
    command.args(["--port=0", "--log-level=WARNING"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = Process::start(&mut command).unwrap();
    let mut lines = BufReader::new(driver.output().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once(STARTED)?;
        Some(port.trim_matches(|c: char| !c.is_ascii_digit()).to_owned())
    });
    let port = port?;
    // Whoever writes into a pipe that nobody reads stops some day.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    Some((driver, port))
}

impl Browser {
    /// A browser that opens paths of the console at this address.
    ///
    /// # Panics
    /// When the driver or the browser does not start.
    pub async fn start(base: &str) -> Self {
        let axe = std::fs::read_to_string(program("TOLLGATE_TEST_AXE")).unwrap();
        let (driver, port) = (0..DRIVER_TRIES)
            .find_map(|_| start_driver())
            .expect("chromedriver does not say on which port it listens");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut browser = Self {
            _driver: driver,
            client,
            session: format!("http://127.0.0.1:{port}/session"),
            base: base.to_owned(),
            axe,
        };
        let options = json!({
            "binary": program("TOLLGATE_TEST_CHROMIUM"),
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--force-prefers-reduced-motion", "--hide-scrollbars", "--window-size=1280,900",
            ],
            "perfLoggingPrefs": { "enableNetwork": true, "enablePage": false },
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let session = browser.call(Method::POST, "", wanted).await;
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("{session}"));
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let text = if method == Method::POST { body.to_string() } else { String::new() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.session))
            .header("content-type", "application/json")
            .body(Full::from(text))
            .unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(180), self.client.request(request));
        let answer = answer.await.expect("the browser does not answer").unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut value: Value = serde_json::from_slice(&body).unwrap();
        let value = value["value"].take();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, body).await
    }

    /// Opens a path of the console, and waits until its script has run.
    pub async fn open(&self, path: &str) {
        self.post("/url", json!({ "url": format!("{}{path}", self.base) })).await;
    }

    /// Where the window is, from the path on.
    pub async fn path(&self) -> String {
        let url = self.call(Method::GET, "/url", Value::Null).await;
        url.as_str().unwrap().strip_prefix(&self.base).unwrap_or_default().to_owned()
    }

    /// The result of a script's `return`.
    pub async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// The text that somebody sees.
    pub async fn text(&self) -> String {
        let text = self.run("return document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows a text, without loading it anew.
    ///
    /// # Panics
    /// When it has not come within so many seconds, or as long as [`wait_for`] has patience.
    pub async fn sees(&self, text: &str, seconds: u64) {
        wait_for(&format!("{text:?} in the page"), seconds, async || {
            self.text().await.contains(text).then_some(())
        })
        .await;
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.post("/element", json!({ "using": "css selector", "value": selector })).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    /// Writes into a field, in place of what it holds.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        if !text.is_empty() {
            self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
        }
    }

    /// Chooses an option by its value.
    pub async fn choose(&self, selector: &str, value: &str) {
        let script = "const [selector, value] = arguments; const field = document.querySelector(selector);\
                      field.value = value; return field.value === value";
        let body = json!({ "script": script, "args": [selector, value] });
        assert_eq!(self.post("/execute/sync", body).await, json!(true), "{selector} has no {value}");
    }

    /// Presses keys, as somebody at a keyboard.
    pub async fn keys(&self, keys: &str) {
        let pressed: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
            })
            .collect();
        let body = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": pressed }] });
        self.post("/actions", body).await;
    }

    /// Goes to something with the Tab key alone.
    ///
    /// # Panics
    /// When Tab does not come to it.
    pub async fn tab_to(&self, selector: &str) {
        let script = "const wanted = document.querySelector(arguments[0]);\
                      if (!wanted) return 'missing';\
                      return wanted === document.activeElement ? 'there' : 'on';";
        for _ in 0..600 {
            let body = json!({ "script": script, "args": [selector] });
            match self.post("/execute/sync", body).await.as_str() {
                Some("there") => return,
                Some("on") => self.keys(TAB).await,
                _ => panic!("{selector} is not in the page:\n{}", self.text().await),
            }
        }
        panic!("Tab does not come to {selector}");
    }

    /// Goes to a control with Tab and presses Enter.
    pub async fn press(&self, selector: &str) {
        self.tab_to(selector).await;
        self.keys(ENTER).await;
    }

    /// As [`Browser::press`], and waits until another page has come.
    pub async fn press_and_go(&self, selector: &str) {
        self.run("window.before = true").await;
        self.press(selector).await;
        wait_for("another page", 20, async || {
            let ready = self.run("return !window.before && document.readyState === 'complete'").await;
            (ready == json!(true)).then_some(())
        })
        .await;
    }

    /// Confirms what a page asks, with a reason.
    pub async fn confirm(&self, reason: &str) {
        self.fill("form.confirm #reason", reason).await;
        self.press_and_go("form.confirm button").await;
    }

    /// Gives the window a size and a colour scheme.
    pub async fn look(&self, look: Look) {
        let (width, height) = look.size;
        let phone = width < 600;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if look.dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// Keeps a picture of the whole page.
    pub async fn screenshot(&self, file: &Path) {
        let whole = json!({ "captureBeyondViewport": true, "format": "png" });
        let picture = self.devtools("Page.captureScreenshot", whole).await;
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// How many pixels the page is wider than its window.
    pub async fn overflow(&self) -> i64 {
        let wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.run(wide).await.as_i64().unwrap()
    }

    /// What has been said and asked for since the last call.
    pub async fn noise(&self) -> Noise {
        let mut noise = Noise::default();
        for entry in self.log("browser").await {
            if entry["level"] == "SEVERE" {
                noise.errors.push(entry["message"].to_string());
            }
        }
        for entry in self.log("performance").await {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                noise.requests.push(message["params"]["request"]["url"].as_str().unwrap().to_owned());
            }
        }
        noise
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        self.post("/se/log", json!({ "type": kind })).await.as_array().cloned().unwrap_or_default()
    }

    /// What axe-core finds serious or critical, one line for each.
    pub async fn axe(&self) -> Vec<String> {
        // The console's own pages run no foreign script, so this one comes in by the driver.
        let load = format!("{}; return typeof axe", self.axe);
        assert_eq!(self.run(&load).await, json!("object"));
        let script = "const done = arguments[arguments.length - 1];\
            axe.run(document, { resultTypes: ['violations'] }).then(\
              (found) => done(found.violations.flatMap((rule) => rule.nodes.map((node) =>\
                [rule.impact, rule.id, rule.help, node.target.join(' '), node.html.slice(0, 200)]))),\
              (error) => done([['critical', 'axe', String(error), '', '']]));";
        let found = self.post("/execute/async", json!({ "script": script, "args": [] })).await;
        let found = found.as_array().cloned().unwrap_or_default();
        let serious = found.into_iter().filter(|one| one[0] == "serious" || one[0] == "critical");
        serious.map(|one| one.to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without its driver the browser ends as well; asking it first leaves nothing behind.
        let address = self.session.trim_start_matches("http://").split('/').next().unwrap_or_default();
        if let Ok(mut stream) = std::net::TcpStream::connect(address) {
            use std::io::{Read as _, Write as _};
            let path = self.session.split_once(address).map_or("/", |(_, path)| path);
            let request = format!("DELETE {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            let _asked = stream.write_all(request.as_bytes());
            let _limit = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _said = stream.read(&mut [0; 64]);
        }
    }
}
