//! From a template's source to instructions that charge for what they do.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::machinery::{
    CompiledTemplate, Instruction, Instructions, TemplateConfig, Token, Vm, WhitespaceConfig,
    make_string_output, tokenize,
};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use super::operators::{
    ADD, CHANGED, COMPARISONS, CONCAT, EACH, ITEM, KEEP, LIST, MACRO, MAP, MULTIPLY, SLICE,
};

const NAME: &str = "chat_template";

/// Longest source. Published templates stay below 100 kB.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Most operators, names after dots, filters and brackets in one tag. The compiler recurses once for each in a chain of
/// them; published templates stay below 100.
const MAX_CHAIN: usize = 200;

/// Most `elif` of a template. The parser recurses for each of a chain of them.
const MAX_ELIF: usize = 200;

/// White space as transformers has it.
const SPACES: WhitespaceConfig =
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };

/// A compiled template.
pub(in crate::text) struct Program<'source> {
    main: Instructions<'source>,
    blocks: BTreeMap<&'source str, Instructions<'source>>,
}

/// Compiles a template.
///
/// # Errors
/// The source is no template, or is longer, deeper or wider than the limits.
pub(in crate::text) fn compile(source: &str) -> Result<Program<'_>, Error> {
    check_size(source)?;
    let config = TemplateConfig {
        syntax_config: Default::default(),
        ws_config: SPACES,
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    let compiled = CompiledTemplate::new(NAME, source, &config)?;
    let blocks = compiled.blocks.iter().map(|(name, block)| Ok((*name, charged(block)?)));
    Ok(Program { main: charged(&compiled.instructions)?, blocks: blocks.collect::<Result<_, Error>>()? })
}

impl<'source> Program<'source> {
    /// What it writes, with these variables.
    ///
    /// # Errors
    /// The template fails or goes beyond a limit.
    pub(in crate::text) fn run(
        &self,
        environment: &'source Environment<'source>,
        variables: Value,
    ) -> Result<String, Error> {
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        Vm::new(environment).eval(&self.main, variables, &self.blocks, &mut output, AutoEscape::None)?;
        Ok(text)
    }
}

/// Counts what the parser and the compiler recurse for, in one pass without recursion.
fn check_size(source: &str) -> Result<(), Error> {
    let beyond = |what: String| Err(Error::new(ErrorKind::SyntaxError, what));
    if source.len() > MAX_SOURCE_BYTES {
        return beyond(format!("it has {} bytes, expected at most {MAX_SOURCE_BYTES}", source.len()));
    }
    let (mut links, mut branches) = (0, 0);
    for token in tokenize(source, false, Default::default(), SPACES) {
        let (token, span) = token?;
        match token {
            Token::VariableStart | Token::BlockStart => links = 0,
            Token::Ident("elif") => branches += 1,
            Token::Ident("and" | "or" | "not" | "if" | "else" | "in" | "is") => links += 1,
            Token::Ident(_)
            | Token::TemplateData(_)
            | Token::VariableEnd
            | Token::BlockEnd
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Comma
            | Token::Colon
            | Token::Assign
            | Token::BracketClose
            | Token::ParenClose
            | Token::BraceClose => {}
            _ => links += 1,
        }
        if links > MAX_CHAIN {
            let line = span.start_line;
            return beyond(format!(
                "the tag on line {line} has more than {MAX_CHAIN} operators and brackets"
            ));
        }
        if branches > MAX_ELIF {
            return beyond(format!("it has more than {MAX_ELIF} `elif`"));
        }
    }
    Ok(())
}

/// The same instructions with those replaced that work on values of any size.
fn charged<'source>(from: &Instructions<'source>) -> Result<Instructions<'source>, Error> {
    let mut to = Instructions::new(NAME, from.source());
    let mut places = Vec::new();
    for at in 0.. {
        let Some(instruction) = from.get(at) else { break };
        let line = from.get_line(at).unwrap_or(0);
        let added = replacement(instruction).map_err(|unsupported| {
            Error::new(ErrorKind::SyntaxError, format!("{unsupported} is not supported (line {line})"))
        })?;
        let line = u16::try_from(line).unwrap_or(u16::MAX);
        let added = added.into_iter().map(|instruction| to.add_with_line(instruction, line));
        places.push(added.collect::<Vec<u32>>());
    }
    let last: Vec<u32> = places.iter().filter_map(|added| added.last().copied()).collect();
    let end = last.last().map_or(0, |last| last + 1);
    let moved = |place: u32| places.get(place as usize).map_or(end, |added| added[0]);
    for place in last {
        if let Some(
            Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::BuildMacro(_, target, _),
        ) = to.get_mut(place)
        {
            *target = moved(*target);
        }
    }
    Ok(to)
}

/// What stands for an instruction: at least one; the last is the one that may jump.
///
/// # Errors
/// The name of what has none.
fn replacement<'source>(
    instruction: &Instruction<'source>,
) -> Result<Vec<Instruction<'source>>, &'static str> {
    let call = |name, arguments| vec![Instruction::CallFunction(name, Some(arguments))];
    let wide = |count: usize| u16::try_from(count).map_err(|_| "a literal of so many items");
    Ok(match instruction {
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit],
        Instruction::StringConcat => call(CONCAT, 2),
        Instruction::Add => call(ADD, 2),
        Instruction::Mul => call(MULTIPLY, 2),
        Instruction::Slice => call(SLICE, 4),
        Instruction::GetItem => call(ITEM, 2),
        Instruction::BuildList(Some(count)) => call(LIST, wide(*count)?),
        Instruction::BuildList(None) => vec![Instruction::CallFunction(LIST, None)],
        Instruction::BuildMap(count) => call(MAP, wide(count.saturating_mul(2))?),
        Instruction::Eq => call(COMPARISONS[0].0, 2),
        Instruction::Ne => call(COMPARISONS[1].0, 2),
        Instruction::Lt => call(COMPARISONS[2].0, 2),
        Instruction::Lte => call(COMPARISONS[3].0, 2),
        Instruction::Gt => call(COMPARISONS[4].0, 2),
        Instruction::Gte => call(COMPARISONS[5].0, 2),
        Instruction::In => call(COMPARISONS[6].0, 2),
        Instruction::CompareAndPreserve(comparison) => {
            // In the order of the engine's `CompareOp`, which it does not make public.
            let name = COMPARISONS[*comparison as usize].1;
            vec![Instruction::CallFunction(name, Some(2)), Instruction::UnpackList(2)]
        }
        Instruction::PushLoop(_) => {
            vec![Instruction::CallFunction(EACH, Some(1)), instruction.clone()]
        }
        // The names of its arguments are on top.
        Instruction::BuildMacro(..) => {
            vec![Instruction::CallFunction(MACRO, Some(1)), instruction.clone()]
        }
        Instruction::SetAttr(_) => vec![
            Instruction::Swap,
            Instruction::CallFunction(KEEP, Some(1)),
            Instruction::Swap,
            instruction.clone(),
        ],
        Instruction::CallMethod("changed", arguments) => {
            vec![Instruction::CallFunction(CHANGED, *arguments)]
        }
        Instruction::UnpackLists(_) => return Err("`*` before an argument"),
        Instruction::MergeKwargs(_) => return Err("`**` before an argument"),
        other => vec![other.clone()],
    })
}
