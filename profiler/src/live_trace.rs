//! Recorded steps of drafters that learn from the verifier while they decode: what each step drafted, and what was
//! accepted.
use serde::{Deserialize, Serialize};

use crate::{
    subject::DrafterName,
    trace::{Fault, TraceError, check_edges, check_path, ensure, fault},
};

/// The steps of one such drafter over calibration prompts, decoded at one temperature one after another in one shape.
/// What it drafts depends on what it learned before, so every shape needs a recording of its own, except shapes that
/// verify slightly fewer rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTrace {
    /// Which drafter of the profile.
    pub drafter: DrafterName,
    /// Temperature of the requests.
    pub temperature: f32,
    /// Dd of the shape.
    pub depth: u32,
    /// Wd of the shape, as the drafter understands it.
    pub width: u32,
    /// Wv of the shape: most nodes of a tree, all of which were verified.
    pub nodes: u32,
    /// What was recorded, prompt by prompt.
    pub prompts: Vec<LivePrompt>,
}

/// The steps of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LivePrompt {
    /// Kind of the prompt, as the calibration set calls it.
    pub kind: String,
    /// Steps in order.
    pub steps: Vec<LiveStep>,
}

/// One recorded step. Nodes are numbered as they were inserted; the root is node 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveStep {
    /// Committed tokens before the root.
    pub context: u32,
    /// Parent of every node, smaller than the node; the root's is 0.
    pub parents: Vec<u32>,
    /// Token of every node.
    pub tokens: Vec<u32>,
    /// The drafter's value of every node.
    pub values: Vec<f32>,
    /// Pinned nodes, ascending; the ancestors of each, below the root, are pinned too.
    pub pinned: Vec<u32>,
    /// Tokens the verifier emitted: the accepted path, then the bonus token.
    pub verified: Vec<u32>,
}

impl LiveTrace {
    /// Every step in order.
    pub fn steps(&self) -> impl Iterator<Item = &LiveStep> {
        self.prompts.iter().flat_map(|prompt| &prompt.steps)
    }

    /// Checks the shape and every tree.
    ///
    /// # Errors
    /// [`TraceError`] names the first step that is wrong.
    pub fn validate(&self) -> Result<(), TraceError> {
        let error = |prompt, step, fault| TraceError::new(&self.drafter, prompt, step, fault);
        let LiveTrace { drafter: _, temperature, depth, width, nodes, prompts } = self;
        if !(temperature.is_finite() && *temperature >= 0.0) {
            return Err(error(0, 0, fault("temperature", "0 or more", temperature.to_string())));
        }
        let most = u64::from(*depth) * u64::from(*width) + 1;
        if *depth == 0 || *width == 0 || *nodes < 2 || u64::from(*nodes) > most {
            let found = format!("Dd {depth}, Wd {width}, Wv {nodes}");
            return Err(error(0, 0, fault("shape", "Wv from 2 to Dd * Wd + 1", found)));
        }
        for (p, prompt) in prompts.iter().enumerate() {
            for (s, step) in prompt.steps.iter().enumerate() {
                self.check(step).map_err(|fault| error(p, s, fault))?;
            }
        }
        Ok(())
    }

    fn check(&self, step: &LiveStep) -> Result<(), Fault> {
        let LiveStep { context: _, parents, tokens, values, pinned, verified } = step;
        let nodes = parents.len();
        let fits =
            (1..=self.nodes as usize).contains(&nodes) && tokens.len() == nodes && values.len() == nodes;
        let sizes = format!("{nodes} parents, {} tokens, {} values", tokens.len(), values.len());
        ensure(fits, "nodes", format_args!("1 to {}, each with all it has", self.nodes), sizes)?;
        let good = values.iter().all(|value| value.is_finite() && *value >= 0.0);
        ensure(good, "values", "finite, 0 or more", format_args!("{values:?}"))?;
        check_edges(parents, tokens)?;
        let mut depths = vec![0_u32; nodes];
        for node in 1..nodes {
            depths[node] = depths[parents[node] as usize] + 1;
            ensure(
                depths[node] <= self.depth,
                "depth",
                format_args!("at most {}", self.depth),
                depths[node],
            )?;
        }
        let ascends = pinned.is_sorted_by(|a, b| a < b);
        let whole = |node: &u32| {
            let parent = parents.get(*node as usize).copied();
            *node > 0 && parent.is_some_and(|p| p == 0 || pinned.binary_search(&p).is_ok())
        };
        let rule = "ascending nodes with their ancestors";
        ensure(ascends && pinned.iter().all(whole), "pinned nodes", rule, format_args!("{pinned:?}"))?;
        check_path(parents, tokens, verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> LiveTrace {
        let step = LiveStep {
            context: 9,
            parents: vec![0, 0, 1, 0],
            tokens: vec![5, 6, 7, 8],
            values: vec![1.0, 0.5, 0.25, 0.0],
            pinned: vec![1, 2],
            verified: vec![6, 7, 3],
        };
        LiveTrace {
            drafter: DrafterName::new("learner").unwrap(),
            temperature: 0.0,
            depth: 2,
            width: 2,
            nodes: 4,
            prompts: vec![LivePrompt { kind: "chat".to_owned(), steps: vec![step] }],
        }
    }

    #[test]
    fn a_good_recording_passes_and_each_broken_rule_is_named() {
        trace().validate().unwrap();
        type Break = fn(&mut LiveTrace);
        let breaks: [(&str, Break); 12] = [
            ("temperature", |t| t.temperature = f32::NAN),
            ("shape", |t| t.nodes = 6),
            ("shape", |t| t.depth = 0),
            ("nodes", |t| t.nodes = 3),
            ("nodes", |t| t.prompts[0].steps[0].values.truncate(3)),
            ("values", |t| t.prompts[0].steps[0].values[2] = f32::NAN),
            ("parent of a node", |t| t.prompts[0].steps[0].parents[2] = 2),
            ("depth", |t| t.prompts[0].steps[0].parents[3] = 2),
            ("children of a node", |t| t.prompts[0].steps[0].tokens[3] = 6),
            ("pinned nodes", |t| t.prompts[0].steps[0].pinned = vec![2]),
            ("accepted token", |t| t.prompts[0].steps[0].verified[1] = 9),
            ("verified tokens", |t| t.prompts[0].steps[0].verified.clear()),
        ];
        for (what, break_it) in breaks {
            let mut broken = trace();
            break_it(&mut broken);
            assert_eq!(broken.validate().unwrap_err().what, what);
        }
    }
}
