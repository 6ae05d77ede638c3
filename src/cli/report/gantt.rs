//! The stages of a step over time.

use plotters::{
    prelude::{
        ChartBuilder, EmptyElement, IntoFont, PathElement, RGBColor, Rectangle, ShapeStyle, Text, TextStyle,
        WHITE,
    },
    style::{
        Color,
        text_anchor::{HPos, Pos, VPos},
    },
};
use ygg_profiler::{Stage, StepStage};
use yggc::{
    plan::{Plan, SubPlan},
    planner::{
        TimeSpan,
        report::{notable_stages, reads},
    },
};

use crate::cli::error::Failure;

use super::{
    chart::{FONT, INK, svg, tick},
    page::Page,
};

const WIDTH: u32 = 720;
const ROW: u32 = 30;
/// Space above and below a bar.
const PADDING: u32 = 4;
const LEFT: u32 = 150;
const BELOW: u32 = 46;
const MARGIN: u32 = 12;
const GREY: RGBColor = RGBColor(130, 130, 130);

/// One stage of a step.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    name: String,
    start_us: f64,
    us: f64,
    colour: RGBColor,
}

/// Adds a figure of the predicted step of a sub-plan: stages in a row, each as long as the time that it adds to the
/// step, and what is read meanwhile.
///
/// # Errors
/// [`Failure::Internal`] if it cannot be drawn.
pub(super) fn step(page: &mut Page, plan: &Plan, sub_plan: &SubPlan) -> Result<(), Failure> {
    let predicted = &sub_plan.first().predicted;
    page.paragraph(format_args!(
        "A step of {} takes {:.0} us and gives {:.2} tokens (predicted). Stages are drawn one after the other, each \
         with the time that it adds to those with which it overlaps; where a step chooses its rows, the times are \
         means over the steps replayed.",
        sub_plan.name, predicted.step_us, predicted.aal
    ));
    let svg = draw(&bars(plan, sub_plan))?;
    page.figure("Stages of the chosen step (predicted)", &svg);
    Ok(())
}

/// Stages that take a notable share of the step in their order, the others together after them, then what is read.
fn bars(plan: &Plan, sub_plan: &SubPlan) -> Vec<Bar> {
    let (stages, others, others_us) = notable_stages(sub_plan);
    let mut bars = Vec::new();
    let mut push = |name: String, us: f64, colour: RGBColor| {
        let start_us = bars.last().map_or(0.0, |bar: &Bar| bar.start_us + bar.us);
        bars.push(Bar { name, start_us, us, colour });
    };
    for (stage, us) in stages {
        let colour = match stage {
            Stage::Host(_) => GREY,
            forward if forward.of_step() == StepStage::Draft => RGBColor(201, 84, 18),
            _ => RGBColor(16, 42, 92),
        };
        push(stage.to_string(), us, colour);
    }
    if others > 0 {
        push(format!("{others} others"), others_us, GREY);
    }
    let reading = |span: TimeSpan| {
        let (start_us, us) = (span.start_us, span.end_us - span.start_us);
        Bar { name: "meanwhile read".to_owned(), start_us, us, colour: RGBColor(36, 120, 70) }
    };
    bars.extend(reads(plan, sub_plan).into_iter().map(reading));
    bars
}

fn draw(bars: &[Bar]) -> Result<String, Failure> {
    let count = i32::try_from(bars.len()).expect("a step has few stages");
    let end_us = bars.iter().map(|bar| bar.start_us + bar.us).fold(0.0, f64::max).max(1e-9);
    let height = ROW * bars.len().max(1) as u32 + BELOW + 2 * MARGIN;
    svg((WIDTH, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..end_us * 1.15, 0..count.max(1))?;
        // The first stage is on top.
        let name = |row: &i32| {
            let bar = usize::try_from(count - 1 - row).ok().and_then(|place| bars.get(place));
            bar.map_or(String::new(), |bar| bar.name.clone())
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .max_light_lines(1)
            .x_desc("time from the start of the step, us")
            .y_labels(bars.len() + 1)
            .y_label_offset(-(ROW as i32) / 2)
            .x_label_formatter(&tick)
            .y_label_formatter(&name)
            .label_style((FONT, 14))
            .draw()?;
        for (row, Bar { start_us, us, colour, name: _ }) in (0..count).rev().zip(bars) {
            let mut bar = Rectangle::new([(*start_us, row), (start_us + us, row + 1)], colour.filled());
            bar.set_margin(PADDING, PADDING, 0, 0);
            chart.draw_series([bar])?;
            // The edge marks stages that are too short to be seen.
            let ends = vec![(0, PADDING as i32), (0, (ROW - PADDING) as i32)];
            let edge = PathElement::new(ends, ShapeStyle::from(colour).stroke_width(2));
            chart.draw_series([EmptyElement::at((*start_us, row + 1)) + edge])?;
            let style =
                TextStyle::from((FONT, 14).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
            let number = Text::new(format!("{us:.0} us"), (5, ROW as i32 / 2), style);
            chart.draw_series([EmptyElement::at((start_us + us, row + 1)) + number])?;
        }
        Ok(())
    })
}
