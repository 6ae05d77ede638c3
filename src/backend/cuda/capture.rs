//! Captured graphs.

use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaStream, sys};

use super::{
    super::BackendError,
    device::check,
    replay::CudaReplay,
    streaming::{Streamed, in_turn},
};

/// A captured graph, launched only through the replay that owns it.
pub(super) struct Graph {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    /// The weights that it copies to the device, if it does.
    streamed: Option<Arc<Streamed>>,
}

// SAFETY: graphs are not synchronised by themselves: a replay is used by one thread at a time, and so is its graph.
unsafe impl Send for Graph {}

impl Graph {
    /// Puts it on the stream that it was captured from; one that streams weights when it is its turn.
    pub(super) fn launch(&self, what: &'static str) -> Result<(), BackendError> {
        in_turn(self.streamed.as_deref(), &self.stream, || check(what, self.graph.launch()))
    }
}

impl CudaReplay {
    /// A graph of what `work` puts on the stream, which `streams` weights or does not. A driver that refuses it with
    /// kernels that overlap is asked for one without; nothing overlaps from then on.
    pub(super) fn capture(
        &mut self,
        streams: bool,
        mut work: impl FnMut(&mut Self) -> Result<(), BackendError>,
    ) -> Result<Graph, BackendError> {
        match self.capture_once(streams, &mut work) {
            Err(_) if self.executables.device.end_overlap() => self.capture_once(streams, &mut work),
            captured => captured,
        }
    }

    fn capture_once(
        &mut self,
        streams: bool,
        mut work: impl FnMut(&mut Self) -> Result<(), BackendError>,
    ) -> Result<Graph, BackendError> {
        // Other threads may allocate and copy meanwhile, which the global mode would refuse.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        check("begin a capture", self.stream.begin_capture(mode))?;
        // Ended after an error, too: else the stream would stay in its capture.
        let captured = work(self);
        let graph = check("end a capture", self.stream.end_capture(sys::CUgraphInstantiate_flags(0)));
        captured?;
        let graph = graph?.ok_or_else(|| BackendError::Cuda {
            what: "capture a forward",
            reason: "the graph is empty".to_owned(),
        })?;
        // The first launch would do it otherwise, within a step.
        check("upload a graph", graph.upload())?;
        let streamed = self.streamed().filter(|_| streams).cloned();
        Ok(Graph { graph, stream: Arc::clone(&self.stream), streamed })
    }

    /// Does `work` once, which `streams` weights or does not, and waits for its end: a driver loads the code of kernels
    /// when they first run.
    pub(super) fn try_once(
        &mut self,
        streams: bool,
        what: &'static str,
        work: impl FnOnce(&mut Self) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let (streamed, stream) = (self.streamed().filter(|_| streams).cloned(), Arc::clone(&self.stream));
        in_turn(streamed.as_deref(), &stream, || work(self))?;
        check(what, stream.synchronize())
    }
}
