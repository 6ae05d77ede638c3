//! `yggc run`: answers a prompt, as text that streams or as one JSON object; without a prompt, a chat.

use yggc::{
    engine::{DrafterChoice, Engine, Event, Message, Options, PlanSource, Prompt, Report, Request, Role},
    model::Model,
};

use crate::cli::{
    args::RunArgs,
    cache::CachePlace,
    chat,
    error::Failure,
    fetch, output,
    planning::{self, Prepared},
    progress::Progress,
    settings::{self, Machine},
    stats,
};

/// Runs `yggc run`.
pub(crate) fn command(args: &RunArgs, cache: &CachePlace) -> Result<(), Failure> {
    let prompt = settings::prompt(args)?;
    let machine = Machine::new(&args.device)?;
    let given = args.plan.as_deref().map(|file| planning::given(file, args.force)).transpose()?;
    let path = fetch::resolve(args.model.model.as_deref(), || cache.dir(), Progress::OnStderr)?;
    let model = Model::open(&path)?;
    let options =
        Options { drafter: settings::drafter(args), ..machine.options(&path, args.context.context) };
    let (prepared, options) = with_plan(model, options, given, machine, cache)?;
    let mut engine = prepared.engine(&options)?;
    if args.stats {
        output::remark(stats::memory(engine.memory()));
    }
    let sampling = settings::sampling(&args.sampling);
    let Some(text) = prompt else {
        return chat::command(&mut engine, args.max_tokens, sampling, args.stats);
    };
    let prompt =
        if args.raw { Prompt::Raw(text) } else { Prompt::Chat(vec![Message::new(Role::User, text)]) };
    let request = Request { prompt, max_tokens: args.max_tokens, sampling };
    let report = if args.json {
        let answer = engine.generate(&request)?.collect_answer()?;
        output::json(&stats::AnswerJson::new(&answer))?;
        answer.report
    } else {
        let report = stream(&mut engine, &request, |_| {})?;
        output::text("\n")?;
        report
    };
    if args.stats {
        output::remark(stats::table(&report).trim_end());
    }
    Ok(())
}

/// The options with the plan that was given, or with the cached one unless nothing is to be drafted.
fn with_plan(
    model: Model,
    mut options: Options,
    given: Option<PlanSource>,
    machine: Machine,
    cache: &CachePlace,
) -> Result<(Prepared, Options), Failure> {
    if given.is_some() || options.drafter == DrafterChoice::Plain {
        options.plan = given;
        return Ok((Prepared::Open(Box::new(model)), options));
    }
    let (prepared, plan) = planning::first_use(model, machine, cache, Progress::OnStderr)?;
    match plan {
        Ok(plan) => options.plan = Some(plan),
        Err(reason) => options.plan_absent_reason = Some(reason),
    }
    Ok((prepared, options))
}

/// Answers a request, writing text as it comes; `heard` gets every piece as well.
pub(crate) fn stream(
    engine: &mut Engine,
    request: &Request,
    mut heard: impl FnMut(&str),
) -> Result<Report, Failure> {
    let mut end = None;
    for event in engine.generate(request)? {
        let text = match event? {
            Event::Token { text, .. } => text,
            Event::Finished { text, report, .. } => {
                end = Some(*report);
                text
            }
        };
        if !text.is_empty() {
            output::text(&text)?;
            heard(&text);
        }
    }
    end.ok_or_else(|| Failure::Internal("a generation ended without saying so".to_owned()))
}
