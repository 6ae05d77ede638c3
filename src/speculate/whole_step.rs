//! Steps without the host: the device grows a tree, chooses which of its nodes are verified, verifies, walks and moves what is accepted. The
//! host launches two graphs, waits once, and reads what became of them.
//!
//! The trees are those of every other schedule. Of these the device verifies the best nodes by the logarithms that it grew them by, which
//! tell nodes apart that are worth the same to the host: what is verified may differ among such nodes, what is emitted does not.

use crate::{runtime::GrownVerification, tree::NodeId};

use super::{Budget, Decoder, Limits, SpeculateError, Stage, stats::Lap};

impl Decoder {
    /// Makes ready to verify the trees of every depth that steps may draft.
    pub(super) fn prepare_whole_steps(&mut self) -> Result<(), SpeculateError> {
        let Self { session, drafter, shape, grown, .. } = self;
        let drafter = drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
        let tree = drafter.expect("a phase was prepared").growing(session);
        let nodes = (1..=shape.depth).map(|depth| depth * shape.draft_width + 1);
        let prepared =
            nodes.map(|nodes| session.prepare_grown_verification(shape.verify_width.min(nodes), &tree));
        *grown = prepared.collect::<Result<Vec<GrownVerification>, _>>()?;
        Ok(())
    }

    /// Whether a step that nobody observes may leave all to the device.
    pub(super) fn may_step_whole(&self) -> bool {
        self.schedule.prunes_on_device() && self.is_walked_on_device()
    }

    /// Drafts `depth` growths and verifies the best of them, up to what is left to count; whether there was anything to draft.
    pub(super) fn step_whole(&mut self, depth: usize, limits: Limits<'_>) -> Result<bool, SpeculateError> {
        let Self { session, drafter, history, stats, tree, keep, walk, .. } = self;
        let mut lap = Lap::start();
        let drafter = drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
        let drafter = drafter.expect("the schedule was prepared");
        let budget = Budget { session: &mut *session, history, depth, stats: &mut *stats, observer: None };
        let is_drafted = drafter.begin(budget)?;
        stats.add_time(Stage::Draft, lap.next());
        if !is_drafted {
            return Ok(false);
        }
        let verification = self.grown[depth - 1];
        session.verify_grown(verification, tree.token(NodeId::ROOT));
        stats.add_time(Stage::Verify, lap.next());
        // What a device showed that had failed is no answer.
        session.check_device()?;
        drafter.plant(tree, session);
        stats.add_time(Stage::Grow, lap.next());
        session.commit_grown(verification, |nodes, accepted| {
            keep.clear();
            keep.extend(nodes.iter().map(|node| NodeId::from_index(*node as usize)));
            walk.follow(keep, accepted, limits);
            walk.path.len()
        });
        history.extend_from_slice(&walk.emitted);
        stats.add_time(Stage::Accept, lap.next());
        stats.walked_by_device += 1;
        Ok(true)
    }
}
