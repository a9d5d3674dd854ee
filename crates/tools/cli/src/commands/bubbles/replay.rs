//! `garonne bubbles replay`: a trace as a page that plays it.
//!
//! One HTML file that loads nothing (`replay.html`, whose script draws the trace that stands in it
//! as JSON). A trace is checked before, so that the page shows each or nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;

use garonne_bubbles::{Entity, Position, TRACE_VERSION, TraceHead, TraceLine};

use crate::overwrite_check;

const TEMPLATE: &str = include_str!("replay.html");

/// Lines that a trace may have: a page of more would not be drawn in any sensible time.
const LINES_MAX: usize = 1_000_000;

/// Writes the page of a trace.
///
/// # Errors
/// One line for the user.
pub fn write_page(trace: &Path, page: &Path) -> Result<(), String> {
    let beginning = TEMPLATE.split("@TITLE@").next().unwrap_or_default();
    overwrite_check::check(page, beginning.as_bytes())?;
    let cannot = |error| format!("cannot read {}: {error}", trace.display());
    let file = std::fs::File::open(trace).map_err(cannot)?;
    let lines = read(BufReader::new(file)).map_err(|why| format!("{}: {why}", trace.display()))?;
    overwrite_check::write(page, beginning.as_bytes(), &html(&lines)?)
}

/// Reads a trace and checks it.
///
/// # Errors
/// The number of a line and what is wrong with it.
fn read(mut text: impl BufRead) -> Result<Vec<TraceLine>, String> {
    let mut lines: Vec<TraceLine> = Vec::new();
    let (mut checker, mut line) = (None, Vec::new());
    loop {
        let number = lines.len() + 1;
        let wrong = |why: &dyn std::fmt::Display| format!("line {number}: {why}");
        line.clear();
        let count = text.read_until(b'\n', &mut line);
        if count.map_err(|error| wrong(&error))? == 0 {
            break;
        }
        if number > LINES_MAX {
            return Err(format!("more than {LINES_MAX} lines"));
        }
        let read: TraceLine = serde_json::from_slice(&line).map_err(|error| wrong(&error))?;
        match (&mut checker, &read) {
            (None, TraceLine::Machine(head)) => {
                checker = Some(TraceChecker::new(head.clone()).map_err(|why| wrong(&why))?);
            }
            (None, _) => return Err(wrong(&"a trace begins with its machine")),
            (Some(checker), read) => checker.check(read).map_err(|why| wrong(&why))?,
        }
        lines.push(read);
    }
    match lines.is_empty() {
        true => Err("no trace: the file is empty".into()),
        false => Ok(lines),
    }
}

/// Checks lines of a trace one after the other.
#[derive(Debug)]
struct TraceChecker {
    head: TraceHead,
    bubbles: u32,
    threads: u32,
    now: u64,
}

impl TraceChecker {
    fn new(head: TraceHead) -> Result<Self, String> {
        if head.version != TRACE_VERSION {
            return Err(format!(
                "a trace of version {}, this command reads version {TRACE_VERSION}",
                head.version
            ));
        }
        let (count, mut listed) = (head.places.len() as u32, 1);
        for (at, place) in head.places.iter().enumerate() {
            // Each place comes before the one around it, so the drawing ends.
            let is_wrong = match place.parent {
                Some(parent) => parent.0 >= count || parent.0 as usize <= at,
                None => at + 1 != head.places.len(),
            };
            let parts = place.children.iter();
            let is_whole = parts.clone().all(|child| {
                let own = head.places.get(child.0 as usize);
                own.is_some_and(|own| own.parent.is_some_and(|up| up.0 as usize == at))
            });
            listed += parts.len();
            if is_wrong || !is_whole {
                return Err(format!("place {at} is not where its neighbours say"));
            }
        }
        // A place that is listed twice would be drawn twice, with all in it.
        if listed != head.places.len() {
            return Err("places are missing, or listed twice".into());
        }
        if head.processors.iter().any(|(_, core)| core.0 >= count) {
            return Err("a processor has no place".into());
        }
        Ok(Self {
            head,
            bubbles: 0,
            threads: 0,
            now: 0,
        })
    }

    fn check(&mut self, line: &TraceLine) -> Result<(), String> {
        let at = match line {
            TraceLine::Machine(_) => return Err("a second machine".into()),
            TraceLine::New { at, .. } => *at,
            TraceLine::Move(record) => record.at,
        };
        if at < self.now {
            return Err(format!("time goes back from {} to {at}", self.now));
        }
        self.now = at;
        match line {
            TraceLine::New { entity, parent, .. } => {
                if parent.is_some_and(|parent| parent.0 >= self.bubbles) {
                    return Err(format!("{entity:?} is made in a bubble that is not there"));
                }
                let (known, number) = match entity {
                    Entity::Bubble(bubble) => (&mut self.bubbles, bubble.0),
                    Entity::Thread(thread) => (&mut self.threads, thread.0),
                };
                if number != *known {
                    return Err(format!("{entity:?} is made where number {known} is next"));
                }
                *known += 1;
                Ok(())
            }
            TraceLine::Move(record) => {
                let is_known = match record.entity {
                    Entity::Bubble(bubble) => bubble.0 < self.bubbles,
                    Entity::Thread(thread) => thread.0 < self.threads,
                };
                let is_there = match record.to {
                    Position::Queue(place) | Position::Burst(place) => {
                        (place.0 as usize) < self.head.places.len()
                    }
                    Position::Run(on) => (on.0 as usize) < self.head.processors.len(),
                    Position::Held | Position::Blocked | Position::Ended => true,
                };
                match (is_known, is_there) {
                    (false, _) => Err(format!("{:?} was not made", record.entity)),
                    (_, false) => Err(format!("{:?} is not of this machine", record.to)),
                    (true, true) => Ok(()),
                }
            }
            TraceLine::Machine(_) => Ok(()),
        }
    }
}

fn html(lines: &[TraceLine]) -> Result<String, String> {
    let title = match lines.first() {
        Some(TraceLine::Machine(head)) => head.title.as_str(),
        _ => "",
    };
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let data = serde_json::to_string(lines).map_err(|error| error.to_string())?;
    // What stands in an element of script must not end it.
    let data = data.replace('<', "\\u003c");
    let (head, rest) = TEMPLATE.split_once("@TITLE@").unwrap_or_default();
    let (middle, end) = rest.split_once("@DATA@").unwrap_or_default();
    Ok([head, &title, middle, &data, end].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"machine":{"version":1,"title":"<b> & c","places":[{"label":"core","parent":1,"children":[],"processors":[0]},{"label":"machine","parent":null,"children":[0],"processors":[0]}],"processors":[[0,0]]}}"#;

    fn of(lines: &[&str]) -> Result<Vec<TraceLine>, String> {
        read(lines.join("\n").as_bytes())
    }

    #[test]
    fn a_trace_reads_back_and_its_names_stay_text() {
        let lines = of(&[
            HEAD,
            r#"{"new":{"at":0,"entity":{"thread":0},"parent":null,"name":"</script><b>"}}"#,
            r#"{"move":{"at":5,"entity":{"thread":0},"to":{"run":0}}}"#,
            r#"{"move":{"at":9,"entity":{"thread":0},"to":"ended"}}"#,
        ]);
        let page = html(&lines.unwrap()).unwrap();
        assert!(page.contains("<title>&lt;b> &amp; c</title>"));
        assert!(!page.contains("</script><b>") && page.contains("\\u003c/script>"));
    }

    #[test]
    fn wrong_lines_are_refused_by_their_numbers() {
        let moved = r#"{"move":{"at":5,"entity":{"thread":0},"to":{"run":0}}}"#;
        let made = r#"{"new":{"at":5,"entity":{"thread":0},"parent":null,"name":""}}"#;
        let cases: [(&[&str], &str); 9] = [
            (&[], "empty"),
            (&[moved], "line 1: a trace begins"),
            (&[HEAD, HEAD], "line 2: a second machine"),
            (&[HEAD, moved], "line 2: Thread(ThreadId(0)) was not made"),
            (&[HEAD, made, made], "line 3"),
            (
                &[
                    HEAD,
                    made,
                    r#"{"move":{"at":1,"entity":{"thread":0},"to":"held"}}"#,
                ],
                "back from 5 to 1",
            ),
            (
                &[
                    HEAD,
                    made,
                    r#"{"move":{"at":5,"entity":{"thread":0},"to":{"queue":2}}}"#,
                ],
                "not of this machine",
            ),
            (&[HEAD, "nonsense"], "line 2"),
            (
                &[&HEAD.replace("\"version\":1", "\"version\":2")],
                "version 2",
            ),
        ];
        for (lines, why) in cases {
            let said = of(lines).unwrap_err();
            assert!(said.contains(why), "{said}, not {why}");
        }
        // A place that is inside itself would be drawn without end.
        let cycle = HEAD.replace(
            r#""parent":1,"children":[]"#,
            r#""parent":0,"children":[0]"#,
        );
        assert!(of(&[&cycle]).unwrap_err().contains("place 0"));
    }
}
