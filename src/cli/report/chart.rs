//! Curves over a numeric axis as SVG, distinguished by markers as well as by colour.

use plotters::{
    coord::Shift,
    prelude::{
        ChartBuilder, Circle, Cross, DrawingArea, EmptyElement, IntoDrawingArea, LineSeries, PathElement,
        RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, ShapeStyle, TriangleMarker, WHITE,
    },
    style::Color,
};

use crate::cli::error::Failure;

pub(super) const FONT: &str = "sans-serif";
pub(super) const INK: RGBColor = RGBColor(26, 26, 26);
const GRID: RGBColor = RGBColor(225, 225, 225);
const SIZE: (u32, u32) = (720, 380);
/// Colours of clearly different lightness, so that they differ in grey.
const COLOURS: [RGBColor; 4] =
    [RGBColor(16, 42, 92), RGBColor(201, 84, 18), RGBColor(30, 130, 90), RGBColor(150, 150, 150)];
/// The marker of each colour, for the legend.
const MARKERS: [char; 4] = ['\u{25cf}', '\u{25b2}', '\u{2715}', '\u{25a0}'];
/// Pixels from the middle of a marker to its ends.
const MARKER: i32 = 5;

/// An error of drawing.
pub(super) type DrawError = Box<dyn std::error::Error + Send + Sync>;

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) points: Vec<CurvePoint>,
}

/// A point with the ends of its spread, which are equal to its height where no spread is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CurvePoint {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl CurvePoint {
    pub(super) fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

/// The axes of a chart; names carry units.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// An SVG document of `size` pixels with the output of `draw` on white.
///
/// # Errors
/// [`Failure::Internal`] if it cannot be drawn.
pub(super) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), DrawError>,
) -> Result<String, Failure> {
    let mut out = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        area.fill(&WHITE)
            .map_err(DrawError::from)
            .and_then(|()| draw(&area))
            .and_then(|()| area.present().map_err(DrawError::from))
    };
    drawn.map_err(|error| Failure::Internal(format!("a figure of the report cannot be drawn: {error}")))?;
    Ok(compact(&out))
}

/// The same drawing without what every element repeats: the page's style sheet names the font.
fn compact(svg: &str) -> String {
    let without =
        [" opacity=\"1\"", " font-family=\"sans-serif\"", " stroke=\"none\"", " stroke-width=\"1\""];
    let svg = without.iter().fold(svg.to_owned(), |svg, part| svg.replace(part, ""));
    let svg = svg.replace(">\n", ">").replace("\n<", "<").replace(" \"", "\"");
    let mut parts = svg.split("font-size=\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (size, rest) = part.split_once('"').unwrap_or((part, ""));
        let size = size.parse::<f64>().map_or_else(|_| size.to_owned(), |size| format!("{size:.1}"));
        out.push_str(&format!("font-size=\"{size}\"{rest}"));
    }
    out
}

/// The curves with their spreads as one chart.
///
/// # Errors
/// As [`svg`].
pub(super) fn curves(axes: Axes<'_>, curves: &[Curve]) -> Result<String, Failure> {
    svg(SIZE, |area| {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let right = points().map(|point| point.x).fold(0.0, f64::max).max(1e-9);
        let top = (points().map(|point| point.high).fold(0.0, f64::max) * 1.05).max(1e-9);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right * 1.02, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(axes.x)
            .y_desc(axes.y)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .label_style((FONT, 15))
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .max_light_lines(1)
            .draw()?;
        for (place, Curve { label, points }) in curves.iter().enumerate() {
            let style = ShapeStyle::from(&COLOURS[place % COLOURS.len()]).stroke_width(2);
            let line = LineSeries::new(points.iter().map(|point| (point.x, point.y)), style);
            let marker = MARKERS[place % MARKERS.len()];
            chart
                .draw_series(line)?
                .label(format!("{marker} {label}"))
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
            let spreads = points.iter().filter(|point| point.low < point.high);
            chart
                .draw_series(spreads.map(|point| {
                    PathElement::new(vec![(point.x, point.low), (point.x, point.high)], style)
                }))?;
            let filled = style.filled();
            for CurvePoint { x, y, .. } in points {
                let at = EmptyElement::at((*x, *y));
                // Markers distinguish curves as well as colours do.
                match place % 4 {
                    0 => chart.draw_series([at + Circle::new((0, 0), MARKER, filled)])?,
                    1 => chart.draw_series([at + TriangleMarker::new((0, 0), MARKER + 1, filled)])?,
                    2 => chart.draw_series([at + Cross::new((0, 0), MARKER, style)])?,
                    _ => {
                        let corners = [(-MARKER, -MARKER), (MARKER, MARKER)];
                        chart.draw_series([at + Rectangle::new(corners, filled)])?
                    }
                };
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(GRID)
            .label_font((FONT, 15))
            .draw()?;
        Ok(())
    })
}

/// The label of an axis value, without needless digits.
pub(super) fn tick(number: &f64) -> String {
    ((number * 1e3).round() / 1e3).to_string()
}
