//! The refinement of a service's plan while no request comes: `yggc plan refine` as a process of its own, which a
//! request ends at once.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use yggc::engine::Tier;

use crate::{
    cli::{
        error::Failure,
        output::remark,
        plan_cache::CachedPlan,
        settings::{Machine, Memory},
    },
    serve::IdleWork,
};

/// The command that refines the cached plan of a service, and its process while it runs.
#[derive(Debug)]
pub(crate) struct Refinement {
    command: Command,
    /// The file that is there once the plan is refined.
    done: PathBuf,
    /// Bytes that the process takes in addition to this one, if weights are streamed since memory is short.
    needed: Option<u64>,
    running: Option<Child>,
    /// Whether it was said that memory is too short.
    is_short: bool,
}

impl Refinement {
    /// For the cached plan at `place`, of the model that was named like this.
    ///
    /// # Errors
    /// [`Failure::Internal`] if this program does not find itself.
    pub(crate) fn new(
        place: &CachedPlan,
        cache: &Path,
        model: Option<&Path>,
        draft_model: Option<&Path>,
        machine: Machine,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Internal(format!("the program does not find itself: {error}")))?;
        let Machine { tier, activations, cache: format, threads, resident, memory: budget } = machine;
        let mut command = Command::new(program);
        command.args(["plan", "refine", "--threads"]).arg(threads.to_string());
        match tier {
            Tier::Cuda => command.args(["--device", "cuda"]),
            tier => command.args(["--isa", tier.name(), "--activations"]).arg(activations.to_string()),
        };
        command.arg("--cache").arg(format.to_string()).arg("--cache-dir").arg(cache);
        if let Some(bytes) = resident {
            command.arg("--resident").arg(bytes.to_string());
        }
        if let Some(Memory { bytes, context }) = budget {
            command.arg("--memory").arg(bytes.to_string());
            if let Some(context) = context {
                command.arg("--context").arg(context.to_string());
            }
        }
        for (flag, path) in [("--model", model), ("--draft-model", draft_model)] {
            if let Some(path) = path {
                command.arg(flag).arg(path);
            }
        }
        // What it prints would stand between the lines of the service.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // In addition to the weights in memory, a substitute of the others takes about as much.
        let of_weights = || Some(resident? as u64).map(|bytes| bytes.saturating_mul(2));
        let needed = budget.map(|budget| budget.bytes).or_else(of_weights);
        Ok(Self { command, done: place.refined_path(), needed, running: None, is_short: false })
    }

    /// Whether there is memory for another process with the model, and if not, says so once.
    fn has_room(&mut self) -> bool {
        let Some((needed, free)) = self.needed.zip(yggc::storage::free_memory()) else { return true };
        let has_room = free as u64 >= needed;
        if !has_room && !self.is_short {
            self.is_short = true;
            remark(format_args!(
                "the plan is not refined while this service runs: expected {} MiB of free memory, found {}; stop the \
                 service and run `yggc plan refine`",
                needed >> 20,
                free >> 20
            ));
        }
        has_room
    }

    /// Takes note of a process that has ended; whether one runs.
    fn is_running(&mut self) -> bool {
        let Some(child) = &mut self.running else { return false };
        match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                self.running = None;
                if status.success() {
                    remark(format_args!("the plan is refined; the next start uses it"));
                } else {
                    remark(format_args!(
                        "the plan could not be refined; `yggc plan refine` says why, and the plan stays as it is"
                    ));
                }
                false
            }
            Err(_) => false,
        }
    }
}

impl IdleWork for Refinement {
    fn begin(&mut self) {
        if self.is_running() || self.done.exists() || !self.has_room() {
            return;
        }
        match self.command.spawn() {
            Ok(child) => {
                remark(format_args!("no request comes: measuring longer for a better plan"));
                self.running = Some(child);
            }
            Err(error) => remark(format_args!("the plan could not be refined: {error}")),
        }
    }

    fn end(&mut self) {
        if !self.is_running() {
            return;
        }
        let Some(mut child) = self.running.take() else { return };
        // It may just have ended. What it has not stored is lost, and the plan that is there stays whole.
        let _ = child.kill();
        let _ = child.wait();
        remark(format_args!("a request came: the plan stays as it is until it can be refined"));
    }
}

impl Drop for Refinement {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
