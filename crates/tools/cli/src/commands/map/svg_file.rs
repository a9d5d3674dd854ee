//! A drawing as an SVG document, for `garonne map --svg` and `--png`.

use svg::Document;
use svg::node::element::{Group, Path, Rectangle, Text, Title};

use super::drawing::{Drawing, PlacedBox, bytes};

/// From the edge of a box to its text, and from line to line.
const TEXT: (f64, f64) = (7.0, 14.0);

/// Colour of a box, by its class.
pub fn fill(class: &str, usable: bool) -> &'static str {
    match class {
        "cpu" if !usable => "#d3d5d9",
        "cpu" => "#ffffff",
        "core" => "#f1f1ee",
        "cache" => "#e9eef5",
        "memory" => "#f6e4c8",
        "network" => "#cfe3f7",
        "gpu" => "#d5ecd0",
        "storage" => "#e6dbef",
        "device" => "#ececec",
        "switch" => "#eef3f8",
        "unbound" => "#fffbe8",
        _ => "#fafaf7",
    }
}

/// The whole drawing.
pub fn document(drawing: &Drawing) -> Document {
    let mut document = Document::new()
        .set(
            "viewBox",
            (0, 0, drawing.width.ceil(), drawing.height.ceil()),
        )
        .set("width", drawing.width.ceil())
        .set("height", drawing.height.ceil())
        .set("font-family", "DejaVu Sans Mono, monospace")
        .set("font-size", 11);
    for area in &drawing.boxes {
        document = document.add(drawn_box(area));
    }
    for drawn in &drawing.links {
        let told = format!(
            "rank {} to rank {}: {} messages, {}",
            drawn.link.from,
            drawn.link.to,
            drawn.link.messages,
            bytes(drawn.link.bytes)
        );
        document = document.add(
            Path::new()
                .set("class", "traffic")
                .set("d", drawn.path.clone())
                .set("fill", "none")
                .set("stroke", "#2563a8")
                .set("stroke-opacity", 0.55)
                .set("stroke-width", format!("{:.1}", drawn.stroke))
                .add(Title::new(told)),
        );
    }
    for chip in &drawing.chips {
        let told = format!("rank {}: {}", chip.rank, chip.details.join("; "));
        let frame = Rectangle::new()
            .set("x", chip.x)
            .set("y", chip.y)
            .set("width", chip.width)
            .set("height", chip.height)
            .set("rx", 7)
            .set("fill", "#bfe3c6")
            .set("stroke", "#2d6a3a");
        let number = Text::new(chip.rank.to_string())
            .set("x", chip.x + chip.width / 2.0)
            .set("y", chip.y + chip.height - 5.0)
            .set("text-anchor", "middle")
            .set("font-weight", "bold");
        let group = Group::new()
            .set("class", "rank")
            .add(Title::new(told))
            .add(frame)
            .add(number);
        document = document.add(group);
    }
    document
}

fn drawn_box(area: &PlacedBox) -> Group {
    let frame = Rectangle::new()
        .set("x", area.x)
        .set("y", area.y)
        .set("width", area.width)
        .set("height", area.height)
        .set("rx", 3)
        .set("fill", fill(area.class, area.usable))
        .set("stroke", "#6b7280");
    let told: Vec<&str> = area
        .lines
        .iter()
        .chain(&area.details)
        .map(String::as_str)
        .collect();
    let mut group = Group::new()
        .set("class", area.class)
        .add(Title::new(told.join("\n")))
        .add(frame);
    for (index, line) in area.lines.iter().enumerate() {
        group = group.add(
            Text::new(line.clone())
                .set("x", area.x + TEXT.0)
                .set("y", area.y + TEXT.1 * (1 + index) as f64),
        );
    }
    group
}

#[cfg(test)]
mod tests {
    use super::super::drawing::of_machine;
    use super::super::machine::tests::object;
    use super::super::machine::{MachineMap, ObjectClass, PlacedRank};
    use super::*;

    #[test]
    fn names_are_escaped() {
        let map = MachineMap {
            root: object(ObjectClass::Cache, "<L2> & \"more\"", Vec::new()),
            ..MachineMap::default()
        };
        let text = document(&of_machine(&map)).to_string();
        assert!(
            text.contains("&lt;L2&gt; &amp;") && !text.contains("<L2>"),
            "{text}"
        );
    }

    #[test]
    fn a_rank_is_drawn_with_what_it_has_sent() {
        let map = MachineMap {
            root: object(ObjectClass::Group, "Machine", Vec::new()),
            ranks_here: vec![PlacedRank {
                rank: 3,
                pid: 77,
                sent_messages: 2,
                sent_bytes: 4000,
                ..PlacedRank::default()
            }],
            ..MachineMap::default()
        };
        let text = document(&of_machine(&map)).to_string();
        let told = "rank 3: process 77; sent 2 messages, 4.0 kB";
        assert!(text.contains(told), "{text}");
    }
}
