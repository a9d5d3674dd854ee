//! The machine as nested boxes in an SVG file, with the ranks where they are bound and what each
//! has sent.
//!
//! Used by `garonne map --svg`. This module knows nothing of hwloc or jobs: it draws a tree of
//! [`TopologyBox`]s. Sizes are computed from the leaves up, places from the root down. Siblings
//! share a size, as equal things should look equal.

use svg::Document;
use svg::node::element::{Group, Rectangle, Text, Title};

/// A part of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopologyBox {
    /// Name of the part of the machine.
    pub label: String,
    /// Lines below the label: memory and devices, the ranks that run there.
    pub lines: Vec<String>,
    /// Way in which it is to look.
    pub fill: BoxFill,
    /// Boxes inside this one.
    pub parts: Vec<TopologyBox>,
}

/// Meaning of a box's colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoxFill {
    /// A group of others.
    #[default]
    Group,
    /// A processor without ranks.
    Free,
    /// A processor with ranks.
    Busy,
    /// A processor that this job may not use.
    Forbidden,
}

impl BoxFill {
    fn fill(self) -> &'static str {
        match self {
            BoxFill::Group => "#f7f7f4",
            BoxFill::Free => "#ffffff",
            BoxFill::Busy => "#bfe3c6",
            BoxFill::Forbidden => "#d9d9d9",
        }
    }
}

/// Lengths in pixels.
const MARGIN: usize = 8;
const LINE: usize = 16;
const CHARACTER: usize = 7;

/// An area with its size and that of its cells.
struct SizedBox<'a> {
    area: &'a TopologyBox,
    width: usize,
    height: usize,
    cell: (usize, usize),
    columns: usize,
    parts: Vec<SizedBox<'a>>,
}

/// Returns how many of `count` equal cells to put side by side: a landscape about twice as wide as
/// high.
fn columns(count: usize) -> usize {
    (1..=count)
        .find(|columns| columns * columns >= 2 * count)
        .unwrap_or(count)
}

fn measure(area: &TopologyBox) -> SizedBox<'_> {
    let parts: Vec<_> = area.parts.iter().map(measure).collect();
    let cell = (
        parts.iter().map(|part| part.width).max().unwrap_or(0),
        parts.iter().map(|part| part.height).max().unwrap_or(0),
    );
    let columns = columns(parts.len());
    let rows = if columns == 0 {
        0
    } else {
        parts.len().div_ceil(columns)
    };
    let text = area
        .lines
        .iter()
        .chain([&area.label])
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let inside = columns * (cell.0 + MARGIN);
    SizedBox {
        area,
        width: MARGIN + inside.max(text * CHARACTER + MARGIN),
        height: MARGIN + LINE * (1 + area.lines.len()) + rows * (cell.1 + MARGIN),
        cell,
        columns,
        parts,
    }
}

fn draw(sized: &SizedBox<'_>, (x, y): (usize, usize), size: (usize, usize)) -> Group {
    let area = sized.area;
    let frame = Rectangle::new()
        .set("x", x)
        .set("y", y)
        .set("width", size.0)
        .set("height", size.1)
        .set("rx", 3)
        .set("fill", area.fill.fill())
        .set("stroke", "#555555");
    let mut group = Group::new().add(Title::new(area.label.clone())).add(frame);
    for (index, line) in [&area.label].into_iter().chain(&area.lines).enumerate() {
        let weight = if index == 0 { "bold" } else { "normal" };
        group = group.add(
            Text::new(line.clone())
                .set("x", x + MARGIN)
                .set("y", y + LINE * (1 + index))
                .set("font-weight", weight),
        );
    }
    let top = y + MARGIN + LINE * (1 + area.lines.len());
    for (index, part) in sized.parts.iter().enumerate() {
        let at = (
            x + MARGIN + index % sized.columns * (sized.cell.0 + MARGIN),
            top + index / sized.columns * (sized.cell.1 + MARGIN),
        );
        group = group.add(draw(part, at, sized.cell));
    }
    group
}

/// The whole drawing.
pub fn picture(machine: &TopologyBox) -> Document {
    let sized = measure(machine);
    let (width, height) = (sized.width + 2 * MARGIN, sized.height + 2 * MARGIN);
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "monospace")
        .set("font-size", 11)
        .add(draw(&sized, (MARGIN, MARGIN), (sized.width, sized.height)))
}

/// A number of bytes as people read it.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let unit = (0..UNITS.len() - 1).find(|&unit| count < 1000u64.pow(unit as u32 + 1));
    let unit = unit.unwrap_or(UNITS.len() - 1);
    if unit == 0 {
        return format!("{count} B");
    }
    format!(
        "{:.1} {}",
        count as f64 / 1000f64.powi(unit as i32),
        UNITS[unit]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(label: &str, lines: &[&str]) -> TopologyBox {
        TopologyBox {
            label: label.into(),
            lines: lines.iter().map(|line| (*line).into()).collect(),
            fill: BoxFill::Free,
            parts: vec![],
        }
    }

    #[test]
    fn parts_lie_within_their_area_and_beside_each_other() {
        let machine = TopologyBox {
            label: "machine".into(),
            parts: (0..7)
                .map(|cpu| leaf(&format!("CPU {cpu}"), &["rank 1", "rank 2"][..cpu % 3]))
                .collect(),
            ..TopologyBox::default()
        };
        let sized = measure(&machine);
        assert_eq!(sized.columns, 4);
        assert!(sized.width >= 4 * (sized.cell.0 + MARGIN) + MARGIN);
        assert!(sized.height >= 2 * (sized.cell.1 + MARGIN) + LINE);
        assert!(
            sized
                .parts
                .iter()
                .all(|part| part.width <= sized.cell.0 && part.height <= sized.cell.1)
        );
    }

    #[test]
    fn names_are_escaped() {
        let text = picture(&leaf("<L2> & \"more\"", &[])).to_string();
        assert!(
            text.contains("&lt;L2&gt; &amp;") && !text.contains("<L2>"),
            "{text}"
        );
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(
            [bytes(7), bytes(1500), bytes(2_000_000)],
            ["7 B", "1.5 kB", "2.0 MB"]
        );
        assert_eq!(bytes(3_000_000_000_000_000), "3000.0 TB");
    }
}
