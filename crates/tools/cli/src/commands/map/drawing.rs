//! A machine as boxes within boxes with places: for an SVG file and for the page.
//!
//! Sizes are computed from the leaves up, places from the root down. Memory lies above what
//! computes, devices below. This module knows nothing of hwloc, jobs or SVG.

use std::collections::HashMap;

use serde::Serialize;

use super::machine::{MachineMap, MachineObject, ObjectClass, PlacedRank, size};

/// Lengths in pixels.
const MARGIN: f64 = 7.0;
const LINE: f64 = 14.0;
/// Width of a character of the monospaced font, with some reserve.
const CHARACTER: f64 = 6.9;
/// A rank's mark.
const CHIP: (f64, f64) = (38.0, 17.0);
const CHIP_GAP: f64 = 3.0;
/// Marks side by side in a box for ranks that are bound to no CPU.
const UNBOUND_COLUMNS: usize = 16;
/// Lines of a label that are shown; a click shows all.
const LABEL_MAX: usize = 44;
/// Pairs of ranks whose messages are drawn: more would be one blot.
pub const LINKS_MAX: usize = 300;

/// A box with its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlacedBox {
    /// Name of the class.
    pub class: &'static str,
    /// Box around this one, by number.
    pub parent: Option<usize>,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Lines of text in the box.
    pub lines: Vec<String>,
    /// What a click tells besides.
    pub details: Vec<String>,
    /// Whether this process may use the CPU.
    pub usable: bool,
}

/// A rank's mark with its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RankChip {
    /// Number in the world.
    pub rank: u32,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Name of the host.
    pub host: String,
    /// What is known of the rank, in a line each.
    pub details: Vec<String>,
}

/// Messages between two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficLink {
    /// Rank that sends.
    pub from: u32,
    /// Rank that receives.
    pub to: u32,
    /// Number of messages.
    pub messages: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// A line for messages between two ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DrawnLink {
    /// Messages.
    #[serde(flatten)]
    pub link: TrafficLink,
    /// Line, as the data of an SVG path.
    pub path: String,
    /// Width of the line.
    pub stroke: f64,
}

/// All boxes, marks and lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Drawing {
    /// Width of the whole.
    pub width: f64,
    /// Height of the whole.
    pub height: f64,
    /// Boxes, each after the one around it.
    pub boxes: Vec<PlacedBox>,
    /// Marks of ranks.
    pub chips: Vec<RankChip>,
    /// Lines between marks.
    pub links: Vec<DrawnLink>,
}

/// A box with its size and those inside, whose places are relative to it.
#[derive(Default)]
struct Sized {
    class: ObjectClass,
    lines: Vec<String>,
    details: Vec<String>,
    usable: bool,
    width: f64,
    height: f64,
    parts: Vec<(f64, f64, Sized)>,
    chips: Vec<(f64, f64, PlacedRank)>,
    host: Option<String>,
}

/// Draws one machine.
pub fn of_machine(map: &MachineMap) -> Drawing {
    finish(machine(map))
}

/// Draws machines within a frame: hosts of a job, or of switches.
pub fn of_hosts(title: &str, hosts: &[MachineMap]) -> Drawing {
    let parts = hosts.iter().map(machine).collect();
    finish(frame(
        ObjectClass::Switch,
        vec![title.to_owned()],
        Vec::new(),
        parts,
    ))
}

fn finish(mut whole: Sized) -> Drawing {
    let mut drawing = Drawing {
        width: whole.width + 2.0 * MARGIN,
        height: whole.height + 2.0 * MARGIN,
        ..Drawing::default()
    };
    let host = whole.host.take().unwrap_or_default();
    place(&mut drawing, whole, (MARGIN, MARGIN), None, &host);
    drawing
}

impl Drawing {
    /// Adds lines for messages between ranks that are drawn; the first are the most important.
    pub fn connect(&mut self, links: &[TrafficLink]) {
        let middles: HashMap<u32, (f64, f64)> = self
            .chips
            .iter()
            .map(|chip| {
                let middle = (chip.x + chip.width / 2.0, chip.y + chip.height / 2.0);
                (chip.rank, middle)
            })
            .collect();
        let most = links
            .iter()
            .map(|link| link.bytes)
            .max()
            .unwrap_or(0)
            .max(1);
        let drawn = links.iter().filter_map(|link| {
            let (from, to) = (middles.get(&link.from)?, middles.get(&link.to)?);
            let share = (link.bytes as f64).ln_1p() / (most as f64).ln_1p();
            (link.from != link.to).then(|| DrawnLink {
                link: *link,
                path: bent(*from, *to),
                stroke: (1.0 + 4.0 * share).max(1.0),
            })
        });
        self.links = drawn.take(LINKS_MAX).collect();
    }
}

/// A line that is bent to one side, so that the two directions are apart.
fn bent((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> String {
    let (dx, dy) = (to_x - x, to_y - y);
    let length = dx.hypot(dy).max(1.0);
    let bend = 14.0 + length / 12.0;
    let middle = (
        (x + to_x) / 2.0 - dy / length * bend,
        (y + to_y) / 2.0 + dx / length * bend,
    );
    format!(
        "M{x:.1} {y:.1} Q{:.1} {:.1} {to_x:.1} {to_y:.1}",
        middle.0, middle.1
    )
}

fn place(
    drawing: &mut Drawing,
    sized: Sized,
    (x, y): (f64, f64),
    parent: Option<usize>,
    host: &str,
) {
    let host = sized.host.as_deref().unwrap_or(host);
    let number = drawing.boxes.len();
    drawing.boxes.push(PlacedBox {
        class: sized.class.name(),
        parent,
        x,
        y,
        width: sized.width,
        height: sized.height,
        lines: sized.lines,
        details: sized.details,
        usable: sized.usable,
    });
    for (left, top, rank) in sized.chips {
        drawing.chips.push(RankChip {
            rank: rank.rank,
            x: x + left,
            y: y + top,
            width: CHIP.0,
            height: CHIP.1,
            host: host.to_owned(),
            details: told(&rank),
        });
    }
    for (left, top, part) in sized.parts {
        place(drawing, part, (x + left, y + top), Some(number), host);
    }
}

/// What a rank's mark tells.
fn told(rank: &PlacedRank) -> Vec<String> {
    let mut lines = vec![format!("process {}", rank.pid)];
    if rank.sent_messages > 0 {
        lines.push(format!(
            "sent {} messages, {}",
            rank.sent_messages,
            bytes(rank.sent_bytes)
        ));
    }
    for (node, amount) in &rank.memory {
        lines.push(format!("memory on NUMA node {node}: {}", size(*amount)));
    }
    for thread in &rank.threads {
        lines.push(format!(
            "thread {}, last on CPU {}",
            thread.name, thread.cpu
        ));
    }
    lines
}

fn machine(map: &MachineMap) -> Sized {
    let of_cpu = |cpu: u32| -> Vec<PlacedRank> {
        let ranks = map.ranks_here.iter();
        ranks
            .filter(|rank| rank.cpu == Some(cpu))
            .cloned()
            .collect()
    };
    let has_ranks = !map.ranks_here.is_empty();
    let last = map.root.processors().iter().filter_map(|cpu| cpu.cpu).max();
    let digits = last.unwrap_or(0).to_string().len().max(2);
    let chip = if has_ranks { CHIP.0 } else { 0.0 };
    let cells = CpuCells {
        has_ranks,
        width: chip.max(digits as f64 * CHARACTER) + 2.0 * MARGIN,
        of_cpu: &of_cpu,
    };
    let mut sized = match &map.why {
        Some(why) => frame(
            ObjectClass::Group,
            vec![why.clone()],
            Vec::new(),
            Vec::new(),
        ),
        None => object(&map.root, &cells),
    };
    let unbound: Vec<PlacedRank> = map
        .ranks_here
        .iter()
        .filter(|rank| rank.cpu.is_none())
        .cloned()
        .collect();
    if !unbound.is_empty() {
        let lines = vec!["not bound".to_owned()];
        let mut ranks = frame(ObjectClass::Unbound, lines, Vec::new(), Vec::new());
        add_chips(&mut ranks, unbound, UNBOUND_COLUMNS);
        let parts = vec![ranks, sized];
        let title = map.host.clone().unwrap_or_else(|| "Host".into());
        sized = stack(ObjectClass::Group, vec![title], parts);
    } else if let Some(host) = &map.host {
        sized = stack(
            ObjectClass::Group,
            vec![format!("host {host}")],
            vec![sized],
        );
    }
    if let (Some(host), Some(first)) = (&map.host, sized.lines.first_mut()) {
        *first = format!("host {host}");
    }
    sized.host.clone_from(&map.host);
    sized
}

fn cut(text: &str) -> String {
    match text.chars().count() > LABEL_MAX {
        true => text
            .chars()
            .take(LABEL_MAX - 1)
            .chain(['\u{2026}'])
            .collect(),
        false => text.to_owned(),
    }
}

/// How the CPUs of one machine are drawn.
struct CpuCells<'a> {
    /// Whether there is room for a rank's mark in each.
    has_ranks: bool,
    /// Width of each.
    width: f64,
    /// Ranks that are bound to a CPU.
    of_cpu: &'a dyn Fn(u32) -> Vec<PlacedRank>,
}

fn object(from: &MachineObject, cells: &CpuCells<'_>) -> Sized {
    if let Some(cpu) = from.cpu {
        let mut own = frame(
            ObjectClass::Cpu,
            vec![cpu.to_string()],
            Vec::new(),
            Vec::new(),
        );
        own.usable = from.usable != Some(false);
        own.details = std::iter::once(from.label.clone())
            .chain(from.details.iter().cloned())
            .collect();
        own.width = cells.width;
        if cells.has_ranks {
            let ranks = (cells.of_cpu)(cpu);
            own.height += if ranks.is_empty() {
                CHIP.1 + CHIP_GAP
            } else {
                0.0
            };
            add_chips(&mut own, ranks, 1);
        }
        return own;
    }
    let chain = from.chain();
    let last = chain.last().copied().unwrap_or(from);
    let mut details: Vec<String> = Vec::new();
    if !from.cpus.is_empty() {
        details.push(format!("CPUs {}", from.cpus));
    }
    chain
        .iter()
        .for_each(|part| details.extend(part.details.iter().cloned()));
    let lines = chain.iter().map(|part| cut(&part.label)).collect();
    let part = |child: &MachineObject| object(child, cells);
    let memory = last
        .attached()
        .filter(|child| child.class == ObjectClass::Memory);
    let memory: Vec<Sized> = memory.map(part).collect();
    let mut inside: Vec<Sized> = last.structure().map(part).collect();
    equalise(&mut inside);
    let devices = last
        .attached()
        .filter(|child| child.class != ObjectClass::Memory);
    let devices: Vec<Sized> = devices.map(part).collect();
    let mut sized = rows(from.class, lines, [memory, inside, devices]);
    sized.details = details;
    sized
}

/// Gives boxes that are nearly of one size the largest one, so that equal things look equal.
fn equalise(parts: &mut [Sized]) {
    const NEAR: f64 = 0.6;
    let most = |of: fn(&Sized) -> f64| parts.iter().map(of).fold(0.0, f64::max);
    let (width, height) = (most(|part| part.width), most(|part| part.height));
    let is_near = |part: &Sized| part.width >= NEAR * width && part.height >= NEAR * height;
    if parts.iter().all(is_near) {
        for part in parts {
            (part.width, part.height) = (width, height);
        }
    }
}

/// An empty or filled frame with these lines.
fn frame(class: ObjectClass, lines: Vec<String>, details: Vec<String>, parts: Vec<Sized>) -> Sized {
    let mut sized = rows(class, lines, [Vec::new(), parts, Vec::new()]);
    sized.details = details;
    sized
}

/// A frame around boxes that lie below each other.
fn stack(class: ObjectClass, lines: Vec<String>, parts: Vec<Sized>) -> Sized {
    let mut parts = parts.into_iter();
    let above = parts.next().into_iter().collect();
    rows(class, lines, [above, parts.collect(), Vec::new()])
}

/// A frame around three groups of boxes, one below the other.
fn rows(class: ObjectClass, lines: Vec<String>, groups: [Vec<Sized>; 3]) -> Sized {
    let text = lines.iter().map(|line| line.chars().count()).max();
    let mut width = text.unwrap_or(0) as f64 * CHARACTER + 2.0 * MARGIN;
    let mut height = MARGIN + LINE * lines.len() as f64;
    let mut parts = Vec::new();
    // What computes decides how wide the others' rows are.
    let target = groups.iter().map(|group| wanted_width(group));
    let target = target.fold(width, f64::max);
    for group in groups {
        let (group_width, group_height, placed) = shelves(group, target);
        for (x, y, part) in placed {
            parts.push((MARGIN + x, height + y, part));
        }
        width = width.max(group_width + MARGIN);
        height += group_height;
    }
    Sized {
        class,
        lines,
        usable: true,
        width,
        height: height + MARGIN,
        parts,
        ..Sized::default()
    }
}

/// Width of the rows of some boxes: a landscape about twice as wide as high.
fn wanted_width(boxes: &[Sized]) -> f64 {
    let widest = boxes.iter().map(|part| part.width).fold(0.0, f64::max);
    let heights = boxes.iter().map(|part| part.height).fold(0.0, f64::max);
    let is_equal = boxes
        .iter()
        .all(|part| part.width == widest && part.height == heights);
    if is_equal && !boxes.is_empty() {
        return columns(boxes.len(), (widest, heights)) as f64 * (widest + MARGIN);
    }
    let area: f64 = boxes
        .iter()
        .map(|part| (part.width + MARGIN) * (part.height + MARGIN))
        .sum();
    (2.0 * area).sqrt().max(widest + MARGIN)
}

/// Returns how many of `count` equal boxes to put side by side: so that rows are full, where a
/// number of columns near the ideal one allows it.
fn columns(count: usize, (width, height): (f64, f64)) -> usize {
    let ideal = (2.0 * count as f64 * height / width.max(1.0)).sqrt();
    let full = (1..=count).filter(|columns| count.is_multiple_of(*columns));
    let near = full.filter(|columns| {
        let ratio = *columns as f64 / ideal;
        (0.6..=1.7).contains(&ratio)
    });
    let distance = |columns: &usize| (*columns as f64 / ideal).ln().abs();
    let best = near.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    best.unwrap_or_else(|| (ideal.round() as usize).clamp(1, count.max(1)))
}

/// Puts boxes side by side, a new row where one would go beyond the width.
fn shelves(boxes: Vec<Sized>, width: f64) -> (f64, f64, Vec<(f64, f64, Sized)>) {
    let mut placed: Vec<(f64, f64, Sized)> = Vec::new();
    let (mut x, mut y, mut row, mut right) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for part in boxes {
        if x > 0.0 && x + part.width > width + 0.5 {
            y += row + MARGIN;
            (x, row) = (0.0, 0.0);
        }
        let (part_width, part_height) = (part.width, part.height);
        placed.push((x, y, part));
        x += part_width + MARGIN;
        right = right.max(x);
        row = row.max(part_height);
    }
    let height = if placed.is_empty() {
        0.0
    } else {
        y + row + MARGIN
    };
    (right, height, placed)
}

/// Adds marks of ranks below the text of a box.
fn add_chips(sized: &mut Sized, ranks: Vec<PlacedRank>, columns: usize) {
    let top = sized.height;
    let count = ranks.len();
    for (index, rank) in ranks.into_iter().enumerate() {
        let x = MARGIN + (index % columns) as f64 * (CHIP.0 + CHIP_GAP);
        let y = top + (index / columns) as f64 * (CHIP.1 + CHIP_GAP) - CHIP_GAP;
        sized.chips.push((x, y, rank));
    }
    let rows = count.div_ceil(columns) as f64;
    sized.height += rows * (CHIP.1 + CHIP_GAP);
    let widest = count.min(columns) as f64 * (CHIP.0 + CHIP_GAP);
    sized.width = sized.width.max(widest + 2.0 * MARGIN);
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
    use super::super::machine::tests::{core, object};
    use super::*;

    /// No box leaves the one around it or meets a sibling; no text is wider than its box.
    fn check(drawing: &Drawing) {
        let boxes = &drawing.boxes;
        for (number, inner) in boxes.iter().enumerate() {
            let text = inner.lines.iter().map(|line| line.chars().count()).max();
            let text = text.unwrap_or(0) as f64 * CHARACTER;
            assert!(text <= inner.width, "{inner:?}");
            let Some(parent) = inner.parent else { continue };
            let outer = &boxes[parent];
            assert!(parent < number);
            assert!(
                inner.x >= outer.x && inner.x + inner.width <= outer.x + outer.width,
                "{inner:?} {outer:?}"
            );
            let top = outer.y + LINE * outer.lines.len() as f64;
            assert!(
                inner.y >= top && inner.y + inner.height <= outer.y + outer.height,
                "{inner:?} {outer:?}"
            );
            for other in boxes[..number]
                .iter()
                .filter(|other| other.parent == inner.parent)
            {
                let apart = inner.x >= other.x + other.width
                    || other.x >= inner.x + inner.width
                    || inner.y >= other.y + other.height
                    || other.y >= inner.y + inner.height;
                assert!(apart, "{inner:?} {other:?}");
            }
        }
        for chip in &drawing.chips {
            let is_inside = |area: &PlacedBox| {
                chip.x >= area.x
                    && chip.y >= area.y + LINE
                    && chip.x + chip.width <= area.x + area.width
                    && chip.y + chip.height <= area.y + area.height
            };
            let around = boxes.iter().rev().find(|area| is_inside(area)).unwrap();
            assert!(["cpu", "unbound"].contains(&around.class), "{around:?}");
        }
    }

    fn rank(rank: u32, cpu: Option<u32>) -> PlacedRank {
        PlacedRank {
            rank,
            cpu,
            ..PlacedRank::default()
        }
    }

    /// A machine of so many packages and cores of two CPUs.
    fn machine(packages: u32, cores: u32) -> MachineMap {
        let packages = (0..packages).map(|package| {
            let first = package * cores;
            let cores = (first..first + cores).map(|at| core(&[2 * at, 2 * at + 1]));
            let mut inside = object(ObjectClass::Group, "package", cores.collect());
            inside.children.insert(
                0,
                object(ObjectClass::Memory, "NUMA node 0, 64 GiB", Vec::new()),
            );
            inside
                .children
                .push(object(ObjectClass::Network, "network eth0", Vec::new()));
            inside
        });
        MachineMap {
            root: object(ObjectClass::Group, "Machine", packages.collect()),
            ..MachineMap::default()
        }
    }

    #[test]
    fn parts_lie_within_what_is_around_them_and_beside_each_other() {
        for (packages, cores) in [(1, 1), (2, 7), (4, 16), (24, 8), (2, 192)] {
            let mut map = machine(packages, cores);
            check(&of_machine(&map));
            map.host = Some("a-host-with-a-name".into());
            map.ranks_here = vec![rank(0, Some(0)), rank(1, Some(1)), rank(2, Some(1))];
            map.ranks_here
                .extend((3..40).map(|number| rank(number, None)));
            let drawing = of_machine(&map);
            check(&drawing);
            assert_eq!(drawing.chips.len(), 40);
            let hosts = of_hosts("job", &[map.clone(), map]);
            check(&hosts);
            assert_eq!(
                hosts
                    .boxes
                    .iter()
                    .filter(|area| area.class == "cpu")
                    .count(),
                4 * (packages * cores) as usize
            );
        }
    }

    #[test]
    fn three_hundred_and_eighty_four_cores_are_a_landscape_that_fits_a_large_screen() {
        let drawing = of_machine(&machine(2, 192));
        let ratio = drawing.width / drawing.height;
        assert!(
            (0.8..4.0).contains(&ratio) && drawing.width < 4000.0,
            "{} x {}",
            drawing.width,
            drawing.height
        );
    }

    #[test]
    fn messages_are_lines_between_ranks_that_are_drawn() {
        let mut map = machine(1, 4);
        map.ranks_here = vec![rank(0, Some(0)), rank(1, Some(5))];
        let mut drawing = of_machine(&map);
        let link = |from, to, bytes| TrafficLink {
            from,
            to,
            messages: 1,
            bytes,
        };
        drawing.connect(&[
            link(0, 1, 1000),
            link(1, 0, 10),
            link(0, 0, 5),
            link(0, 7, 5),
        ]);
        let drawn: Vec<_> = drawing
            .links
            .iter()
            .map(|drawn| (drawn.link.from, drawn.link.to))
            .collect();
        assert_eq!(drawn, [(0, 1), (1, 0)]);
        assert!(drawing.links[0].stroke > drawing.links[1].stroke);
        assert_ne!(drawing.links[0].path, drawing.links[1].path);
    }

    #[test]
    fn a_host_that_says_nothing_is_drawn_with_the_reason() {
        let silent = MachineMap {
            host: Some("b".into()),
            why: Some("it does not answer".into()),
            ..MachineMap::default()
        };
        let drawing = of_hosts("job", &[machine(1, 1), silent]);
        check(&drawing);
        let lines: Vec<_> = drawing
            .boxes
            .iter()
            .flat_map(|area| area.lines.clone())
            .collect();
        assert!(
            lines.contains(&"host b".to_owned())
                && lines.contains(&"it does not answer".to_owned()),
            "{lines:?}"
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
