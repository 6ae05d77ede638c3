//! `yggc models`: families, formats, instruction sets and names of models. docs/families.md has the same tables.

use serde_json::json;
use yggc::{backend::Tier, ir::WeightFormat, model::Family};

use super::{
    args::ModelsArgs,
    error::Failure,
    fetch::{HUB_MODELS, KNOWN_MODELS},
    output,
};

/// A table with a title; the first row names its columns.
struct Table<const N: usize> {
    title: &'static str,
    rows: Vec<[String; N]>,
}

pub(crate) fn command(args: &ModelsArgs) -> Result<(), Failure> {
    let (families, formats, tiers, names) = (families(), formats(), tiers(), names());
    if args.json {
        return output::json(&json!({
            "families": families.json(),
            "formats": formats.json(),
            "instruction_sets": tiers.json(),
            "names": names.json(),
        }));
    }
    let parts = [families.text(), formats.text(), tiers.text(), names.text()];
    output::text(format_args!(
        "{}A name, a path or hf:OWNER/REPO[/FILE.gguf] is what -m takes. docs/families.md says what each family \
         computes.\n",
        parts.concat()
    ))
}

fn families() -> Table<4> {
    let row = |family: &Family| {
        let tried = if family.tried.is_empty() { "-".to_owned() } else { family.tried.join("; ") };
        [family.name, family.models, family.beside_llama, &tried].map(str::to_owned)
    };
    let titles =
        ["family", "models", "differences from Llama", "whole models compared with"].map(str::to_owned);
    Table { title: "Families", rows: [titles].into_iter().chain(Family::all().map(row)).collect() }
}

fn formats() -> Table<2> {
    let row = |format: WeightFormat| {
        let bits = 8.0 * format.block_bytes() as f64 / format.block_len() as f64;
        [format.to_string(), format!("{bits:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()]
    };
    let titles = ["format", "bits a weight"].map(str::to_owned);
    Table {
        title: "Weights, on processors and GPUs",
        rows: [titles].into_iter().chain(WeightFormat::ALL.map(row)).collect(),
    }
}

fn tiers() -> Table<3> {
    let needs = |tier| match tier {
        Tier::Reference => None,
        Tier::Portable => Some(("any processor", "on every machine")),
        Tier::Neon => {
            Some(("ARM of 64 bits with dot products of bytes; I8MM is used if there", "by emulation (QEMU)"))
        }
        Tier::Avx2 => Some(("AVX2, FMA, F16C; AVX-VNNI is used if there", "natively, AVX-VNNI as well")),
        Tier::Avx512 => Some(("AVX-512 F, BW, VL, DQ and VNNI", "natively")),
        Tier::Avx512Bf16 => Some(("also AVX-512 BF16", "natively")),
        Tier::Amx => Some(("also AMX tiles of BF16 and INT8", "natively and by emulation")),
        Tier::Cuda => Some(("NVIDIA, compute capability 8.0", "by emulation; once on an H100")),
    };
    let rows = Tier::ALL.into_iter().filter_map(|tier| {
        let (needs, tested) = needs(tier)?;
        Some([tier.name().to_owned(), needs.to_owned(), tested.to_owned()])
    });
    let titles = ["instruction set", "needs", "tested"].map(str::to_owned);
    Table { title: "Machines", rows: [titles].into_iter().chain(rows).collect() }
}

fn names() -> Table<3> {
    let known = KNOWN_MODELS.iter().map(|model| {
        let megabytes = model.identity.bytes / 1_000_000;
        [model.name.to_owned(), format!("{megabytes} MB, Apache-2.0"), model.identity.file_name.to_owned()]
    });
    let hub = HUB_MODELS.iter().map(|model| {
        let size = format!("{} MB, {}", model.megabytes, model.licence);
        [model.name.to_owned(), size, model.hub.to_owned()]
    });
    let titles = ["name", "size and licence", "what it is"].map(str::to_owned);
    Table { title: "Names", rows: [titles].into_iter().chain(known).chain(hub).collect() }
}

impl<const N: usize> Table<N> {
    /// For a terminal: cells below each other, columns as wide as their longest cell but for the last.
    fn text(&self) -> String {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        let line = |row: &[String; N]| {
            let cells: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("  {}\n", cells.join("  ").trim_end())
        };
        format!("{}\n{}\n", self.title, self.rows.iter().map(line).collect::<String>())
    }

    #[cfg(test)]
    fn markdown(&self) -> String {
        let mut lines: Vec<String> =
            self.rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        lines.insert(1, format!("|{}\n", "---|".repeat(N)));
        lines.concat()
    }

    fn json(&self) -> Vec<serde_json::Map<String, serde_json::Value>> {
        let [titles, rows @ ..] = self.rows.as_slice() else { unreachable!("titles come first") };
        let object = |row: &[String; N]| {
            titles
                .iter()
                .map(|title| title.replace(' ', "_"))
                .zip(row.iter().map(|cell| json!(cell)))
                .collect()
        };
        rows.iter().map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// `UPDATE_MODELS=1` writes the tables into the document.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "how a person asks for the document to be written")]
    fn the_document_has_the_tables_of_the_command() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/families.md");
        let mut text = fs::read_to_string(&path).unwrap();
        let tables = [
            ("families", families().markdown()),
            ("formats", formats().markdown()),
            ("machines", tiers().markdown()),
        ];
        for (name, table) in &tables {
            let begin = format!("<!-- yggc models: {name} -->\n");
            let start = text.find(&begin).unwrap_or_else(|| panic!("{begin} is missing")) + begin.len();
            let end = start + text[start..].find("<!-- end -->").expect("an end after it");
            text.replace_range(start..end, table);
        }
        if std::env::var_os("UPDATE_MODELS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "UPDATE_MODELS=1 writes the tables");
    }
}
