//! `yggc run`: answers a prompt with streamed text or one JSON object; without a prompt, a chat.

use yggc::engine::{Engine, Matcher, Message, Options, Prompt, Request, Role};

use crate::cli::{
    args::RunArgs,
    cache::CachePlace,
    chat,
    contents::Remembered,
    drafter_state,
    error::Failure,
    fetch,
    kept_chat::KeptChat,
    loading, output, planning, prefixes,
    settings::{self, Machine},
    stats,
    stream::stream,
};

/// Runs `yggc run`.
pub(crate) fn command(args: &RunArgs, cache: &CachePlace) -> Result<(), Failure> {
    let prompt = settings::prompt(args)?;
    let constraint = settings::constraint(&args.constraint)?;
    let machine = Machine::new(&args.device)?.within_memory(args.memory.memory, args.context.context)?;
    let given = args.plan.as_deref().map(|file| planning::given(file, args.force)).transpose()?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let model = loading::open(&path, cache)?;
    let options = Options {
        drafter: settings::drafter(args),
        store: settings::store(&args.store)?,
        draft_model: fetch::resolve_drafter(args.draft_model.as_deref(), cache)?,
        prefixes: prefixes::store(&args.prefixes, machine, cache)?,
        ..machine.options(&path, args.context.context)
    };
    let options = settings::with_skip(&args.skip, options);
    let remembered = Remembered::new(&model, cache);
    let (prepared, options) = planning::with_plan(model, options, given, machine, cache)?;
    let mut engine = prepared.engine(&options)?;
    remembered.into_iter().for_each(Remembered::watch);
    if let Some(file) = &args.drafter_state {
        drafter_state::resume(&mut engine, file)?;
    }
    // Said before a prompt is run.
    let compiled = constraint.as_ref().map(|constraint| engine.loaded().matcher(constraint)).transpose()?;
    let session = args.session.as_deref().map(|name| KeptChat::open(name, cache)).transpose()?;
    answer(&mut engine, args, (prompt, compiled, session), cache)?;
    args.drafter_state.as_deref().map_or(Ok(()), |file| drafter_state::keep(&mut engine, file))
}

/// Answers the prompt, or chats without one.
fn answer(
    engine: &mut Engine,
    args: &RunArgs,
    (prompt, compiled, mut session): (Option<String>, Option<Matcher>, Option<KeptChat>),
    cache: &CachePlace,
) -> Result<(), Failure> {
    if args.stats {
        output::remark(stats::memory(engine.memory()));
    }
    let Some(text) = prompt else { return chat::command(engine, args, (compiled, session), cache) };
    let question = Message::new(Role::User, &*text);
    let prompt = match &session {
        None if args.raw => Prompt::Raw(text.clone()),
        None => args.answer.chat([question]),
        Some(session) => {
            let messages: Vec<Message> = session.messages().into_iter().chain([question]).collect();
            chat::fitting(engine, &args.answer, &messages).0
        }
    };
    let speculation = settings::speculation(args);
    let constraint = compiled.as_ref().map(|compiled| compiled.constraint().clone());
    let request = Request { constraint, compiled, speculation, ..settings::request(&args.answer, prompt) };
    let (reason, report) = if args.json {
        let answer = engine.generate(&request)?.collect_answer()?;
        if let Some(session) = &mut session {
            session.add(&text, &answer.text)?;
        }
        output::json(&stats::AnswerJson::new(&answer))?;
        (answer.finish_reason, answer.report)
    } else {
        let mut answer = String::new();
        let (reason, report) = stream(engine, &request, |text| {
            answer.push_str(text);
            output::text(text)
        })?;
        output::text("\n")?;
        if let Some(session) = &mut session {
            session.add(&text, &answer)?;
        }
        if let Some(cut) = stats::cut(reason, &report, args.answer.max_tokens) {
            output::remark(cut);
        }
        (reason, report)
    };
    if args.stats {
        output::remark(stats::table(reason, &report).trim_end());
    }
    Ok(())
}
