//! What a forward's steps are and when they end, for whoever measures them.

use crate::{
    backend::{Arithmetic, Exercise, Observer},
    ir::{Choice, LinearShape, Work, step_name},
};

use super::{Choices, Forward, Logits, Session};

/// One step of an executable, as far as its speed can be judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepFacts {
    /// What it does, the same for all layers: the op and the weights it reads.
    pub name: String,
    /// The kernel: op, format and tier.
    pub kernel: String,
    /// What its tuning depends on, if it is a linear.
    pub linear: Option<LinearShape>,
    /// How its products are made.
    pub arithmetic: Arithmetic,
    /// The least it moves and computes on the rows of this forward.
    pub work: Work,
}

impl<'a> Forward<'a> {
    /// The steps that [`run`](Self::run) will take, by number, with the rows pushed so far.
    pub fn steps(&self) -> Vec<StepFacts> {
        self.steps_of(self.program)
    }

    /// The steps that [`choose`](Self::choose) will take.
    pub fn choosing_steps(&self) -> Vec<StepFacts> {
        self.steps_of(self.session.set().choosing_program(self.program, None))
    }

    fn steps_of(&self, program: usize) -> Vec<StepFacts> {
        let inputs = &self.session.inputs[self.program];
        let program = &self.session.set().executables().programs()[program];
        let facts = |step| StepFacts {
            name: step_name(program, step),
            kernel: step.kernel.to_string(),
            linear: LinearShape::of(program, step),
            arithmetic: Arithmetic::of(step.kernel.class),
            work: Work::of(program, step, inputs),
        };
        program.steps.iter().map(facts).collect()
    }

    /// Runs it whole, tells the observer of every step, and shows the logits.
    pub fn run_observed(self, observer: Observer<'_>) -> Logits<'a> {
        let Self { session, program } = self;
        let skipped = session.nothing_skipped.as_mask();
        session.replay.replay_observed(program, &session.inputs[program], skipped, observer);
        session.last_program = Some(program);
        Logits { session, program }
    }

    /// As [`run_observed`](Self::run_observed), but shows candidates.
    ///
    /// # Panics
    /// As [`choose`](Self::choose).
    pub fn choose_observed(self, choice: Choice, observer: Observer<'_>) -> Choices<'a> {
        let Self { session, program: filled } = self;
        session.inputs[filled].set_choice(choice);
        let program = session.set().choosing_program(filled, None);
        let skipped = session.nothing_skipped.as_mask();
        session.replay.replay_observed(program, &session.inputs[filled], skipped, observer);
        session.last_program = Some(program);
        Choices { session, program }
    }
}

impl Session {
    /// Does something that bounds every forward, with the session's threads; returns how much of it.
    pub fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.replay.exercise(exercise)
    }
}
