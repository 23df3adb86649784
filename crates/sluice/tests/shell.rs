//! The shell: piped, with `-c`, in a terminal, by users of each class.

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, stderr, stdout, wait_until};

/// Commands on standard input, as a script gives them.
fn piped(site: &Site, commands: &str) -> Output {
    let mut command = site.gateway.command(common::BINARY);
    command.args(["cli", "--state-dir"]).arg(site.state()).env("HOME", site.dir());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_script_asks_as_of_the_appliance() {
    let site = Site::new("shell");
    let _gateway = site.start(&site.write("a.conf", "set system host-name gw\n"));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let answer = accepted(&piped(&site, "show security flow session\nexit\nshow bananas\n"));
    assert!(answer.contains("Session ID: ") && answer.contains("Policy name: out"), "{answer}");
    assert!(answer.contains("  In: 10.71.1.2/") && answer.contains(" --> 10.71.2.2/"), "{answer}");
    assert!(answer.contains("If: left0.0,") && answer.contains("If: right0.0,"), "{answer}");
    assert!(answer.ends_with("Total sessions: 1\n"), "{answer}");
    let ask = |command: &str| accepted(&piped(&site, command));
    assert!(ask("show security flow session source-prefix 10.71.1.0/24").ends_with("Total sessions: 1\n"));
    assert_eq!(ask("show security flow session source-prefix 10.71.2.0/24"), "Total sessions: 0\n");
    assert_eq!(ask("sh sess nat | match total"), "Total sessions: 0\n");
    assert_eq!(ask("show security flow session | count"), "Count: 4 lines\n");
    let data: serde_json::Value =
        serde_json::from_str(&ask("show security flow session | display json")).unwrap();
    assert_eq!(data[0]["source"], "10.71.1.2");
    let terse = ask("show interfaces terse");
    assert_eq!(terse.lines().next(), Some("Interface               Admin Link Proto    Local"));
    assert!(terse.contains("left0.0                 up    up   inet     10.71.1.1/24"), "{terse}");
    assert!(ask("show route").contains("10.71.1.0/24"), "the kernel's routes");
    assert!(ask("show arp").contains("10.71.1.2"), "who has answered");
    assert_eq!(ask("show configuration system"), "host-name gw;\n");
    assert_eq!(ask("show configuration system | display set"), "set system host-name gw\n");
    assert!(ask("show security policies hit-count").contains("Number of policy: 1"));
    assert!(ask("show security zones left").contains("left0.0"));
    assert_eq!(ask("clear security flow session source-prefix 10.71.1.2"), "1 active sessions cleared\n");
}

#[test]
fn what_is_wrong_is_told_where_it_stands() {
    let site = Site::new("shwrong");
    let _gateway = site.start(&site.write("a.conf", ""));
    let wrong = |command: &str| {
        let output = site.sluice(&["cli", "-c", command]);
        assert_eq!(output.status.code(), Some(1), "{command}: {}", stdout(&output));
        stderr(&output)
    };
    let said = wrong("show bananas");
    assert!(said.starts_with("show bananas\n     ^\nsyntax error, expecting one of "), "{said}");
    let said = wrong("show se");
    assert!(
        said.contains("'ambiguous'") && said.contains("  sessions") && said.contains("  security"),
        "{said}"
    );
    let said = wrong("show security flow session source-prefix ten");
    assert!(said.contains("expecting an address or a prefix"), "{said}");
    let caret = said.lines().nth(1).unwrap();
    assert_eq!(caret.find('^'), Some("show security flow session source-prefix ".len()));
    let said = wrong("show security flow session zone atlantis");
    assert!(said.contains("zone atlantis is not configured"), "{said}");
    assert!(wrong("show version | display xml").contains("XML is not supported"));
    assert!(wrong("show version | display set").contains("does not apply"));
    assert!(wrong("show version | match (").contains("no pattern"));
    assert!(wrong("configure private").contains("configure exclusive"));
    // the others are done nevertheless
    let output = site.sluice(&["cli", "-c", "show bananas; show version", "-c", "show cli"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("sluice ") && stdout(&output).contains("class super-user"));
}

#[test]
fn a_candidate_is_edited_compared_and_committed() {
    let site = Site::new("shconf");
    let _gateway = site.start(&site.write("a.conf", ""));
    let answer = accepted(&piped(
        &site,
        "configure\nset system host-name branch\nedit security zones security-zone left\nset description inside\n\
         show\ntop\nshow | compare\ncommit check\ncommit comment \"first one\" and-quit\nshow system commit\n",
    ));
    assert!(answer.contains("description inside;"), "{answer}");
    let added = answer.lines().filter_map(|line| line.strip_prefix('+'));
    assert!(added.map(str::trim).any(|line| line == "host-name branch;"), "{answer}");
    assert!(
        answer.contains("configuration check succeeds\ncommit complete\nExiting configuration mode"),
        "{answer}"
    );
    assert!(answer.contains("first one"), "{answer}");
    assert!(accepted(&piped(&site, "show version")).contains("branch runs sluice"));
    let answer = accepted(&piped(&site, "configure\nrollback 1\ncommit and-quit\nshow configuration\n"));
    assert!(answer.contains("load complete\n") && !answer.contains("branch"), "{answer}");
    let answer = accepted(&piped(
        &site,
        "configure\nload set terminal\nset system host-name typed\n\x04\nrun show system uptime\nshow system | display set\n\
         delete system host-name\nexit\n",
    ));
    assert!(answer.contains("set system host-name typed\n") && answer.contains("Daemon started"), "{answer}");
    let refused = piped(&site, "configure\nset system host-name a b\ncommit\nexit\n");
    assert!(!refused.status.success(), "{}", stdout(&refused));
}

/// Somebody who is neither root nor of the daemon's group.
#[test]
fn a_class_is_refused_by_name_and_not_offered() {
    let site = Site::new("shclass");
    let _gateway = site.start(&site.write("a.conf", ""));
    std::process::Command::new("chmod").arg("755").arg(site.dir()).status().unwrap();
    let ask = |command: &str| {
        let mut nobody = site.gateway.command("setpriv");
        nobody.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            common::BINARY,
            "cli",
            "-c",
            command,
        ]);
        nobody.arg("--state-dir").arg(site.state()).output().unwrap()
    };
    assert!(accepted(&ask("show cli")).contains("class read-only"));
    assert!(accepted(&ask("show security zones")).contains("Security zone: left"));
    for (command, class) in
        [("show configuration", "operator"), ("clear sessions", "super-user"), ("configure", "super-user")]
    {
        let said = stderr(&ask(command));
        assert!(said.contains("permission denied") && said.contains(class), "{command}: {said}");
    }
    let said = stderr(&ask("bananas"));
    assert!(!said.contains("configure") && said.contains("show"), "{said}");
}

#[test]
fn it_is_a_login_shell() {
    let site = Site::new("shlogin");
    let _gateway = site.start(&site.write("a.conf", ""));
    let shell = site.dir().join("sluice-cli");
    std::os::unix::fs::symlink(common::BINARY, &shell).unwrap();
    // as sshd runs a command, without a terminal
    let mut command = Command::new(&shell);
    command.args(["-c", "show version", "--state-dir"]).arg(site.state());
    assert!(accepted(&command.output().unwrap()).contains("runs sluice"));
}

/// A terminal of 80 columns that somebody types in.
struct Terminal<'a> {
    site: &'a Site,
}

impl Terminal<'_> {
    fn open(site: &Site) -> Terminal<'_> {
        let terminal = Terminal { site };
        let command = format!("{} cli --state-dir {}", common::BINARY, site.state().display());
        let shell = format!("{command}; echo left with $?; sleep 600");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = self.site.gateway.command("tmux");
        command.arg("-S").arg(self.site.dir().join("tmux")).args(arguments);
        let output =
            command.env("HOME", self.site.dir()).env_remove("TMUX").env("TERM", "xterm").output().unwrap();
        accepted(&output)
    }

    fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", ":0"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", ":0"])
    }

    /// Waits until the screen shows something.
    fn shows(&self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(what) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no `{what}` on\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The line that the cursor stands in.
    fn last_line(&self) -> String {
        self.screen().trim_end().lines().last().unwrap_or_default().to_owned()
    }

    fn line_becomes(&self, line: &str) {
        wait_until(line, Duration::from_secs(30), || self.last_line().ends_with(line));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let mut command = self.site.gateway.command("tmux");
        // a test that failed may have left none
        let _ = command.arg("-S").arg(self.site.dir().join("tmux")).arg("kill-server").output();
    }
}

#[test]
fn somebody_types_in_a_terminal() {
    let site = Site::new("shtty");
    let _gateway = site.start(&site.write("a.conf", "set system host-name gw\n"));
    let terminal = Terminal::open(&site);
    terminal.shows("root@gw>");
    // Tab and the space bar complete words, `?` lists what may follow and leaves the line as it was
    terminal.types(&["sh", "Space", "sec", "Tab"]);
    terminal.line_becomes("root@gw> show security");
    terminal.types(&["zo", "Tab", "?"]);
    let screen = terminal.shows("Possible completions:");
    assert!(screen.contains("  left                 left0.0") && screen.contains("  <zone>"), "{screen}");
    assert!(screen.contains("  <[Enter]>            Execute this command"), "{screen}");
    terminal.line_becomes("root@gw> show security zones");
    terminal.types(&["ri", "Tab", "Enter"]);
    terminal.shows("Security zone: right");
    // a line typed before
    terminal.types(&["Up"]);
    terminal.line_becomes("root@gw> show security zones right");
    // Ctrl-C gives the line up
    terminal.types(&["C-c"]);
    terminal.line_becomes("root@gw>");
    terminal.types(&["bananas", "Enter"]);
    let screen = terminal.shows("syntax error, expecting one of");
    let lines: Vec<&str> = screen.lines().collect();
    let typed = lines.iter().rposition(|line| line.ends_with("> bananas")).unwrap();
    assert_eq!(lines[typed + 1].find('^'), lines[typed].find("bananas"), "{screen}");
    // Ctrl-C ends what runs, and not the shell
    terminal.types(&["ping 10.71.1.2", "Enter"]);
    terminal.shows("bytes from 10.71.1.2");
    terminal.types(&["C-c"]);
    terminal.shows("packets transmitted");
    // a screen at a time
    terminal.types(&["show pipeline", "Enter"]);
    terminal.shows("---(more)---");
    terminal.types(&["q"]);
    terminal.line_becomes("root@gw>");
    terminal.types(&["configure", "Enter"]);
    terminal.shows("[edit]");
    terminal.types(&["edit sec", "Space", "zo", "Tab", "security-zone le", "Tab", "Enter"]);
    terminal.shows("[edit security zones security-zone left]");
    terminal.line_becomes("root@gw#");
    terminal.types(&["exit", "Enter"]);
    terminal.shows("[edit]\nroot@gw#");
    terminal.types(&["exit", "Enter"]);
    terminal.shows("Exiting configuration mode");
    terminal.types(&["exit", "Enter"]);
    terminal.shows("left with 0");
}

#[test]
fn what_is_typed_ahead_is_done_in_its_order() {
    let site = Site::new("shahead");
    let _gateway = site.start(&site.write("a.conf", "set system host-name gw\n"));
    let terminal = Terminal::open(&site);
    terminal.shows("root@gw>");
    // all at once: two lines and the beginning of a third
    terminal.types(&["set cli screen-width 100", "Enter", "set cli screen-length 0", "Enter", "show ar"]);
    let screen = terminal.shows("Screen length set to 0");
    let at = |what: &str| screen.find(what).unwrap_or_else(|| panic!("no {what} on\n{screen}"));
    assert!(at("Screen width set to 100") < at("Screen length set to 0"), "{screen}");
    terminal.line_becomes("root@gw> show ar");
    terminal.types(&["p", "Enter"]);
    terminal.shows("Total entries:");
    // while a command runs
    terminal.types(&["ping 10.71.1.2 count 3", "Enter"]);
    terminal.shows("bytes from 10.71.1.2");
    terminal.types(&["set cli screen-width 90", "Enter", "set cli screen-width 91", "Enter"]);
    let screen = terminal.shows("Screen width set to 91");
    let at = |what: &str| screen.find(what).unwrap_or_else(|| panic!("no {what} on\n{screen}"));
    assert!(at("packets transmitted") < at("Screen width set to 90"), "{screen}");
    assert!(at("Screen width set to 90") < at("Screen width set to 91"), "{screen}");
    // a text with its commands around it, pasted by keys and as a terminal marks it
    terminal.types(&[
        "configure",
        "Enter",
        "load set terminal",
        "Enter",
        "set system host-name ahead",
        "Enter",
    ]);
    terminal.types(&["set system syslog file m any info", "Enter", "C-d", "commit and-quit", "Enter"]);
    terminal.shows("root@ahead>");
    let lines = "set cli screen-width 95\nset cli screen-width 96\n";
    terminal.tmux(&["set-buffer", lines]);
    terminal.tmux(&["paste-buffer", "-p", "-t", ":0"]);
    terminal.types(&["Enter"]);
    let screen = terminal.shows("Screen width set to 96");
    assert!(screen.contains("Screen width set to 95"), "{screen}");
    // an answer
    terminal.types(&[
        "configure",
        "Enter",
        "set system host-name other",
        "Enter",
        "exit",
        "Enter",
        "yes",
        "Enter",
    ]);
    terminal.shows("Exiting configuration mode");
    terminal.types(&["exit", "Enter"]);
    terminal.shows("left with 0");
}

#[test]
fn a_log_is_followed_until_ctrl_c() {
    let site = Site::new("shfollow");
    let dir = site.dir().display();
    let configuration = format!(
        "set system host-name gw\nset security log file name sessions\nset security log file path {dir}\n\
         set system syslog file messages any info\nset system syslog file messages path {dir}\n\
         set security policies from-zone left to-zone right policy out then log session-init\n"
    );
    let _gateway = site.start(&site.write("a.conf", &configuration));
    let file = site.dir().join("sessions");
    assert!(site.pings(&site.left, "10.71.2.2"));
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("it is written", Duration::from_secs(10), || text().contains("RT_FLOW_SESSION_CREATE"));
    let told =
        accepted(&piped(&site, "show log sessions | count\nshow log messages | match complete | count\n"));
    assert_eq!(told, "Count: 1 lines\nCount: 1 lines\n");
    assert!(accepted(&piped(&site, "show log sessions last 1")).contains("RT_FLOW_SESSION_CREATE"));
    let wrong = stderr(&site.sluice(&["cli", "-c", "show log nothing"]));
    assert!(wrong.contains("no log is called nothing; there are: messages, session, sessions"), "{wrong}");

    let sends = |port: u16| {
        let to = format!("10.71.2.2:{port}");
        site.left.enter(|| UdpSocket::bind("10.71.1.2:0").unwrap().send_to(b"x", &to).unwrap()).unwrap();
    };
    let terminal = Terminal::open(&site);
    terminal.shows("root@gw>");
    terminal.types(&["monitor start sessions | match 3303", "Enter"]);
    sends(33030);
    terminal.shows("33030");
    // the daemon begins another file where somebody has moved it away
    std::fs::rename(&file, site.dir().join("sessions.1")).unwrap();
    sends(33033);
    terminal.shows("33033");
    terminal.types(&["C-c"]);
    terminal.line_becomes("root@gw>");
    terminal.types(&["C-l"]);
    terminal.line_becomes("root@gw>");
    terminal.types(&["monitor start session | match 33034", "Enter"]);
    sends(33034);
    terminal.shows("RT_FLOW_SESSION_CREATE");
    terminal.types(&["C-c"]);
    terminal.line_becomes("root@gw>");
    terminal.types(&["monitor stop", "Enter"]);
    terminal.shows("lasts until Ctrl-C");
}

#[test]
fn the_session_log_is_followed_by_a_command() {
    let site = Site::new("shlog");
    let logged = "set security policies from-zone left to-zone right policy out then log session-init\n";
    let gateway = site.start(&site.write("a.conf", logged));
    let heard = |count: usize| {
        assert!(site.pings(&site.left, "10.71.2.2"));
        let log = || gateway.json("/api/log").unwrap().as_array().unwrap().len();
        wait_until("the daemon has heard of it", Duration::from_secs(10), || log() == count);
    };
    heard(1);
    heard(2);
    let mut command = site.gateway.command(common::BINARY);
    command.args(["show", "log", "--follow", "--last", "1", "--json", "--state-dir"]).arg(site.state());
    let mut follower = Running::spawn(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let log = |at: usize| gateway.json("/api/log").unwrap()[at].clone();
    assert_eq!(next(), log(1), "the last one that was there");
    heard(3);
    assert_eq!(next(), log(2));
}
