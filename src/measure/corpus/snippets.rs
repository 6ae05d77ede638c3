//! Texts, streamed from files and cut into snippets of tokens.

use std::{
    collections::VecDeque,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    engine::{Error, Loaded, Special},
    storage::json_fault,
};

use super::cannot;

/// A shorter piece is not worth a place in a store.
pub(super) const LEAST_TOKENS: usize = 8;
/// Text that is tokenised at once, about: it ends with a line, unless a line is longer.
const PIECE_BYTES: usize = 8 << 10;
/// The longest line of a JSONL file.
const MOST_LINE_BYTES: u64 = 16 << 20;

/// One line of a JSONL file.
#[derive(Deserialize)]
struct Document {
    text: Option<String>,
    turns: Option<Vec<String>>,
}

/// A file on its way.
#[derive(Debug)]
struct Input {
    path: PathBuf,
    reader: BufReader<File>,
    is_jsonl: bool,
    /// Lines begun so far.
    line: u64,
    /// Bytes of a plain text that are not tokenised yet.
    pending: Vec<u8>,
}

/// The snippets of all inputs, in order; a piece of an input at a time is in memory.
#[derive(Debug)]
pub(super) struct Snippets<'a> {
    loaded: &'a Loaded,
    most_tokens: usize,
    inputs: VecDeque<Input>,
    ready: VecDeque<Vec<u32>>,
    read_bytes: u64,
    total_bytes: u64,
}

impl<'a> Snippets<'a> {
    /// Opens all inputs, so that a missing one is found before the work.
    pub(super) fn open(loaded: &'a Loaded, paths: &[PathBuf], most_tokens: usize) -> Result<Self, Error> {
        let (mut inputs, mut total_bytes) = (VecDeque::new(), 0);
        for path in paths {
            let refused = |error: std::io::Error| cannot("read", path, &error);
            let file = File::open(path).map_err(refused)?;
            let found = file.metadata().map_err(refused)?;
            if !found.is_file() {
                return Err(Error::input(format!(
                    "`{}` is no file: expected text or JSONL files; name them one by one",
                    path.display()
                )));
            }
            total_bytes += found.len();
            let is_jsonl = path.extension().is_some_and(|extension| extension == "jsonl");
            let (path, reader) = (path.clone(), BufReader::new(file));
            inputs.push_back(Input { path, reader, is_jsonl, line: 0, pending: Vec::new() });
        }
        Ok(Self { loaded, most_tokens, inputs, ready: VecDeque::new(), read_bytes: 0, total_bytes })
    }

    /// Bytes read, and bytes in all.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        (size(self.read_bytes), size(self.total_bytes))
    }

    /// The next snippet: [`LEAST_TOKENS`] to as many tokens as were asked for.
    pub(super) fn next_snippet(&mut self) -> Result<Option<Vec<u32>>, Error> {
        loop {
            if let Some(snippet) = self.ready.pop_front() {
                return Ok(Some(snippet));
            }
            let Some(input) = self.inputs.front_mut() else { return Ok(None) };
            let (read, texts) = if input.is_jsonl { input.document()? } else { input.piece()? };
            self.read_bytes += read as u64;
            if read == 0 && texts.is_empty() {
                self.inputs.pop_front();
            }
            for text in texts {
                // What a text says is data: it holds no control tokens.
                let ids = self.loaded.tokenizer().encode(&text, Special::Literal);
                let long_enough = ids.chunks(self.most_tokens).filter(|chunk| chunk.len() >= LEAST_TOKENS);
                self.ready.extend(long_enough.map(<[u32]>::to_vec));
            }
        }
    }
}

impl Input {
    /// Bytes read, and the next piece of a plain text; neither at its end.
    fn piece(&mut self) -> Result<(usize, Vec<String>), Error> {
        let begin = self.pending.len();
        let mut at_end = false;
        while self.pending.len() < PIECE_BYTES && !at_end {
            let mut rest = Read::by_ref(&mut self.reader).take(PIECE_BYTES as u64);
            let read =
                rest.read_until(b'\n', &mut self.pending).map_err(|e| cannot("read", &self.path, &e))?;
            self.line += u64::from(self.pending.last() == Some(&b'\n') && read > 0);
            at_end = read == 0;
        }
        let read = self.pending.len() - begin;
        let valid = match std::str::from_utf8(&self.pending) {
            Ok(_) => self.pending.len(),
            // A character that the piece cuts.
            Err(error) if error.error_len().is_none() && !at_end => error.valid_up_to(),
            Err(error) => {
                return Err(Error::input(format!(
                    "`{}` is not text: expected UTF-8, found byte 0x{:02x} near line {}; convert it, for instance with iconv",
                    self.path.display(),
                    self.pending[error.valid_up_to()],
                    self.line + 1
                )));
            }
        };
        let rest = self.pending.split_off(valid);
        let text = String::from_utf8(std::mem::replace(&mut self.pending, rest)).expect("it was checked");
        Ok((read, if text.is_empty() { Vec::new() } else { vec![text] }))
    }

    /// Bytes read, and the texts of the next line of a JSONL file; neither at its end.
    fn document(&mut self) -> Result<(usize, Vec<String>), Error> {
        let mut line = Vec::new();
        let mut rest = Read::by_ref(&mut self.reader).take(MOST_LINE_BYTES + 1);
        let read = rest.read_until(b'\n', &mut line).map_err(|e| cannot("read", &self.path, &e))?;
        self.line += 1;
        if line.trim_ascii().is_empty() {
            return Ok((read, Vec::new()));
        }
        if line.len() as u64 > MOST_LINE_BYTES {
            return Err(refused_line(
                &self.path,
                self.line,
                &format!("a line of more than {MOST_LINE_BYTES} bytes"),
            ));
        }
        let Document { text, turns } = serde_json::from_slice(&line)
            .map_err(|error| refused_line(&self.path, self.line, &json_fault(&error)))?;
        if text.is_none() && turns.is_none() {
            return Err(refused_line(&self.path, self.line, "neither"));
        }
        Ok((read, text.into_iter().chain(turns.into_iter().flatten()).collect()))
    }
}

fn refused_line(path: &Path, line: u64, found: &str) -> Error {
    Error::input(format!(
        "{}, line {line}: expected a JSON object with a `text` or `turns`, found {found}; correct the line, or give plain text \
         under another ending than .jsonl",
        path.display()
    ))
}
