//! An HTML page that grows section by section and is well-formed XML.

use std::fmt::{Display, Write};

use yggc::planner::report::explain::tables::Table;

/// The style sheet: legible in colour and in grey, on screen and on paper.
const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #999 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd } th { border-bottom: 2px solid #666 }
tr.chosen td { font-weight: 700; background: #eee }
figure { margin: 1rem 0; display: inline-block; vertical-align: top; max-width: 100% } figcaption { font-weight: 600; max-width: 44rem }
.wide { overflow-x: auto } p.verdict { font-size: 1.25rem; font-weight: 600 } dt { font-weight: 600 } dd { margin: 0 0 .5rem 1.5rem }
ul { padding-left: 1.2rem; overflow-wrap: anywhere } svg { max-width: 100%; height: auto; font-family: sans-serif } nav a { margin-right: 1rem; white-space: nowrap }
";

/// A page under construction: finished sections, then an open one.
#[derive(Debug)]
pub(super) struct Page {
    title: String,
    body: String,
    /// Id and title of every section.
    sections: Vec<(String, String)>,
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: String::new(), sections: Vec::new() }
    }

    /// Ends the open section and begins another. `id` consists of letters.
    pub(super) fn section(&mut self, id: &str, title: &str) {
        if !self.sections.is_empty() {
            self.body.push_str("</section>\n");
        }
        let title = escape(title);
        self.push(format_args!("<section id=\"{id}\">\n<h2>{title}</h2>\n"));
        self.sections.push((id.to_owned(), title));
    }

    pub(super) fn paragraph(&mut self, text: impl Display) {
        self.push(format_args!("<p>{}</p>\n", escape(&text.to_string())));
    }

    /// What the page comes to.
    pub(super) fn verdict(&mut self, text: &str) {
        self.push(format_args!("<p class=\"verdict\">{}</p>\n", escape(text)));
    }

    /// Words and what they mean.
    pub(super) fn definitions(&mut self, words: &[(&str, &str)]) {
        let word = |(word, meaning): &(&str, &str)| {
            format!("<dt>{}</dt>\n<dd>{}</dd>\n", escape(word), escape(meaning))
        };
        self.push(format_args!("<dl>\n{}</dl>\n", words.iter().map(word).collect::<String>()));
    }

    /// A list of items; nothing without any.
    pub(super) fn list(&mut self, items: impl IntoIterator<Item = impl Display>) {
        let items: Vec<String> =
            items.into_iter().map(|item| format!("<li>{}</li>\n", escape(&item.to_string()))).collect();
        if !items.is_empty() {
            self.push(format_args!("<ul>\n{}</ul>\n", items.concat()));
        }
    }

    /// A table; rows for which `chosen` holds are highlighted. A table without rows says that it is empty.
    pub(super) fn table(
        &mut self,
        caption: &str,
        Table { titles, rows }: &Table,
        chosen: impl Fn(usize) -> bool,
    ) {
        if rows.is_empty() {
            return self.paragraph(format_args!("{caption}: none."));
        }
        let heads: String =
            titles.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
        self.push(format_args!(
            "<div class=\"wide\">\n<table>\n<caption>{}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n",
            escape(caption)
        ));
        for (place, row) in rows.iter().enumerate() {
            let class = if chosen(place) { " class=\"chosen\"" } else { "" };
            let row: String = row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            self.push(format_args!("<tr{class}>{row}</tr>\n"));
        }
        self.body.push_str("</tbody>\n</table>\n</div>\n");
    }

    /// A figure from an SVG document, with a description for screen readers.
    pub(super) fn figure(&mut self, caption: &str, svg: &str) {
        let caption = escape(caption);
        let (tag, inside) = svg.trim().split_once('>').unwrap_or((svg, ""));
        self.push(format_args!(
            "<figure>\n<figcaption>{caption}</figcaption>\n{tag} role=\"img\" \
             aria-label=\"{caption}\">{inside}\n</figure>\n"
        ));
    }

    /// The whole document except its first line.
    pub(super) fn finish(mut self) -> String {
        if !self.sections.is_empty() {
            self.body.push_str("</section>\n");
        }
        let links: Vec<String> =
            self.sections.iter().map(|(id, title)| format!("<a href=\"#{id}\">{title}</a>\n")).collect();
        let title = escape(&self.title);
        format!(
            "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>\n{}</nav>\n\
             <main>\n{}</main>\n</body>\n</html>\n",
            links.concat(),
            self.body
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("a string accepts every write");
    }
}

/// Text escaped for XML; characters that XML does not allow become question marks.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut page = Page::new("<b>&\"'");
        page.section("one", "<one>");
        page.paragraph("a < b & c\u{0}");
        page.list(["<i>"]);
        let table = Table { titles: vec!["<t>"], rows: vec![vec!["<td>".to_owned()]] };
        page.table("<c>", &table, |_| true);
        let html = page.finish();
        for bad in ["<b>", "<one>", "<i>", "<t>", "a < b", "<c>", "\u{0}", "<td><td>"] {
            assert!(!html.contains(bad), "{bad}: {html}");
        }
        assert!(
            html.contains("a &lt; b &amp; c?")
                && html.contains("<tr class=\"chosen\"><td>&lt;td&gt;</td></tr>")
        );
        assert!(html.contains("<title>&lt;b&gt;&amp;&quot;&#39;</title>"));
        assert!(html.contains("<th scope=\"col\">&lt;t&gt;</th>"), "{html}");
    }
}
