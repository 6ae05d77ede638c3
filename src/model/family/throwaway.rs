//! A family for tests: Llama's layers over embeddings that the configuration scales. It shows what a new family costs:
//! this file and its lines in `mod.rs`.

use super::{Family, Source, recipe::Recipe};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

pub(super) static THROWAWAY: Family = Family {
    name: "throwaway",
    models: "none",
    beside_llama: "scaled embeddings",
    tried: &[],
    classes: &[("throwaway", "ThrowawayForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |_, _| Ok(()),
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let embedding_scale = source.float("embedding_scale", "embedding_multiplier")?.unwrap_or(2.0) as f32;
    Ok(Recipe { embedding_scale, ..Recipe::llama(source.config) })
}

mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::THROWAWAY;
    use crate::{
        ir::Op,
        model::{Model, synthetic::SyntheticSpec},
    };

    #[test]
    fn a_family_is_its_file_and_one_entry() {
        let place = tempfile::tempdir().unwrap();
        let (file, folder) = (place.path().join("model.gguf"), place.path().join("model"));
        let spec = SyntheticSpec { family: &THROWAWAY, ..SyntheticSpec::default() };
        spec.write_gguf(&file).unwrap();
        spec.write_folder(&folder).unwrap();
        let config = folder.join("config.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        json["embedding_multiplier"] = json!(3.5);
        fs::write(config, json.to_string()).unwrap();
        for (path, factor) in [(file, 2.0), (folder, 3.5)] {
            let model = Model::open(&path).unwrap();
            assert_eq!((model.config.family, model.unused_tensors.len()), (&THROWAWAY, 0));
            let mut nodes = model.graph.topological().into_iter().map(|value| &model.graph.node(value).op);
            assert!(nodes.any(|op| *op == Op::Scale { factor }));
        }
    }
}
