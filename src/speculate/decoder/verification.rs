//! Verification: the verifier's tokens after a step's rows, which nodes they accept, and the commit.
//!
//! However much of it the device does by itself, the tokens are the same. Of a tree that it has grown the device
//! verifies the best nodes by the logarithms that it grew them by, which tell nodes apart that are worth the same to
//! the host: what is verified may differ among such nodes, what is emitted does not.

use crate::{
    runtime::GrownVerification,
    speculate::{
        SpeculateError, StepStage, Verified, drafter::noise_of, step_outcome::VerifiedCandidates,
        tree_forward::tree_forward,
    },
    tree::NodeId,
};

use super::step::{Step, StepStorage};

/// What a verification leaves for acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// The verifier's token after every row; the heads that follow from them are drafted, if that is asked.
    Tokens { heads_ahead: bool },
    /// The logits of every row: tokens are drawn along the path alone, since draws take long or depend on the path.
    Logits,
    /// The path that the device has walked.
    Walked,
}

impl Step<'_> {
    /// Verifies the selected rows: one forward, and after it what the device does by itself.
    pub(super) fn verify_rows(&mut self) -> Result<Verification, SpeculateError> {
        let Self { session, band, sequence, storage, limits, lap, .. } = self;
        let StepStorage { tree, rows, tokens, masks, .. } = &mut **storage;
        let (stats, sampler) = (&mut sequence.stats, &mut sequence.sampler);
        let forward = tree_forward(session, tree, rows)?;
        stats.add_time(StepStage::Mask, lap.next());
        if band.walks_on_device(sampler) {
            let forward = match sampler.coupling() {
                Some(coupling) => forward.under_noise(noise_of(&coupling, 0)),
                None => forward,
            };
            forward.verify();
            stats.add_time(StepStage::Verify, lap.next());
            return Ok(Verification::Walked);
        }
        // Rows whose tokens depend on the path, or are reported, are drawn from along the path only.
        let asks_ahead = tree.len() > 1 && sampler.wants_drawn_only();
        let mut ahead = if asks_ahead { band.ahead() } else { None };
        if let Some(ahead) = &mut ahead {
            ahead.draft_tail(tree, rows)?;
            stats.add_time(StepStage::Draft, lap.next());
        }
        let heads_ahead = ahead.is_some();
        tokens.clear();
        if sampler.wants_best_only() {
            let best = forward.choose(VerifiedCandidates::choice(band.verified.as_ref()), None);
            stats.add_time(StepStage::Verify, lap.next());
            if let Some(verified) = &mut band.verified {
                verified.note_choices(best, rows.len());
            }
            tokens.extend((0..rows.len()).map(|row| best.row(row).best()));
        } else {
            forward.begin_logits(None);
            if let Some(grammar) = sampler.grammar() {
                masks.prepare(grammar, tree, rows, || session.is_running());
            }
            let logits = session.begun_logits().expect("it was begun");
            stats.add_time(StepStage::Verify, lap.next());
            if let Some(verified) = &mut band.verified {
                verified.note_logits(logits, rows.len());
            }
            if !heads_ahead {
                return Ok(Verification::Logits);
            }
            let place = |node: NodeId| (sequence.history.len() + tree.depth(node) as usize) as u64;
            let drawn = rows.iter().enumerate();
            tokens.extend(drawn.map(|(row, node)| sampler.draw(logits.row(row), place(*node))));
        }
        if let Some(ahead) = band.ahead().filter(|_| heads_ahead) {
            stats.add_time(StepStage::Accept, lap.next());
            ahead.draft_heads(
                &Verified {
                    tree,
                    rows,
                    verifier_tokens: tokens,
                    coupling: sampler.coupling(),
                    tokens_left: limits.tokens,
                },
                session,
            )?;
            stats.add_time(StepStage::Draft, lap.next());
        }
        Ok(Verification::Tokens { heads_ahead })
    }

    /// Verifies the tree that the device is growing: it chooses the rows, verifies and walks. The host launches that,
    /// waits once, and reads what became of it.
    pub(super) fn verify_growing(
        &mut self,
        grown: GrownVerification,
    ) -> Result<Verification, SpeculateError> {
        let Self { session, band, sequence, storage, lap, .. } = self;
        let StepStorage { tree, rows, .. } = &mut **storage;
        let noise = sequence.sampler.coupling().map(|coupling| noise_of(&coupling, 0));
        session.verify_grown(grown, tree.token(NodeId::ROOT), noise)?;
        sequence.stats.add_time(StepStage::Verify, lap.next());
        let drafter = band.steps.drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
        drafter.expect("the schedule was prepared").plant(tree, session);
        rows.clear();
        rows.extend(session.walked().nodes.iter().map(|node| NodeId::from_index(*node as usize)));
        sequence.stats.add_time(StepStage::Grow, lap.next());
        Ok(Verification::Walked)
    }

    /// Walks through the tree along the verifier's tokens, up to the limits.
    ///
    /// # Errors
    /// [`SpeculateError::Grammar`] if the grammar allows no token after the root.
    pub(super) fn accept(&mut self, verification: Verification) -> Result<(), SpeculateError> {
        let Self { session, sequence, storage, limits, lap, .. } = self;
        let StepStorage { tree, rows, tokens, walk, masks, .. } = &mut **storage;
        let position = sequence.history.len();
        match verification {
            Verification::Tokens { heads_ahead: _ } => {
                walk.run(tree, rows, position, *limits, |row, _| tokens[row]);
            }
            Verification::Logits => {
                let (logits, sampler, stats) = (session.logits(), &mut sequence.sampler, &mut sequence.stats);
                sampler.begin_step();
                walk.try_run(tree, rows, position, *limits, |row, place| {
                    let mask = masks.take(row);
                    stats.masks_ahead += u64::from(row > 0 && mask.is_some());
                    sampler.draw_next(logits.row(row), place, mask)
                })?;
            }
            Verification::Walked => walk.follow(rows, session.walked().accepted, *limits),
        }
        sequence.stats.add_time(StepStage::Accept, lap.next());
        Ok(())
    }

    /// Commits the path and the tokens after it.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device has failed: its results are invalid, and the sequence is unchanged.
    pub(super) fn commit(&mut self, verification: Verification) -> Result<(), SpeculateError> {
        let Self { session, band, sequence, storage, lap, .. } = self;
        let StepStorage { rows, walk, offsets, .. } = &mut **storage;
        session.check_device()?;
        let last = walk.path.last().expect("a walk begins at the root");
        let last_row = rows.binary_search(last).expect("a walk goes along verified rows");
        match verification {
            Verification::Tokens { heads_ahead: _ } | Verification::Logits => {
                offsets.clear();
                offsets.extend(walk.path.iter().map(|node| node.get()));
                session.commit(offsets);
            }
            Verification::Walked => {
                session.commit_walked(walk.path.len());
                sequence.stats.walked_by_device += 1;
            }
        }
        sequence.last_output = last_row;
        sequence.history.extend_from_slice(&walk.emitted);
        sequence.stats.add_time(StepStage::Commit, lap.next());
        if verification == (Verification::Tokens { heads_ahead: true }) {
            let ahead = band.ahead().expect("it has drafted the heads");
            ahead.keep_head(last_row, &sequence.history, session);
            sequence.stats.add_time(StepStage::Draft, lap.next());
        }
        Ok(())
    }
}
