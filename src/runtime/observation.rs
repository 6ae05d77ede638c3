//! The steps of a forward, and their times for measurements.

use crate::{
    backend::{Arithmetic, Exercise, Observer},
    ir::{Choice, LinearShape, Work, step_name},
};

use super::{Choices, Forward, Logits, Session, role::Role};

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
        self.steps_of(Role::Logits(self.width))
    }

    /// The steps that [`choose`](Self::choose) will take.
    pub fn choosing_steps(&self) -> Vec<StepFacts> {
        self.steps_of(Role::Candidates(self.width, None))
    }

    /// Of each of [`choosing_steps`](Self::choosing_steps) the group it belongs to, if it belongs to one.
    pub fn choosing_groups(&self) -> Vec<Option<u32>> {
        let set = self.session.set();
        let program = &set.executables().programs()[set.program(Role::Candidates(self.width, None))];
        program.steps.iter().map(|step| step.group.map(|group| group.0)).collect()
    }

    fn steps_of(&self, role: Role) -> Vec<StepFacts> {
        let inputs = &self.session.inputs[role];
        let set = self.session.set();
        let program = &set.executables().programs()[set.program(role)];
        let facts = |step| StepFacts {
            name: step_name(program, step),
            kernel: step.kernel.to_string(),
            linear: LinearShape::of(program, step),
            arithmetic: Arithmetic::of(step.kernel.class),
            work: Work::of(program, step, inputs),
        };
        program.steps.iter().map(facts).collect()
    }

    /// Runs it whole, calls the observer at every step, and shows the logits.
    ///
    /// # Panics
    /// If the backend has no instruments.
    pub fn run_observed(self, observer: Observer<'_>) -> Logits<'a> {
        let Self { session, width } = self;
        session.replay_observed(Role::Logits(width), observer);
        session.logits()
    }

    /// As [`run_observed`](Self::run_observed), but shows candidates.
    ///
    /// # Panics
    /// As [`choose`](Self::choose), and if the backend has no instruments.
    pub fn choose_observed(self, choice: Choice, observer: Observer<'_>) -> Choices<'a> {
        let Self { session, width } = self;
        let role = Role::Candidates(width, None);
        session.inputs[role].set_choice(choice);
        session.replay_observed(role, observer);
        session.choices(role)
    }
}

impl Session {
    fn replay_observed(&mut self, role: Role, observer: Observer<'_>) {
        let instruments = self.replay.instruments().expect("the backend has instruments");
        let program = self.set.program(role);
        instruments.replay_observed(program, &self.inputs[role], self.nothing_skipped.as_mask(), observer);
        self.last = Some(role);
    }

    /// Does an exercise with the session's threads; returns the amount done, in the unit of the exercise.
    ///
    /// # Panics
    /// If the backend has no instruments.
    pub fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.instruments().exercise(exercise)
    }
}
