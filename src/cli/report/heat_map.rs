//! A heat map as SVG: darker is more, and every cell contains its number.

use plotters::{
    prelude::{
        ChartBuilder, Color, EmptyElement, IntoFont, PathElement, RGBColor, Rectangle, ShapeStyle, Text,
        TextStyle, WHITE,
    },
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::cli::error::Failure;

use super::chart::{FONT, INK, svg};

/// Pixels of a cell.
const CELL: (u32, u32) = (46, 26);
/// Margins in pixels: left of the cells, below them, and on the other sides.
const LEFT: u32 = 56;
const BELOW: u32 = 46;
const MARGIN: u32 = 10;
/// Colour of the largest number; the smallest is white.
const DARK: RGBColor = RGBColor(16, 42, 92);

/// A heat map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HeatMap {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) columns: Vec<u32>,
    pub(super) rows: Vec<u32>,
    pub(super) cells: Vec<HeatCell>,
    /// The numbers of the lightest and the darkest cell.
    pub(super) range: (f64, f64),
}

/// One number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HeatCell {
    pub(super) column: u32,
    pub(super) row: u32,
    pub(super) value: f64,
    /// Whether it has a frame.
    pub(super) marked: bool,
}

/// The map as an SVG document; rows ascend upwards.
///
/// # Errors
/// As [`svg`].
pub(super) fn heat_map(map: &HeatMap) -> Result<String, Failure> {
    let HeatMap { x, y, columns, rows, cells, range: (least, most) } = map;
    let count = |labels: &[u32]| u32::try_from(labels.len()).expect("axes are short").max(1);
    let (across, up) = (count(columns), count(rows));
    let size = (LEFT + across * CELL.0 + 2 * MARGIN, BELOW + up * CELL.1 + 2 * MARGIN);
    let place = |labels: &[u32], label: u32| labels.iter().position(|other| *other == label).map(to_i32);
    // A name that is longer than its axis would be cut.
    let name = |whole: &'static str, cells: u32, enough: u32| match cells < enough {
        true => whole.split(',').next().unwrap_or(whole),
        false => whole,
    };
    let (x, y) = (name(x, across, 5), name(y, up, 3));
    svg(size, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0..to_i32(across as usize), 0..to_i32(up as usize))?;
        let (width, height) = (CELL.0 as i32, CELL.1 as i32);
        let label = |labels: &[u32], place: i32| {
            let label = usize::try_from(place).ok().and_then(|place| labels.get(place));
            label.map_or(String::new(), u32::to_string)
        };
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(x)
            .y_desc(y)
            .x_labels(columns.len() + 1)
            .y_labels(rows.len() + 1)
            .x_label_offset(width / 2)
            .y_label_offset(-height / 2)
            .x_label_formatter(&|place| label(columns, *place))
            .y_label_formatter(&|place| label(rows, *place))
            .label_style((FONT, 14))
            .draw()?;
        for HeatCell { column, row, value, marked } in cells {
            let Some((i, j)) = place(columns, *column).zip(place(rows, *row)) else { continue };
            let share = ((value - least) / (most - least).max(1e-9)).clamp(0.0, 1.0);
            let corners = [(i, j), (i + 1, j + 1)];
            let fill = Rectangle::new(corners, DARK.mix(0.05 + 0.95 * share).filled());
            let ink = if share > 0.45 { WHITE } else { INK };
            let centre = Pos::new(HPos::Center, VPos::Center);
            let style = TextStyle::from((FONT, 14).into_font()).color(&ink).pos(centre);
            let number = Text::new(format!("{value:.2}"), (width / 2, height / 2), style);
            chart.draw_series([fill])?;
            chart.draw_series([EmptyElement::at((i, j + 1)) + number])?;
            if *marked {
                // Two frames, dark and light, which stand out from any cell.
                let (right, bottom) = (width - 3, height - 3);
                let corners = vec![(3, 3), (right, 3), (right, bottom), (3, bottom), (3, 3)];
                let line = |colour: &RGBColor, width| {
                    PathElement::new(corners.clone(), ShapeStyle::from(colour).stroke_width(width))
                };
                let (halo, frame) = (line(&INK, 6), line(&WHITE, 3));
                chart.draw_series([EmptyElement::at((i, j + 1)) + halo + frame])?;
            }
        }
        Ok(())
    })
}

fn to_i32(count: usize) -> i32 {
    i32::try_from(count).expect("axes are short")
}
