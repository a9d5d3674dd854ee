//! A model of memory as an SVG drawing: a plot for each distance and operation, and one of
//! predictions beside what was measured.

use garonne_memory_model::model::Operation;
use garonne_memory_model::{CacheState, MemoryModel};
use svg::Document;
use svg::node::element::{Circle, Group, Line, Polyline, Rectangle, Text, Title};

use super::text::short;
use super::{of_kernels, of_transfers};

/// Size of a plot with its margins, and of what is inside.
const PLOT: (f64, f64) = (420.0, 300.0);
const INSIDE: (f64, f64) = (330.0, 210.0);
/// From the corner of a plot to what is inside.
const CORNER: (f64, f64) = (60.0, 40.0);
/// Width of the legend.
const LEGEND: f64 = 190.0;

/// A colour for each state, told apart also by readers who do not see red beside green.
fn colour(state: CacheState) -> &'static str {
    match state {
        CacheState::OwnModified => "#0072b2",
        CacheState::OwnExclusive => "#56b4e9",
        CacheState::Shared => "#009e73",
        CacheState::OtherModified => "#d55e00",
        CacheState::OtherExclusive => "#e69f00",
        CacheState::Invalid => "#000000",
    }
}

/// The two ends of an axis of logarithms.
#[derive(Clone, Copy)]
struct LogAxis {
    least: f64,
    most: f64,
}

impl LogAxis {
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values
            .filter(|value| *value > 0.0 && value.is_finite())
            .map(f64::log2)
        {
            least = least.min(value.floor());
            most = most.max(value.ceil());
        }
        match least <= most {
            true => Self {
                least,
                most: most.max(least + 1.0),
            },
            false => Self {
                least: 0.0,
                most: 1.0,
            },
        }
    }

    /// Place of a value between 0 and 1.
    fn place(self, value: f64) -> f64 {
        (value.max(f64::MIN_POSITIVE).log2() - self.least) / (self.most - self.least)
    }

    /// Powers of two that are written beside the axis: about six.
    fn marks(self) -> impl Iterator<Item = f64> {
        let step = ((self.most - self.least) / 6.0).ceil().max(1.0) as usize;
        (self.least as i32..=self.most as i32)
            .step_by(step)
            .map(|power| f64::from(power).exp2())
    }
}

/// One plot: frame, axes and title.
struct Plot {
    at: (f64, f64),
    x: LogAxis,
    y: LogAxis,
}

impl Plot {
    fn point(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            self.at.0 + CORNER.0 + INSIDE.0 * self.x.place(x),
            self.at.1 + CORNER.1 + INSIDE.1 * (1.0 - self.y.place(y)),
        )
    }

    fn frame(
        &self,
        title: &str,
        x_marks: impl Fn(f64) -> String,
        y_marks: impl Fn(f64) -> String,
    ) -> Group {
        let (left, top) = (self.at.0 + CORNER.0, self.at.1 + CORNER.1);
        let text = |words: String, x: f64, y: f64, anchor: &str| {
            Text::new(words)
                .set("x", x)
                .set("y", y)
                .set("text-anchor", anchor.to_owned())
        };
        let mut group = Group::new()
            .set("class", "plot")
            .add(text(title.to_owned(), left, self.at.1 + 24.0, "start").set("font-weight", "bold"))
            .add(
                Rectangle::new()
                    .set("x", left)
                    .set("y", top)
                    .set("width", INSIDE.0)
                    .set("height", INSIDE.1)
                    .set("fill", "none")
                    .set("stroke", "#6b7280"),
            );
        for mark in self.x.marks() {
            let (x, _) = self.point((mark, self.y.least.exp2()));
            group = group.add(text(x_marks(mark), x, top + INSIDE.1 + 16.0, "middle"));
        }
        for mark in self.y.marks() {
            let (_, y) = self.point((self.x.least.exp2(), mark));
            let line = Line::new()
                .set("x1", left)
                .set("x2", left + INSIDE.0)
                .set("y1", y)
                .set("y2", y)
                .set("stroke", "#e5e7eb");
            group = group
                .add(line)
                .add(text(y_marks(mark), left - 6.0, y + 4.0, "end"));
        }
        group
    }
}

/// The whole drawing.
pub fn document(model: &MemoryModel) -> Document {
    let rows = model.distances.len() + 1;
    let columns = Operation::ALL.len();
    let (width, height) = (LEGEND + PLOT.0 * columns as f64, PLOT.1 * rows as f64);
    let mut document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "DejaVu Sans, sans-serif")
        .set("font-size", 11)
        .add(
            Rectangle::new()
                .set("width", width)
                .set("height", height)
                .set("fill", "#ffffff"),
        );
    for (row, distance) in model.distances.iter().enumerate() {
        for (column, operation) in Operation::ALL.into_iter().enumerate() {
            let at = (PLOT.0 * column as f64, PLOT.1 * row as f64);
            let curves = CacheState::ALL
                .into_iter()
                .filter_map(|state| Some((state, distance.curve(operation, state)?)));
            let curves: Vec<_> = curves.collect();
            let points = || curves.iter().flat_map(|(_, curve)| curve.points());
            let plot = Plot {
                at,
                x: LogAxis::over(points().map(|point| point.bytes as f64)),
                y: LogAxis::over(points().map(|point| point.bytes as f64 / point.ns)),
            };
            let title = format!("{} ({}), bytes per ns", operation.name(), distance.distance);
            document = document.add(plot.frame(
                &title,
                |bytes| short(bytes as u64),
                |rate| rate.to_string(),
            ));
            for (state, curve) in curves {
                let line = curve.points().iter().map(|point| {
                    let (x, y) = plot.point((point.bytes as f64, point.bytes as f64 / point.ns));
                    format!("{x:.1},{y:.1}")
                });
                let line = line.collect::<Vec<_>>().join(" ");
                document = document.add(
                    Polyline::new()
                        .set("class", "curve")
                        .set("points", line)
                        .set("fill", "none")
                        .set("stroke", colour(state))
                        .set("stroke-width", 2)
                        .add(Title::new(state.name())),
                );
            }
        }
    }
    document = document.add(legend(PLOT.0 * columns as f64));
    document.add(predictions(model, (0.0, PLOT.1 * (rows - 1) as f64)))
}

fn legend(left: f64) -> Group {
    let mut group = Group::new().set("class", "legend");
    for (index, state) in CacheState::ALL.into_iter().enumerate() {
        let y = 50.0 + 18.0 * index as f64;
        let line = Line::new()
            .set("x1", left)
            .set("x2", left + 24.0)
            .set("y1", y)
            .set("y2", y);
        group = group
            .add(line.set("stroke", colour(state)).set("stroke-width", 2))
            .add(
                Text::new(state.name())
                    .set("x", left + 30.0)
                    .set("y", y + 4.0),
            );
    }
    group
}

/// Predicted times by measured ones: on the line both are equal.
fn predictions(model: &MemoryModel, at: (f64, f64)) -> Group {
    let kinds = [
        (
            "kernels",
            "#0072b2",
            of_kernels(&model.kernels).collect::<Vec<_>>(),
        ),
        (
            "short messages",
            "#d55e00",
            of_transfers(&model.eager).collect(),
        ),
        (
            "large messages",
            "#009e73",
            of_transfers(&model.large).collect(),
        ),
    ];
    let both = || {
        kinds
            .iter()
            .flat_map(|(_, _, pairs)| pairs)
            .flat_map(|pair| [pair.0, pair.1])
    };
    let axis = LogAxis::over(both());
    let plot = Plot {
        at,
        x: axis,
        y: axis,
    };
    let mark = |ns: f64| match ns {
        ..1000.0 => format!("{ns} ns"),
        _ => format!("{:.0} us", ns / 1000.0),
    };
    let (from, to) = (
        plot.point((axis.least.exp2(), axis.least.exp2())),
        plot.point((axis.most.exp2(), axis.most.exp2())),
    );
    let equal = Line::new()
        .set("x1", from.0)
        .set("y1", from.1)
        .set("x2", to.0)
        .set("y2", to.1)
        .set("stroke", "#9ca3af");
    let mut group = plot
        .frame("predicted (up) and measured (right)", mark, mark)
        .add(equal);
    for (index, (name, colour, pairs)) in kinds.iter().enumerate() {
        let name_at = (at.0 + PLOT.0, at.1 + 50.0 + 18.0 * index as f64);
        group = group
            .add(
                Circle::new()
                    .set("cx", name_at.0)
                    .set("cy", name_at.1 - 4.0)
                    .set("r", 3)
                    .set("fill", *colour),
            )
            .add(
                Text::new(*name)
                    .set("x", name_at.0 + 10.0)
                    .set("y", name_at.1),
            );
        for pair in pairs {
            let (x, y) = plot.point(*pair);
            group = group.add(
                Circle::new()
                    .set("class", "prediction")
                    .set("cx", x)
                    .set("cy", y)
                    .set("r", 3)
                    .set("fill", *colour),
            );
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_without_anything_is_drawn_as_empty_axes() {
        let model = MemoryModel::new("a machine".into(), Vec::new(), Vec::new());
        let text = document(&model).to_string();
        assert!(
            text.starts_with("<svg") && !text.contains("NaN") && !text.contains("inf"),
            "{text}"
        );
    }

    #[test]
    fn axes_have_about_six_marks() {
        for (least, most) in [(1024.0, 16e6), (3.0, 4.0), (1.0, 1e12)] {
            let count = LogAxis::over([least, most].into_iter()).marks().count();
            assert!((2..=8).contains(&count), "{least} {most}: {count}");
        }
    }
}
