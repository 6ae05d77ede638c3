//! What `yggc run` asks for in every answer: length, sampling, penalties, stop strings. `/set` of the chat changes it.

use clap::{Args, builder::NonEmptyStringValueParser};
use yggc::engine::{Conversation, GenerationPrompt, Message, Parameter, Prompt, Role, TextError, Variables};

use super::numbers::{at_least_one, decimal, min_p, temperature, top_p};

#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingArgs {
    /// Sampling temperature; 0 is greedy: always the most probable token
    #[arg(
        long, value_name = "T", value_parser = temperature, allow_negative_numbers = true, default_value_t = 0.0,
        help_heading = "Sampling"
    )]
    pub(crate) temperature: f32,
    /// Sample among the K most probable tokens
    #[arg(
        long, value_name = "K", value_parser = at_least_one, allow_negative_numbers = true, help_heading = "Sampling"
    )]
    pub(crate) top_k: Option<usize>,
    /// Sample among the most probable tokens whose probabilities sum to P, in (0, 1]
    #[arg(long, value_name = "P", value_parser = top_p, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) top_p: Option<f32>,
    /// Sample among tokens of at least M times the highest probability, in [0, 1]
    #[arg(long, value_name = "M", value_parser = min_p, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) min_p: Option<f32>,
    /// Seed of sampling; the same seed gives the same answer
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Sampling")]
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Most tokens to generate [default: until the model ends its answer or the context is full]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<usize>,
    /// Instructions to the model, before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Variables of the model's chat template, as in '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", conflicts_with = "raw", default_value_t, hide_default_value = true)]
    pub(crate) chat_template_kwargs: Variables,
    /// End the answer before this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
    /// Divide positive logits of tokens of the text by R, multiply negative ones
    #[arg(long, alias = "repeat-penalty", value_name = "R", value_parser = repetition, allow_negative_numbers = true,
          default_value_t = 1.0, help_heading = "Sampling")]
    pub(crate) repetition_penalty: f32,
    /// Subtract P from logits of tokens of the answer, from -2 to 2
    #[arg(long, value_name = "P", value_parser = presence, allow_negative_numbers = true, default_value_t = 0.0,
          help_heading = "Sampling")]
    pub(crate) presence_penalty: f32,
    /// Subtract F for every occurrence of a token in the answer, from -2 to 2
    #[arg(long, value_name = "F", value_parser = frequency, allow_negative_numbers = true, default_value_t = 0.0,
          help_heading = "Sampling")]
    pub(crate) frequency_penalty: f32,
    /// Add to a token's logit, as in 1234+5 or 1234-100; may be repeated
    #[arg(long, value_name = "ID+BIAS", value_parser = bias, help_heading = "Sampling")]
    pub(crate) logit_bias: Vec<(u32, f32)>,
}

fn repetition(text: &str) -> Result<f32, String> {
    decimal(&Parameter::REPETITION_PENALTY, text)
}

fn presence(text: &str) -> Result<f32, String> {
    decimal(&Parameter::PRESENCE_PENALTY, text)
}

fn frequency(text: &str) -> Result<f32, String> {
    decimal(&Parameter::FREQUENCY_PENALTY, text)
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let expected =
        || "expected a token id and what to add, from -100 to 100, as in 1234+5 or 1234-100".to_owned();
    let (id, added) = text.split_at(text.find(['+', '-']).ok_or_else(expected)?);
    let added = decimal(&Parameter::LOGIT_BIAS, added).map_err(|_| expected())?;
    Ok((id.parse().map_err(|_| expected())?, added))
}

impl AnswerArgs {
    /// The messages after the system's.
    pub(crate) fn chat(&self, messages: impl IntoIterator<Item = Message>) -> Prompt {
        let system = self.system.iter().map(|text| Message::new(Role::System, text.as_str()));
        Prompt::Chat(Conversation {
            variables: self.chat_template_kwargs.clone(),
            ..Conversation::new(system.chain(messages).collect(), GenerationPrompt::Add)
        })
    }

    /// Names of settings, with what they are set to.
    pub(crate) fn shown(&self) -> Vec<(&'static str, String)> {
        let or = |value: Option<String>, otherwise: &str| value.unwrap_or_else(|| otherwise.to_owned());
        let Self { sampling, max_tokens, system, stop, repetition_penalty, presence_penalty, .. } = self;
        vec![
            ("n", or(max_tokens.map(|n| n.to_string()), "none")),
            ("temperature", sampling.temperature.to_string()),
            ("top-k", or(sampling.top_k.map(|k| k.to_string()), "none")),
            ("top-p", or(sampling.top_p.map(|p| p.to_string()), "none")),
            ("min-p", or(sampling.min_p.map(|m| m.to_string()), "none")),
            ("seed", sampling.seed.to_string()),
            ("repetition-penalty", repetition_penalty.to_string()),
            ("presence-penalty", presence_penalty.to_string()),
            ("frequency-penalty", self.frequency_penalty.to_string()),
            ("stop", if stop.is_empty() { "none".to_owned() } else { format!("{stop:?}") }),
            ("system", or(system.clone(), "none")),
            ("chat-template-kwargs", self.chat_template_kwargs.to_string()),
        ]
    }

    /// Sets what [`shown`](Self::shown) names; `none` takes an optional setting back.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn optional<T>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
            if value == "none" { Ok(None) } else { parse(value).map(Some) }
        }
        let sampling = &mut self.sampling;
        match name {
            "n" => self.max_tokens = optional(value, at_least_one)?,
            "temperature" => sampling.temperature = temperature(value)?,
            "top-k" => sampling.top_k = optional(value, at_least_one)?,
            "top-p" => sampling.top_p = optional(value, top_p)?,
            "min-p" => sampling.min_p = optional(value, min_p)?,
            "seed" => {
                sampling.seed = value.parse().map_err(|_| "expected a whole number from 0 on".to_owned())?
            }
            "repetition-penalty" => self.repetition_penalty = repetition(value)?,
            "presence-penalty" => self.presence_penalty = presence(value)?,
            "frequency-penalty" => self.frequency_penalty = frequency(value)?,
            "stop" => self.stop = optional(value, |text| Ok(text.to_owned()))?.into_iter().collect(),
            "system" => self.system = optional(value, |text| Ok(text.to_owned()))?,
            "chat-template-kwargs" => {
                self.chat_template_kwargs = value.parse().map_err(|error: TextError| error.to_string())?;
            }
            _ => return Err("there is no such setting; /set alone lists them".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        answer: AnswerArgs,
        #[arg(long)]
        raw: bool,
    }

    #[test]
    fn what_is_shown_can_be_set_and_set_back() {
        let line = Line::try_parse_from(["x"]).unwrap();
        assert!(!line.raw);
        let mut args = line.answer;
        let before = args.shown();
        for (name, _) in &before {
            let value = match *name {
                "min-p" => "0.5",
                "chat-template-kwargs" => r#"{"enable_thinking":1}"#,
                _ => "1",
            };
            args.set(name, value).unwrap();
        }
        let after = args.shown();
        assert!(after.iter().all(|(name, value)| value.contains('1') || *name == "min-p"), "{after:?}");
        for (name, value) in &before {
            args.set(name, value).unwrap();
        }
        assert_eq!(args.shown(), before);
        for (name, value, expected) in [
            ("top-p", "2", "at most 1"),
            ("n", "0", "at least 1"),
            ("colour", "red", "no such setting"),
            ("chat-template-kwargs", "[1]", "a JSON object"),
            ("chat-template-kwargs", r#"{"tools":[]}"#, "`tools`"),
            ("chat-template-kwargs", "{", "breaks off"),
        ] {
            let refused = args.set(name, value).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn biases_are_written_as_in_llama_cpp() {
        assert_eq!((bias("12+0.5"), bias("12-100")), (Ok((12, 0.5)), Ok((12, -100.0))));
        for bad in ["", "12", "+1", "12+", "12=1", "-1+1", "12+101", "12+nan"] {
            assert!(bias(bad).unwrap_err().contains("1234+5"), "{bad}");
        }
    }
}
