//! How probable continuations of a prompt are: many questions over one prefix.

use crate::{
    grammar::{Constraint, Matcher},
    prefix::Owner,
    speculate::{Reading, Reuse},
};

use super::{CancelHandle, Engine, Error, Hint, Loaded, Prompt, TokenLogProbs};

/// Most options of a request: each is compared with the others that begin alike.
pub const MOST_OPTIONS: usize = 1024;

/// A text that may follow a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// Text. It is encoded apart from the prompt, as a continuation: its tokens begin where the prompt's end, also
    /// where the tokenizer would join characters across that border. So a space between both belongs to the option's
    /// beginning and not to the prompt's end. After a conversation it begins the assistant's turn, and control tokens
    /// in it are refused, since text never becomes one there; after a raw prompt or token ids they are recognised, as
    /// in that prompt.
    Text(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
}

/// By what the probabilities of options are made comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Normalisation {
    /// By the log-probability of the whole option: how probable the text is. A longer option has more tokens to be
    /// improbable by.
    #[default]
    None,
    /// By the mean log-probability of its tokens.
    Length,
}

/// A question with given answers. Start from [`ChooseRequest::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ChooseRequest {
    /// What the options continue.
    pub prompt: Prompt,
    /// The options, at least one, all different, at most [`MOST_OPTIONS`].
    pub options: Vec<Continuation>,
    /// How probabilities are made of log-probabilities.
    pub normalisation: Normalisation,
    /// What an answer must be: options that cannot begin one have probability 0. Log-probabilities are the model's own
    /// either way.
    pub constraint: Option<Constraint>,
    /// The same compiled, as [`Request::compiled`](super::Request::compiled) says.
    pub compiled: Option<Matcher>,
    /// What it takes of requests before it.
    pub reuse: Reuse,
    /// Whose request it is, as [`Request::owner`](super::Request::owner) says.
    pub owner: Owner,
    /// Ends it from another thread.
    pub cancel: CancelHandle,
}

impl ChooseRequest {
    /// A request that takes what it can of those before.
    pub fn new(prompt: Prompt, options: Vec<Continuation>) -> Self {
        Self {
            prompt,
            options,
            normalisation: Normalisation::None,
            constraint: None,
            compiled: None,
            reuse: Reuse::Prefix,
            owner: Owner::default(),
            cancel: CancelHandle::new(),
        }
    }

    /// The same with token ids in place of texts, which costs no forward: for who lets requests wait for an engine.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for no options or too many, one that is empty or there twice, one that has control
    /// tokens after a conversation, and a prompt that cannot be laid out.
    pub fn encoded(&self, loaded: &Loaded) -> Result<Self, Error> {
        let count = self.options.len();
        if !(1..=MOST_OPTIONS).contains(&count) {
            return Err(Error::input(format!(
                "{count} options to choose from: expected 1 to {MOST_OPTIONS}; send others in further requests, which keep the prompt"
            )));
        }
        let mut all: Vec<Vec<u32>> = Vec::with_capacity(count);
        for (place, option) in self.options.iter().enumerate() {
            let number = place + 1;
            let ids = match option {
                Continuation::Tokens(ids) => ids.clone(),
                Continuation::Text(text) => text_ids(text, &self.prompt, loaded)
                    .map_err(|what| Error::input(format!("option {number} {what}")))?,
            };
            if ids.is_empty() {
                return Err(Error::input(format!(
                    "option {number} is empty: expected at least one token; leave it out, or give the token that ends an answer by its id"
                )));
            }
            all.push(ids);
        }
        let mut sorted: Vec<usize> = (0..count).collect();
        sorted.sort_by_key(|place| &all[*place]);
        if let Some([first, second]) = sorted.array_windows().find(|[a, b]| all[*a] == all[*b]) {
            return Err(Error::input(format!(
                "options {} and {} have the same tokens: expected different ones; leave one out",
                first + 1,
                second + 1
            )));
        }
        let prompt = Prompt::Tokens(self.prompt.token_ids(loaded)?);
        Ok(Self { prompt, options: all.into_iter().map(Continuation::Tokens).collect(), ..self.clone() })
    }
}

/// The tokens of an option's text, or what is wrong with it.
fn text_ids(text: &str, prompt: &Prompt, loaded: &Loaded) -> Result<Vec<u32>, String> {
    let tokenizer = loaded.tokenizer();
    let parsed = tokenizer.encode_raw_continuation(text);
    if let Prompt::Raw(_) | Prompt::Tokens(_) = prompt {
        return Ok(parsed);
    }
    match parsed.into_iter().find(|id| tokenizer.is_control(*id)) {
        None => Ok(tokenizer.encode_continuation(text)),
        Some(id) => Err(format!(
            "has the control token {}: expected text, of which none is made after a conversation; leave it out, or give token ids",
            tokenizer.spelling(id)
        )),
    }
}

/// A token of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionToken {
    /// Token id.
    pub id: u32,
    /// Its log-probability in nats after the prompt and the option's tokens before it, by the logits as the model gives
    /// them: the negative of what [`score`](crate::measure::score) gives for it, to the bit.
    pub log_prob: f64,
}

/// What was found about an option.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredOption {
    /// Its tokens, at least one.
    pub tokens: Vec<OptionToken>,
    /// The sum of their log-probabilities: of the option as the beginning of what follows the prompt.
    pub log_prob: f64,
    /// Its probability if one of the options follows, by the [`Normalisation`] that was asked for.
    pub probability: f64,
    /// Whether the request's constraint takes it.
    pub is_admitted: bool,
}

/// The options of a request, in its order, with their probabilities.
#[derive(Clone, Debug)]
pub struct Choices {
    /// One for each option.
    pub options: Vec<ScoredOption>,
    /// Token ids of the prompt.
    pub prompt_token_ids: Vec<u32>,
    /// The numbers of the request.
    pub report: ChooseReport,
}

impl Choices {
    /// Places of the options, the most probable first; of equal ones the first.
    pub fn ranked(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.options.len()).collect();
        let probability = |place: &usize| self.options[*place].probability;
        places.sort_by(|a, b| probability(b).total_cmp(&probability(a)));
        places
    }
}

/// What a request to choose took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooseReport {
    /// Tokens of the prompt whose keys and values were kept of requests before.
    pub reused_tokens: usize,
    /// Time until the prompt was run but for its last token.
    pub prefill_ms: f64,
    /// Time of the options after that.
    pub options_ms: f64,
    /// Forwards over the options.
    pub forwards: u64,
    /// Rows of these forwards: one for the prompt's last token, and one for every different beginning of an option that
    /// goes on.
    pub rows: u64,
}

impl Engine {
    /// How probable each of some given texts is as the continuation of a prompt. The prompt is run once, as far as the
    /// cache has it not; the options are branches of one tree, whose shared beginnings are run once, and as many rows
    /// of it share a forward as the engine was opened for ([`Options::read_widths`](super::Options::read_widths)). The
    /// cache has the prompt afterwards. `None` if it was cancelled.
    ///
    /// ```
    /// use yggc::engine::{ChooseRequest, Continuation, Engine, Options, Prompt};
    /// # let folder = tempfile::tempdir()?;
    /// # let model = folder.path().join("tiny.gguf");
    /// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
    /// let mut engine = Engine::open(&Options { read_widths: vec![4, 16], ..Options::new(&model) })?;
    /// let options = ["ab", "abc", "c"].map(|text| Continuation::Text(text.to_owned()));
    /// let request = ChooseRequest::new(Prompt::Raw("one and one".to_owned()), options.to_vec());
    /// let choices = engine.choose(&request)?.expect("nobody cancels it");
    /// let sum: f64 = choices.options.iter().map(|option| option.probability).sum();
    /// assert!((sum - 1.0).abs() < 1e-12);
    /// let again = engine.choose(&request)?.expect("nobody cancels it");
    /// assert_eq!(again.options, choices.options);
    /// assert!(again.report.reused_tokens > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error`] of kind `Input` as [`ChooseRequest::encoded`], for an option that does not fit the context with the
    /// prompt, and where the constraint takes no option; of kind `Device` when the device fails.
    pub fn choose(&mut self, request: &ChooseRequest) -> Result<Option<Choices>, Error> {
        let encoded = request.encoded(&self.loaded)?;
        let (prompt, options) = (encoded.prompt_ids(), encoded.option_ids());
        self.check_prompt(prompt)?;
        let (context, longest) =
            (self.context(), options.iter().map(|ids| ids.len()).enumerate().max_by_key(|(_, len)| *len));
        if let Some((place, len)) = longest.filter(|(_, len)| prompt.len() + len > context) {
            return Err(Error::input(format!(
                "option {} has {len} tokens and the prompt {}, but the context holds {context}: shorten one of them or ask for a longer context",
                place + 1,
                prompt.len()
            ))
            .with_hint(Hint::Context));
        }
        if let Some(most) = self.decoder.session().most_cut()
            && let Some((place, len)) = longest.filter(|(_, len)| *len > most)
        {
            return Err(Error::input(format!(
                "option {} has {len} tokens, but rows of this model have a state that can go back by {most}: expected options of at most so many tokens; shorten it",
                place + 1
            )));
        }
        let ChooseRequest { constraint, compiled, normalisation, reuse, owner, cancel, .. } = request;
        let matcher = self.compiled(constraint.as_ref(), compiled.as_ref(), cancel);
        let is_admitted = match matcher.and_then(|matcher| admitted(matcher, &options)) {
            // Cancelling also ends the work of a grammar.
            Err(_) if cancel.is_cancelled() => return Ok(None),
            is_admitted => is_admitted?,
        };
        if !is_admitted.contains(&true) {
            return Err(Error::input(
                "the constraint takes none of the options: expected one at least that can begin an answer; change the options or the constraint",
            ));
        }
        let is_cancelled = || cancel.is_cancelled();
        let prefixes = self.prefixes.as_ref();
        let reading = Reading { prompt, reuse: *reuse, prefixes, owner: *owner, is_cancelled: &is_cancelled };
        let read = self.decoder.read_branches(&reading, &options)?;
        if *reuse == Reuse::Prefix {
            self.keep_prefix();
        }
        let Some(read) = read else { return Ok(None) };
        let mut scored: Vec<ScoredOption> = Vec::with_capacity(options.len());
        for ((ids, log_probs), is_admitted) in options.iter().zip(&read.log_probs).zip(is_admitted) {
            let tokens =
                ids.iter().zip(log_probs).map(|(id, log_prob)| OptionToken { id: *id, log_prob: *log_prob });
            let log_prob = log_probs.iter().sum();
            scored.push(ScoredOption { tokens: tokens.collect(), log_prob, probability: 0.0, is_admitted });
        }
        normalise(&mut scored, *normalisation)?;
        let stats = self.decoder.stats();
        let report = ChooseReport {
            reused_tokens: usize::try_from(stats.reused).expect("part of a prompt"),
            prefill_ms: stats.prefill.as_secs_f64() * 1e3,
            options_ms: read.time.as_secs_f64() * 1e3,
            forwards: read.forwards,
            rows: read.rows,
        };
        Ok(Some(Choices { options: scored, prompt_token_ids: prompt.to_vec(), report }))
    }

    /// How probable the tokens of a prompt are, but the first: number `i` is of token `i + 1`, with the `most` most
    /// probable tokens at its place. All of it is run, and the cache has it afterwards, as `owner`'s. `None` if it was
    /// cancelled.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the prompt does not fit the context or has unknown ids, or for `most` above the
    /// vocabulary; of kind `Device` when the device fails.
    pub fn prompt_log_probs(
        &mut self,
        prompt: &[u32],
        owner: Owner,
        most: usize,
        cancel: &CancelHandle,
    ) -> Result<Option<Vec<TokenLogProbs>>, Error> {
        self.check_prompt(prompt)?;
        let Some(read) = self.decoder.read_tokens(prompt, owner, most, &|| cancel.is_cancelled())? else {
            return Ok(None);
        };
        let places = 0..prompt.len() - 1;
        Ok(Some(
            places.map(|place| TokenLogProbs::new(read.of(place).expect("they were asked for"))).collect(),
        ))
    }
}

impl ChooseRequest {
    /// Most tokens of the prompt and an option together, of an [encoded](Self::encoded) request.
    ///
    /// # Panics
    /// If it is not encoded.
    pub fn tokens(&self) -> usize {
        let options = self.option_ids().into_iter().map(<[u32]>::len);
        self.prompt_ids().len() + options.max().unwrap_or(0)
    }

    fn prompt_ids(&self) -> &[u32] {
        match &self.prompt {
            Prompt::Tokens(ids) => ids,
            Prompt::Chat(_) | Prompt::Raw(_) => unreachable!("it was encoded"),
        }
    }

    fn option_ids(&self) -> Vec<&[u32]> {
        let ids = self.options.iter().map(|option| match option {
            Continuation::Tokens(ids) => &ids[..],
            Continuation::Text(_) => unreachable!("it was encoded"),
        });
        ids.collect()
    }
}

/// Whether an answer may begin with each of the options.
fn admitted(matcher: Option<Matcher>, options: &[&[u32]]) -> Result<Vec<bool>, Error> {
    let Some(mut matcher) = matcher else { return Ok(vec![true; options.len()]) };
    let takes = |ids: &&[u32]| {
        let takes = matcher.fitting(ids) == ids.len();
        // A grammar that was stuck has not refused them.
        matcher.may_end()?;
        Ok(takes)
    };
    options.iter().map(takes).collect()
}

/// Gives the admitted options their probabilities.
fn normalise(options: &mut [ScoredOption], by: Normalisation) -> Result<(), Error> {
    let value = |option: &ScoredOption| match by {
        Normalisation::None => option.log_prob,
        Normalisation::Length => option.log_prob / option.tokens.len() as f64,
    };
    let admitted = || options.iter().filter(|option| option.is_admitted).map(value);
    let most = admitted().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return Err(Error::input(
            "the model gives no option any probability: expected logits that are numbers; its weights may be damaged",
        ));
    }
    let sum: f64 = admitted().map(|value| (value - most).exp()).sum();
    for option in options.iter_mut().filter(|option| option.is_admitted) {
        option.probability = (value(option) - most).exp() / sum;
    }
    Ok(())
}
