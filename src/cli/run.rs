//! `yggc run`: answers a prompt with streamed text or one JSON object; without a prompt, a chat.

use yggc::engine::{Engine, Message, Options, Prompt, Request, Role};

use crate::cli::{
    args::RunArgs,
    cache::CachePlace,
    chat,
    error::Failure,
    fetch, loading, ngram_state, output, planning,
    settings::{self, Machine},
    skip_state, stats,
    stream::stream,
};

/// Runs `yggc run`.
pub(crate) fn command(args: &RunArgs, cache: &CachePlace) -> Result<(), Failure> {
    let prompt = settings::prompt(args)?;
    let machine = Machine::new(&args.device)?;
    let given = args.plan.as_deref().map(|file| planning::given(file, args.force)).transpose()?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let model = loading::open(&path, cache)?;
    let options = Options {
        drafter: settings::drafter(args),
        store: args.store.store.clone(),
        draft_model: fetch::resolve_drafter(args.draft_model.as_deref(), cache)?,
        ..machine.options(&path, args.context.context)
    };
    let options = settings::with_skip(&args.skip, options);
    let (prepared, options) = planning::with_plan(model, options, given, machine, cache)?;
    let mut engine = prepared.engine(&options)?;
    if let Some(file) = &args.skip_state {
        skip_state::resume(&mut engine, file)?;
    }
    if let Some(file) = &args.ngram_state {
        ngram_state::resume(&mut engine, file)?;
    }
    answer(&mut engine, args, prompt)?;
    args.skip_state.as_deref().map_or(Ok(()), |file| skip_state::keep(&mut engine, file))?;
    args.ngram_state.as_deref().map_or(Ok(()), |file| ngram_state::keep(&mut engine, file))
}

/// Answers the prompt, or chats without one.
fn answer(engine: &mut Engine, args: &RunArgs, prompt: Option<String>) -> Result<(), Failure> {
    if args.stats {
        output::remark(stats::memory(engine.memory()));
    }
    let Some(text) = prompt else { return chat::command(engine, args) };
    let prompt =
        if args.raw { Prompt::Raw(text) } else { Prompt::Chat(vec![Message::new(Role::User, text)]) };
    let sampling = settings::sampling(&args.sampling);
    let request = Request { max_tokens: args.max_tokens, sampling, ..Request::new(prompt) };
    let report = if args.json {
        let answer = engine.generate(&request)?.collect_answer()?;
        output::json(&stats::AnswerJson::new(&answer))?;
        answer.report
    } else {
        let (_, report) = stream(engine, &request, |_| {})?;
        output::text("\n")?;
        report
    };
    if args.stats {
        output::remark(stats::table(&report).trim_end());
    }
    Ok(())
}
