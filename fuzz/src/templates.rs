//! Chat templates by size: deep and wide ones are built from a few numbers, and rendered under a small stack.

use std::thread;

use yggc::text::{ChatTemplate, Conversation, GenerationPrompt, Message, Role};

use super::size::size;

/// Stack of the caller, which is no matter: templates have a stack of their own.
const STACK_BYTES: usize = 128 << 10;

/// How often a piece is repeated at most.
const MOST: usize = 4_096;

/// What opens and closes, by the first byte of a piece; what is inside runs as often as loops say.
const NESTED: [(&str, &str); 10] = [
    ("{% if 1 %}", "{% endif %}"),
    ("{% for i in [1, 2] %}", "{% endfor %}"),
    ("{% set x %}", "{% endset %}"),
    ("{% filter upper %}", "{% endfilter %}"),
    ("{% with a = x %}", "{% endwith %}"),
    ("{% macro f(a) %}", "{% endmacro %}{{ f(1) }}"),
    ("{% call f(1) %}", "{% endcall %}"),
    ("{% set x = [x, x] %}{% for i in range(40) %}", "{% endfor %}"),
    ("{% if 0 %}{% elif 1 %}", "{% endif %}"),
    ("{% block b %}", "{% endblock %}"),
];

/// What a chain repeats, as what begins it and a link.
const CHAINS: [(&str, &str, &str); 12] = [
    ("{{ 1", " + 1", " }}"),
    ("{{ x", ".a", " }}"),
    ("{{ 'ab'", " ~ 'ab'", " }}"),
    ("{{ x", " | string", " }}"),
    ("{{ ", "not ", "x }}"),
    ("{{ 1", " < 1", " }}"),
    ("{{ [1", ", 1", "] }}"),
    ("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
    ("{% set x = 'ab' %}", "{% set x = x ~ x %}", "{{ x | length }}"),
    ("{% set x = ['ab'] %}", "{% set x = [x, x] %}", "{{ x == x }}"),
    ("{% set x = 'ab' %}", "{% set x = x | replace('a', 'aaaa') %}", "{{ x | length }}"),
    ("{% set x = {} %}", "{% set x = {'a': x} %}", "{{ x | tojson }}"),
];

/// Brackets that open and close in one tag.
const BRACKETS: [(&str, &str); 4] = [("[", "]"), ("(", "1)"), ("{1: ", "1}"), ("x[", "1]")];

/// Builds a template from pieces of three bytes, a kind and how often, each inside the one before; renders it.
pub fn check(input: &[u8]) -> bool {
    let mut source = "text".to_owned();
    for piece in input.as_chunks::<3>().0.iter().take(8) {
        let [kind, low, high] = *piece;
        let count = size([low, high], MOST);
        let kind = usize::from(kind) % (NESTED.len() + CHAINS.len() + BRACKETS.len());
        source = if let Some((open, close)) = NESTED.get(kind) {
            // Loops multiply: nested by doublings, few of them take the second that a template may take.
            let count = if open.contains("{% for") { count.ilog2() as usize / 2 + 1 } else { count };
            format!("{}{source}{}", open.repeat(count), close.repeat(count))
        } else if let Some((begin, link, end)) = CHAINS.get(kind - NESTED.len()) {
            format!("{source}{begin}{}{end}", link.repeat(count))
        } else {
            let (open, close) = BRACKETS[kind - NESTED.len() - CHAINS.len()];
            format!("{source}{{{{ {}{} }}}}", open.repeat(count), close.repeat(count))
        };
        // Sources of any size are refused by their length alone: others are the matter here.
        if source.len() > 1 << 20 {
            break;
        }
    }
    let work = move || {
        let said = vec![Message::new(Role::User, "hello")];
        let conversation = Conversation::new(said, GenerationPrompt::Add);
        ChatTemplate::compile(&source).is_ok_and(|template| template.render(&conversation, "", "").is_ok())
    };
    let running = thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    running.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}
