//! Templates of hostile models: what one instruction makes of values is limited, and so is what is deep or wide.

use std::thread;
use std::time::{Duration, Instant};

use minijinja::value::Value;

use crate::text::chat_template::STACK_BYTES;
use crate::text::template::{Budget, compile, environment};
use crate::text::{ChatTemplate, Conversation, GenerationPrompt, Json, Message, Role, TextError};

fn render(source: &str) -> Result<String, TextError> {
    let said = vec![Message::new(Role::User, "hello  world")];
    ChatTemplate::compile(source)?.render(&Conversation::new(said, GenerationPrompt::Add), "<BOS>", "<EOS>")
}

/// What a template writes within a budget, or why it does not.
fn run(source: &str, budget: u64) -> Result<String, String> {
    let program = compile(source).map_err(|error| error.to_string())?;
    let (name, budget) = Budget::new(budget).into_variable();
    let message: Value = [("role", "user"), ("content", "hello  world")].into_iter().collect();
    let variables = [(name, budget), ("messages", Value::from(vec![message]))].into_iter().collect();
    program.run(&environment(), variables).map_err(|error| error.to_string())
}

/// A budget that the tests spend soon.
const SMALL: u64 = 1 << 20;

/// `step` sixty times over on `ns.x`, which begins as `start`.
fn sixty_times(start: &str, step: &str) -> String {
    format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.x | length }}}}"
    )
}

fn set(value: &str) -> String {
    format!("{{% set ns.x = {value} %}}")
}

#[test]
fn what_grows_by_itself_is_refused_by_the_limit() {
    let grows = [
        sixty_times("'ab'", &set("ns.x ~ ns.x")),
        sixty_times("'ab'", &set("ns.x + ns.x")),
        sixty_times("'ab'", &set("ns.x * 2")),
        sixty_times("'ab'", &set("[ns.x, ns.x] | join")),
        sixty_times("'ab'", &set("''.join([ns.x, ns.x])")),
        sixty_times("'ab'", &set("ns.x | replace('a', 'aa')")),
        sixty_times("'ab'", &set("ns.x.replace('', 'aaaa')")),
        sixty_times("'ab'", &set("'%s%s' | format(ns.x, ns.x)")),
        sixty_times("'ab'", &set("'{}{}'.format(ns.x, ns.x)")),
        sixty_times("'ab'", &set("{'a': ns.x, 'b': ns.x} | tojson")),
        sixty_times("'ab'", &set("[ns.x, ns.x] | string")),
        sixty_times("'ab\\n'", &set("(ns.x ~ 'a\\n') | indent(ns.x | length)")),
        sixty_times("'ab'", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
        sixty_times("'ab'", "{% macro f() %}{{ ns.x }}{{ ns.x }}{% endmacro %}{% set ns.x = f() %}"),
        // The engine copies its list of macros for each that a macro makes.
        "{% macro f() %}{% macro g() %}{% endmacro %}{% endmacro %}{% for i in range(2000) %}{% macro h() %}{% endmacro \
         %}{{ f() }}{% endfor %}".to_owned(),
        sixty_times("['ab']", &set("ns.x + ns.x")),
        sixty_times("['ab']", &set("ns.x * 2")),
        sixty_times("['ab']", &set("[ns.x, ns.x]")),
        sixty_times("['ab']", &set("{'a': ns.x, 'b': ns.x}")),
        sixty_times("['ab']", &set("dict(a=ns.x, b=ns.x)")),
        sixty_times("['ab']", &set("ns.x | chain(ns.x)")),
        sixty_times("['ab']", &set("ns.x | zip(ns.x)")),
        "{{ '%1000000000s' | format('x') }}".to_owned(),
        "{{ '%*s' | format(1000000000, 'x') }}".to_owned(),
        "{{ '{:>1000000000}'.format('x') }}".to_owned(),
        "{{ 'x' | indent(1000000000, true) }}".to_owned(),
        "{{ [1] | batch(1000000000000000000, 1) }}".to_owned(),
        "{{ [1] | slice(1000000000000000000) }}".to_owned(),
        "{{ messages | tojson(indent='x' * 10000000) }}".to_owned(),
        format!("{{% for i in range(100000) %}}{}{{% endfor %}}", "much ".repeat(2000)),
        format!(
            "{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}",
            "much ".repeat(2000)
        ),
    ];
    for source in grows {
        let error = run(&source, SMALL).expect_err(&source);
        let is_named =
            error.contains("more than 1048576 bytes") || error.contains("nests more than 100 deep");
        assert!(is_named, "{source}: {error}");
    }
    let error = render(&sixty_times("'ab'", &set("ns.x ~ ns.x"))).unwrap_err().to_string();
    assert!(error.contains("it makes, copies or compares more than 16786"), "{error}");
}

#[test]
fn no_value_contains_itself_or_nests_without_end() {
    let deep = |step: &str| {
        format!(
            "{{% set ns = namespace(x=['a']) %}}{{% for i in range(20000) %}}{step}{{% endfor %}}{{{{ ns.x | length \
             }}}}"
        )
    };
    for (source, expected) in [
        ("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(), "holds a namespace"),
        ("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}".to_owned(), "holds a namespace"),
        ("{% set a = namespace() %}{% set ns = namespace(a=a) %}{{ ns }}".to_owned(), "holds a namespace"),
        (
            "{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}".to_owned(),
            "no data",
        ),
        (deep(&set("[ns.x]")), "100 deep"),
        (deep(&set("{'a': ns.x}")), "100 deep"),
        (deep(&set("dict(a=ns.x)")), "100 deep"),
        (deep(&set("ns.x | batch(1)")), "100 deep"),
        (deep(&set("ns.x | map('batch', 1)")), "100 deep"),
    ] {
        let error = run(&source, 1 << 24).expect_err(&source);
        assert!(error.contains(expected), "{source}: {error}");
    }
    // These are views in the engine, each of the one before.
    for step in ["ns.x[0:]", "ns.x + []", "ns.x * 1", "ns.x | reverse"] {
        match run(&deep(&set(step)), 1 << 24) {
            Ok(length) => assert_eq!(length, "1", "{step}"),
            Err(error) => assert!(error.contains("bytes"), "{step}: {error}"),
        }
    }
}

/// Everything that one instruction may do to values of any size costs by their sizes: a rendering ends soon. The bound
/// is generous; without charges these take hours.
#[test]
#[allow(clippy::disallowed_methods, reason = "a generous bound against hangs")]
fn every_instruction_costs_what_its_values_are_large() {
    let long = "{% set s = 'ab' * 100000 %}{% set l = [s] * 1000 %}{% set t = s ~ '' %}";
    for work in [
        "{{ s == t }}",
        "{{ 'c' in s }}",
        "{{ s[1] }}",
        "{{ s[5:] | length }}",
        "{{ s | upper | length }}",
        "{{ l == (l + []) }}",
        "{{ s in l }}",
        "{{ l | map('upper') | list | length }}",
        "{{ s.split('b') | length }}",
        "{{ s.count('a') }}",
        "{% for c in s %}{% break %}{% endfor %}",
        "{{ l | unique | list | length }}",
        "{{ l | sort | length }}",
        "{{ s < t < s }}",
        "{{ s is eq(t) }}",
        "{{ l is in([l]) }}",
        "{{ l | select('eq', s) | list | length }}",
        "{{ s | list | length }}",
        "{{ l | join | length }}",
        "{{ s.startswith(t) }}",
        "{{ loop.changed(l) }}",
        "{{ l | tojson }}",
        "{{ l | string }}",
    ] {
        let source = format!(
            "{long}{{% for i in range(100000) %}}{{% for j in range(100) %}}{work}{{% endfor %}}{{% endfor %}}"
        );
        let began = Instant::now();
        let error = run(&source, SMALL).expect_err(work);
        assert!(
            error.contains("more than 1048576 bytes") || error.contains("invalid operation"),
            "{work}: {error}"
        );
        assert!(began.elapsed() < Duration::from_secs(60), "{work}: {:?}", began.elapsed());
    }
}

#[test]
fn what_is_replaced_means_the_same() {
    for (source, expected) in [
        ("{{ 1 < 2 < 3 }}{{ 3 < 2 < 3 }}{{ 1 < 3 > 2 == 2 != 1 }}", "TrueFalseTrue"),
        (
            "{{ 'a' in ['a'] }}{{ 'a' not in 'b' }}{{ 1 in {1: 2} }}{{ 'a' in 'ab' in ['ab'] }}",
            "TrueTrueTrueTrue",
        ),
        (
            "{{ [1, 2] + [3] }}{{ [0] * 2 }}{{ 'ab' * 2 }}{{ 1 + 2 }}{{ 1.5 + 1 }}{{ 2 * 3 }}",
            "[1, 2, 3][0, 0]abab32.56",
        ),
        ("{{ 'a' ~ 1 ~ none ~ missing ~ [1] }}", "a1None[1]"),
        ("{{ {'b': 1, 'a': [messages[0].role]} }}", "{\"b\": 1, \"a\": [\"user\"]}"),
        (
            "{{ messages[0]['content'][1:4] }}{{ messages[::-1][0].role }}{{ 'abc'[1] }}{{ [1][5] is defined }}",
            "elluserbFalse",
        ),
        (
            "{% for x in [1, 2] %}{% if x == 1 %}a{% else %}b{% endif %}{% else %}c{% endfor %}{% for x in [] %}{% \
             else %}d{% endfor %}",
            "abd",
        ),
        ("{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12"),
        (
            "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{% call f(2, b=3) \
             %}!{% endcall %}",
            "1x23!",
        ),
        (
            "{% set ns = namespace(a=1, l=[]) %}{% for i in range(3) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l \
             }}{{ ns.a }}",
            "[0, 1, 2]1",
        ),
        ("{% set x %}a{{ 1 }}b{% endset %}{{ x | upper }}{% filter upper %}z{% endfilter %}", "A1BZ"),
        ("{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}{% set outer = loop %}", "TrueFalseTrue"),
        (
            "{{ 'a,b'.split(',') | join('-') }}{{ ', '.join(['x', 'y']) }}{{ {'k': 'v'}.items() | list }}",
            "a-bx, y[[\"k\", \"v\"]]",
        ),
        (
            "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='role') | list }}{{ [3, 1] | sort }}",
            "[\"user\"][1, 3]",
        ),
    ] {
        assert_eq!(render(source).unwrap_or_else(|error| panic!("{source}: {error}")), expected, "{source}");
    }
}

#[test]
fn names_of_the_engine_cannot_be_given() {
    let conversation = Conversation {
        variables: Json::Object(vec![
            ("\0~".to_owned(), Json::String("x".to_owned())),
            ("\0budget".to_owned(), Json::Null),
            ("own".to_owned(), Json::Bool(true)),
        ])
        .try_into()
        .unwrap(),
        ..Conversation::new(vec![Message::new(Role::User, "hi")], GenerationPrompt::Add)
    };
    let template = ChatTemplate::compile("{{ 'a' ~ own }}").unwrap();
    assert_eq!(template.render(&conversation, "", "").unwrap(), "aTrue");
}

/// The deepest and the widest that is accepted, and combinations of them.
fn at_the_limits() -> Vec<String> {
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let within = |expression: String| format!("{{{{ {expression} }}}}");
    let chain = vec!["1"; 190].join("+");
    let branches = format!("{{% if 0 %}}{}x{{% endif %}}", "{% elif 0 %}".repeat(199));
    let mut sources = vec![
        within(chain.clone()),
        within(format!("x{} is defined", ".a".repeat(195))),
        within(format!("1{}", "|string".repeat(199))),
        within(format!("{}1", "not ".repeat(199))),
        within(format!("{}1", "- ".repeat(199))),
        within(vec!["1"; 199].join("<")),
        within(nested("[", "", "]", 73)),
        within(nested("(", "1", ")", 73)),
        within(nested("{1:", "1", "}", 73)),
        branches.clone(),
        "{% macro f(n) %}{% for i in [1] %}{{ f(n) }}{% endfor %}{% endmacro %}{{ f(0) }}".to_owned(),
        "{% macro f() %}{% call g() %}{{ f() }}{% endcall %}{% endmacro %}{% macro g() %}{{ caller() }}{% endmacro \
         %}{{ f() }}".to_owned(),
        "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        format!("{}{{{{ ns.x }}}}{{{{ ns.x == ns.x }}}}{{{{ [ns.x][0] | pprint | length }}}}{{{{ ns.x | tojson }}}}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(98) %}{% set ns.x = [ns.x] %}{% endfor %}"),
        nested("{% for i in [1] %}", &within(chain.clone()), "{% endfor %}", 144),
        nested("{% for i in [1] %}", &within(nested("[", &vec!["1"; 100].join("+"), "]", 36)), "{% endfor %}", 70),
        nested("{% for i in [1] %}", &branches.replace('x', &within(chain)), "{% endfor %}", 140),
    ];
    for (open, close) in [
        ("{% if 1 %}", "{% endif %}"),
        ("{% filter upper %}", "{% endfilter %}"),
        ("{% set x %}", "{% endset %}"),
        ("{% macro f() %}", "{% endmacro %}"),
        ("{% call f() %}", "{% endcall %}"),
        ("{% with a = 1 %}", "{% endwith %}"),
    ] {
        sources.push(nested(open, "x", close, 144));
    }
    sources
}

#[test]
fn templates_fit_half_of_the_stack() {
    for source in at_the_limits() {
        let work = move || {
            let program = compile(&source).unwrap_or_else(|error| panic!("{error}: {source}"));
            let environment = environment();
            let (name, budget) = Budget::new(1 << 24).into_variable();
            let variables: Value = [(name, budget)].into_iter().collect();
            // Whether it fails is no matter here: what it holds is dropped either way.
            program.run(&environment, variables).is_ok()
        };
        let thread = thread::Builder::new().stack_size(STACK_BYTES / 2).spawn(work).expect("a thread");
        thread.join().expect("nothing panics");
    }
}

#[test]
fn what_is_deeper_or_wider_is_refused_before_it_is_compiled() {
    let within = |expression: String| format!("{{{{ {expression} }}}}");
    for (source, expected) in [
        (within(vec!["1"; 100_000].join("+")), "more than 200 operators"),
        (within(format!("x{}", ".a".repeat(100_000))), "more than 200 operators"),
        (within(format!("1{}", "|string".repeat(100_000))), "more than 200 operators"),
        (within(format!("{}1", "not ".repeat(100_000))), "more than 200 operators"),
        (within(format!("{}1", "-".repeat(100_000))), "more than 200 operators"),
        (within("(".repeat(100_000)), "more than 200 operators"),
        (within("[".repeat(100_000)), "more than 200 operators"),
        ("{% if 0 %}".repeat(50_000), "recursion limits"),
        ("{% for i in x %}".repeat(50_000), "recursion limits"),
        (format!("{{% if 0 %}}{}", "{% elif 0 %}".repeat(50_000)), "more than 200 `elif`"),
        ("x".repeat(2 << 20), "at most 1048576"),
        ("{{ f(*x) }}".to_owned(), "`*` before an argument is not supported (line 1)"),
        ("{{ f(**x) }}".to_owned(), "`**` before an argument is not supported"),
    ] {
        let error = ChatTemplate::compile(&source).expect_err(&source[..20.min(source.len())]).to_string();
        assert!(error.contains(expected), "{}: {error}", &source[..20.min(source.len())]);
    }
}

/// The caller's stack is no matter: templates have their own.
#[test]
fn a_template_renders_under_a_small_stack() {
    let work = || {
        for source in at_the_limits() {
            let _ = render(&source);
        }
    };
    thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(work)
        .expect("a thread")
        .join()
        .expect("nothing panics");
}
