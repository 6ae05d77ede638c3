//! `yggc serve`: opens the engine and hands it to the service.

use std::{net::SocketAddr, path::Path, time::Duration};

use yggc::{
    engine::{DrafterChoice, Options},
    model::Model,
    storage::share_heap,
};

use crate::{
    cli::{
        args::ServeArgs,
        cache::CachePlace,
        contents::Remembered,
        error::Failure,
        fetch, loading, output, planning, prefixes,
        refinement::Refinement,
        settings::{self, Machine},
    },
    serve::{ApiKey, Idle, Limits, Settings, is_here_alone, serve},
};

/// Seconds without a request after which a plan is refined that nobody asked to refine: a first use had time for few
/// forwards where weights are streamed.
const STREAMED_REFINED_AFTER: usize = 60;

/// Runs `yggc serve`.
pub(crate) fn command(args: &ServeArgs, cache: &CachePlace) -> Result<(), Failure> {
    share_heap();
    let keys = keys(args, cache)?;
    let machine = Machine::new(&args.device)?.within_memory(args.memory.memory, args.context.context)?;
    let given = args.plan.as_deref().map(|file| planning::given(file, args.force)).transpose()?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let model = loading::open(&path, cache)?;
    let drafter = if args.no_spec { DrafterChoice::Plain } else { DrafterChoice::Planned };
    let options = Options {
        drafter,
        store: settings::store(&args.store)?,
        draft_model: fetch::resolve_drafter(args.draft_model.as_deref(), cache)?,
        // A plan that divides the memory has left none for it.
        read_widths: if machine.limits_weights() { Vec::new() } else { machine.read_widths() },
        prefixes: prefixes::store(&args.prefixes, machine, cache)?,
        ..machine.options(&path, args.context.context)
    };
    let remembered = Remembered::new(&model, cache);
    let after = match args.refine {
        Some(0) => None,
        None if args.no_spec || given.is_some() || !machine.limits_weights() => None,
        after => Some(after.unwrap_or(STREAMED_REFINED_AFTER)),
    };
    let idle = after.map(|after| idle(after, args, &model, &options, machine, cache)).transpose()?;
    let (prepared, options) = planning::with_plan(model, options, given, machine, cache)?;
    if let Some(drafter) = &args.drafter {
        options.check_drafter(drafter.name())?;
    }
    let engine = prepared.engine(&options)?;
    remembered.into_iter().for_each(Remembered::watch);
    let context = engine.context();
    let settings = Settings {
        address: SocketAddr::new(args.host, args.port),
        model_name: model_name(args, &path),
        keys,
        origins: args.cors_origin.clone(),
        page: !args.no_page,
        logs_requests: args.access_log,
        span_timeout: span_timeout(cache)?,
        drafter: match &args.drafter {
            _ if args.no_spec => "none".to_owned(),
            None => "plan".to_owned(),
            Some(drafter) => drafter.name().to_owned(),
        },
        slots: args.slot_save_path.clone(),
        limits: Limits {
            queue: args.queue,
            connections: args.connections,
            body_bytes: args.max_body,
            prompt_tokens: args.max_prompt.unwrap_or(context),
            output_tokens: args.max_output.unwrap_or(context),
            deadline: Duration::from_secs(args.timeout as u64),
            drain: Duration::from_secs(args.drain),
        },
    };
    if let Some(exposed) = exposed(&settings) {
        output::remark(format_args!("{exposed}"));
    }
    let name = settings.model_name.clone();
    let mut printed = Ok(());
    serve(engine, options, settings, idle, |address| {
        output::remark(format_args!("serving {name}; Ctrl-C ends it when what is asked is answered"));
        printed = output::text(format_args!("http://{address}\n"));
    })?;
    printed
}

/// Who can reach the service and what is open to them, where that is not this machine alone.
fn exposed(settings: &Settings) -> Option<String> {
    let address = settings.address.ip();
    let sites = match settings.origins.iter().any(|origin| origin == "*") {
        true => " and pages of all sites",
        false => "",
    };
    let who = match address {
        _ if is_here_alone(address) && sites.is_empty() => return None,
        _ if is_here_alone(address) => "programs of this machine".to_owned(),
        _ if address.is_unspecified() => {
            format!("all machines that reach any address of this one ({address})")
        }
        _ => format!("all machines that reach {address}"),
    };
    Some(if settings.keys.is_empty() {
        format!(
            "warning: {who}{sites} may use this service: no key is asked for; give one with --api-key-file"
        )
    } else {
        format!(
            "{who}{sites} may use this service with a key, and without one read /, /health, /ready, /version and \
             /metrics; nothing is encrypted"
        )
    })
}

/// The refinement of the cached plan, after so many seconds without a request.
fn idle(
    after: usize,
    args: &ServeArgs,
    model: &Model,
    options: &Options,
    machine: Machine,
    cache: &CachePlace,
) -> Result<Idle, Failure> {
    let draft_model = options.draft_model.as_deref();
    let folder = cache.dir()?;
    let place = planning::place(model, draft_model, machine.divided(model, true)?, &folder)?;
    let work = Refinement::new(&place, folder.root(), args.model.model.as_deref(), draft_model, machine)?;
    Ok(Idle { after: Duration::from_secs(after as u64), work: Box::new(work) })
}

/// Longest time of an export of spans, if variables of OpenTelemetry ask for any.
fn span_timeout(cache: &CachePlace) -> Result<Option<Duration>, Failure> {
    let environment = &cache.environment;
    match &environment.span_timeout {
        _ if !environment.asks_for_spans => Ok(None),
        None => Ok(Some(Duration::from_secs(10))),
        Some(given) => match given.to_str().and_then(|text| text.parse().ok()) {
            Some(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
            None => Err(Failure::Input(format!(
                "$OTEL_EXPORTER_OTLP_TIMEOUT, or its own of traces, is {given:?}: expected milliseconds; correct it, \
                 or unset it"
            ))),
        },
    }
}

/// The keys of which requests must send one: those of the flags, else that of the variable.
fn keys(args: &ServeArgs, cache: &CachePlace) -> Result<Vec<ApiKey>, Failure> {
    let mut keys = args.api_key.clone();
    if let Some(file) = &args.api_key_file {
        let given = keys.len();
        keys.extend(ApiKey::of_lines(&settings::read_text(file, "list of keys")?));
        if keys.len() == given {
            return Err(Failure::Input(format!(
                "`{}` has no key: expected one a line, besides empty lines and those that begin with #; leave \
                 --api-key-file out to serve without a key",
                file.display()
            )));
        }
    }
    if let (true, Some(key)) = (keys.is_empty(), &cache.environment.api_key) {
        let refused = |what: &str| {
            let next = "leave it out to serve without a key, or give a file with --api-key-file";
            Failure::Input(format!("$YGGC_API_KEY is {what}; {next}"))
        };
        let key = key.to_str().ok_or_else(|| refused("not text: expected UTF-8"))?;
        keys.push(ApiKey::new(key).ok_or_else(|| refused("empty: expected some text"))?);
    }
    Ok(keys)
}

/// The model's name in requests: the known name, if one was given, else the name of its file or folder.
fn model_name(args: &ServeArgs, path: &Path) -> String {
    let typed = args.model.model.as_deref().filter(|typed| !typed.exists());
    let file = || path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy());
    match (&args.model_name, typed, &args.model.model) {
        (Some(name), ..) => name.clone(),
        (None, Some(known), _) => known.display().to_string(),
        (None, None, Some(_)) => file().into_owned(),
        (None, None, None) => fetch::DEFAULT_MODEL.name.to_owned(),
    }
}
