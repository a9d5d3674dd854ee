//! The file of decisions: `docs/reference/bubble-trace.md`.

use garonne_bubbles::{Framework, Machine, TraceHead, TraceLine, TraceLines};
use std::fs::File;
use std::io::{BufWriter, Write};

/// A file that is being written. An error ends it, and is kept for whoever asks.
#[derive(Debug)]
pub(crate) struct Recording {
    file: BufWriter<File>,
    lines: TraceLines,
}

impl Recording {
    /// Begins a file with the machine.
    pub(crate) fn create(path: &str, machine: &Machine, title: String) -> std::io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        write(
            &mut file,
            &TraceLine::Machine(TraceHead::new(machine, title)),
        )?;
        file.flush()?;
        Ok(Self {
            file,
            lines: TraceLines::default(),
        })
    }

    /// Writes what was decided since the last call.
    pub(crate) fn write(&mut self, framework: &mut Framework) -> std::io::Result<()> {
        let records = framework.take_records();
        for line in self.lines.of(records, framework.view()) {
            write(&mut self.file, &line)?;
        }
        self.file.flush()
    }
}

fn write(file: &mut BufWriter<File>, line: &TraceLine) -> std::io::Result<()> {
    serde_json::to_writer(&mut *file, line)?;
    file.write_all(b"\n")
}
