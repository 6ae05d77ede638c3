//! Building a corpus store: texts are cut into snippets, the verifier scores them, and what it finds most probable is
//! kept.
//!
//! After SPECTRA (ACL 2025): a corpus refined by the verifier's perplexity suggests what the verifier itself would say.
//! The walk: [`Snippets`] streams the inputs, every snippet is scored and its score is appended to a file next to the
//! output ([`ScoreFile`]), with what the model offered at each place; [`Selection`] keeps the best, and the kept ones
//! are sorted into a store that takes its name when it is whole. Memory is bounded by what is kept, not by the inputs.
//!
//! Invariant: a build that was killed at any time and begun again ends with the same bytes as one that was not.

mod score_file;
mod selection;
mod snippets;

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    engine::{Error, Hint, Loaded},
    runtime::Pinning,
    sample::{LogNormaliser, top},
    speculate::corpus::{Corpus, Offer, PRIOR_OFFERS, PRIOR_TOKENS},
    storage::replace_file,
};

use super::{Progress, score::Scorer};
use score_file::{Known, ScoreFile};
use selection::Selection;
use snippets::Snippets;

/// What a store is built of.
#[derive(Clone, Debug)]
pub struct CorpusOptions {
    /// Texts, in order: `.jsonl` files of objects with a `text` or `turns`, and any other file as plain text (UTF-8).
    pub inputs: Vec<PathBuf>,
    /// Where the store goes. Scores are kept next to it until it is written.
    pub output: PathBuf,
    /// Tokens of a snippet at most; a match never spans two.
    pub snippet_tokens: usize,
    /// Snippets to keep at most.
    pub most_snippets: usize,
    /// Tokens to keep at most: they decide the memory that building takes, 80 bytes each.
    pub most_tokens: usize,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
}

impl CorpusOptions {
    /// A store of the best of `inputs` at `output`, within the limits of a small machine.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf) -> Self {
        Self {
            inputs,
            output,
            snippet_tokens: 128,
            most_snippets: 100_000,
            most_tokens: 8_000_000,
            pinning: Pinning::default(),
        }
    }
}

/// What became of the inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CorpusReport {
    /// Snippets read.
    pub snippets: u64,
    /// Of them those whose scores were there from an earlier build.
    pub resumed: u64,
    /// Snippets kept.
    pub kept_snippets: u64,
    /// Tokens kept.
    pub kept_tokens: u64,
    /// Perplexity of the least probable snippet that was kept.
    pub highest_perplexity: f64,
    /// Contexts of one, two and three tokens in the prior tables.
    pub priors: [u64; PRIOR_TOKENS],
    /// Bytes of the store.
    pub bytes: u64,
}

/// Scores the inputs with `loaded`, whose widest executable should be wide, and writes the store. Scores that an
/// earlier build with the same model, machine and snippet length left are used.
///
/// # Errors
/// [`Error`] of kind `Input` if an input cannot be read or is no text, scores were left by another build, another build
/// is at work, nothing is left to keep or the output cannot be written.
pub fn build_corpus(
    loaded: &Loaded,
    options: &CorpusOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CorpusReport, Error> {
    let CorpusOptions { inputs, output, snippet_tokens, most_snippets, most_tokens, pinning } = options;
    let context = loaded.set().model_context();
    if *snippet_tokens < snippets::LEAST_TOKENS || snippet_tokens + 1 > context {
        return Err(Error::input(format!(
            "snippets of {snippet_tokens} tokens: expected {} to {}, which the model can score",
            snippets::LEAST_TOKENS,
            context - 1
        ))
        .with_hint(Hint::Corpus));
    }
    let mut snippets = Snippets::open(loaded, inputs, *snippet_tokens)?;
    let score_path = beside(output, ".scores")?;
    let mut scores = ScoreFile::open(&score_path, settings(loaded, *snippet_tokens)?)?;
    remove_half_written(output);
    let mut scorer = Scorer::new(loaded, snippet_tokens + 1, *pinning)?;
    let mut selection = Selection::new(*most_snippets, *most_tokens);
    let (mut number, mut resumed) = (0, 0);
    while let Some(snippet) = snippets.next_snippet()? {
        let nll = match scores.next_known()? {
            Some(known) if known.snippet == snippet => {
                resumed += 1;
                known.mean_nll
            }
            Some(_) => return Err(scores.other_inputs()),
            None => {
                let known = scored(&mut scorer, loaded, &snippet)?;
                scores.append(&known)?;
                known.mean_nll
            }
        };
        selection.offer(nll, number, snippet.len());
        number += 1;
        let (done, total) = snippets.bytes();
        progress(Progress { what: "scoring", done, total });
    }
    if scores.next_known()?.is_some() {
        return Err(scores.other_inputs());
    }
    let Some(highest) = selection.highest() else {
        return Err(Error::input(format!(
            "no snippet to keep: expected texts of {} tokens or more, found {number} snippets, none within the limits",
            snippets::LEAST_TOKENS
        ))
        .with_hint(Hint::Corpus));
    };
    let corpus = kept(&mut scores, selection, progress)?;
    progress(Progress { what: "sorting", done: 0, total: 1 });
    let vocabulary = u32::try_from(loaded.set().vocabulary()).expect("token ids are 32 bits");
    let (bytes, priors) = corpus.encode(vocabulary, *loaded.model().fingerprint().as_bytes())?;
    replace_file(output, &bytes).map_err(|error| cannot("write", output, &error))?;
    scores.remove()?;
    Ok(CorpusReport {
        snippets: number,
        resumed,
        kept_snippets: corpus.snippets(),
        kept_tokens: corpus.tokens(),
        highest_perplexity: highest.exp(),
        priors,
        bytes: bytes.len() as u64,
    })
}

/// The selected snippets in the order of the inputs, read back from the scores.
fn kept(
    scores: &mut ScoreFile,
    selection: Selection,
    progress: &mut dyn FnMut(Progress),
) -> Result<Corpus, Error> {
    let selected = selection.ascending();
    let mut corpus = Corpus::default();
    scores.rewind()?;
    let (mut number, total) = (0, selected.len());
    for (done, wanted) in selected.into_iter().enumerate() {
        let known = loop {
            let known = scores.next_known()?.ok_or_else(|| {
                Error::input(
                    "scores vanished while the store was built: expected what was written; build again",
                )
            })?;
            number += 1;
            if number > wanted {
                break known;
            }
        };
        corpus.push(&known.snippet, &known.offers);
        progress(Progress { what: "keeping", done: done + 1, total });
    }
    Ok(corpus)
}

/// A snippet with the mean negative log-likelihood of its tokens, of the first one too where texts begin with a token
/// of their own, and with what the model offers after each but the last.
fn scored(scorer: &mut Scorer<'_>, loaded: &Loaded, snippet: &[u32]) -> Result<Known, Error> {
    let tokenizer = loaded.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let ids = [bos.as_slice(), snippet].concat();
    let (mut offers, mut heap, mut best) = (Vec::with_capacity(ids.len()), Vec::new(), Vec::new());
    let score = scorer.score_rows(&ids, |logits| {
        best.clear();
        top(logits, PRIOR_OFFERS, &mut heap, &mut best);
        let total = LogNormaliser::new(logits).total() as f32;
        best.iter_mut().for_each(|candidate| candidate.log_prob -= total);
        offers.push(Offer::of(&best));
    })?;
    // What is offered at the beginning of all texts follows no token of theirs.
    let offers = offers.split_off(usize::from(bos.is_some()));
    Ok(Known { snippet: snippet.to_vec(), mean_nll: score.mean_nll, offers })
}

/// A digest of what scores follow from, apart from the texts.
fn settings(loaded: &Loaded, snippet_tokens: usize) -> Result<[u8; 32], Error> {
    let build = loaded.fingerprints()?.build.kernels;
    let (tier, activations, cache) = (loaded.tier(), loaded.activations(), loaded.cache());
    let class = format!("{tier} {activations:?} {cache} {build} {snippet_tokens}");
    let mut hasher = blake3::Hasher::new();
    hasher.update(loaded.model().fingerprint().as_bytes()).update(class.as_bytes());
    Ok(*hasher.finalize().as_bytes())
}

/// The file `.NAME` with `ending`, in the folder of `path`.
fn beside(path: &Path, ending: &str) -> Result<PathBuf, Error> {
    let name = path.file_name().ok_or_else(|| {
        Error::input(format!("`{}` names no file: expected a place for the store", path.display()))
    })?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(ending);
    Ok(path.with_file_name(hidden))
}

/// Removes what writers of `output` that were killed have left. The caller holds the lock of the scores.
fn remove_half_written(output: &Path) {
    let folder = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let (Some(name), Ok(entries)) = (output.file_name(), fs::read_dir(folder)) else { return };
    let begin = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let found = entry.file_name();
        let middle = found.to_str().and_then(|f| f.strip_prefix(&begin)?.strip_suffix(".partial"));
        if middle.is_some_and(|pid| pid.bytes().all(|b| b.is_ascii_digit())) {
            // What cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn cannot(action: &str, path: &Path, error: &io::Error) -> Error {
    Error::input(format!("cannot {action} `{}`: {error}; check the path and the space left", path.display()))
}
