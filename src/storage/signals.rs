//! Signals that ask a program to end. They belong to the program, so the library alone never watches for them.

use std::io;

/// A signal that ends a program unless it is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// Ctrl-C: `SIGINT`.
    Interrupt,
    /// `SIGTERM`; on Windows Ctrl-Break, a console that is closed, and the end of the system.
    Terminate,
}

/// Watches for signals until it is dropped. Then signals that were watched for are ignored on Unix, and end the program
/// again on Windows.
#[derive(Debug)]
pub struct SignalWatch {
    _watch: system::Watch,
}

impl SignalWatch {
    /// Calls `told` on another thread for each of these signals that comes.
    ///
    /// # Errors
    /// If the system refuses a handler or a thread.
    pub fn start(signals: &[EndSignal], told: impl FnMut() + Send + 'static) -> io::Result<Self> {
        Ok(Self { _watch: system::Watch::start(signals, told)? })
    }
}

#[cfg(unix)]
mod system {
    use std::{
        io,
        thread::{self, JoinHandle},
    };

    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::{Handle, Signals},
    };

    use super::EndSignal;

    #[derive(Debug)]
    pub(super) struct Watch {
        signals: Handle,
        waiting: Option<JoinHandle<()>>,
    }

    impl Watch {
        pub(super) fn start(
            signals: &[EndSignal],
            mut told: impl FnMut() + Send + 'static,
        ) -> io::Result<Self> {
            let mut signals = Signals::new(signals.iter().map(|signal| match signal {
                EndSignal::Interrupt => SIGINT,
                EndSignal::Terminate => SIGTERM,
            }))?;
            let handle = signals.handle();
            let waiting = thread::Builder::new().name("signals".to_owned()).spawn(move || {
                for _ in signals.forever() {
                    told();
                }
            })?;
            Ok(Self { signals: handle, waiting: Some(waiting) })
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            self.signals.close();
            // If `told` panicked, that was reported when it did.
            let _ = self.waiting.take().map(JoinHandle::join);
        }
    }
}

#[cfg(windows)]
mod system {
    use std::{
        fmt, io,
        sync::{Mutex, MutexGuard, Once, PoisonError},
        thread,
    };

    use windows_sys::{
        Win32::System::Console::{
            CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_SHUTDOWN_EVENT, SetConsoleCtrlHandler,
        },
        core::BOOL,
    };

    use super::EndSignal;

    struct Watched {
        number: u64,
        signals: Vec<EndSignal>,
        told: Box<dyn FnMut() + Send>,
    }

    struct AllWatched {
        next: u64,
        watched: Vec<Watched>,
    }

    static ALL: Mutex<AllWatched> = Mutex::new(AllWatched { next: 0, watched: Vec::new() });

    fn all() -> MutexGuard<'static, AllWatched> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an entry.
    pub(super) struct Watch(u64);

    impl Watch {
        pub(super) fn start(signals: &[EndSignal], told: impl FnMut() + Send + 'static) -> io::Result<Self> {
            static INSTALLED: Once = Once::new();
            let mut refused = None;
            INSTALLED.call_once(|| {
                // SAFETY: the handler is a function of this program, which is never unloaded.
                if unsafe { SetConsoleCtrlHandler(Some(on_event), 1) } == 0 {
                    refused = Some(io::Error::last_os_error());
                }
            });
            if let Some(error) = refused {
                return Err(error);
            }
            let mut all = all();
            let number = all.next;
            all.next += 1;
            all.watched.push(Watched { number, signals: signals.to_vec(), told: Box::new(told) });
            Ok(Self(number))
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            all().watched.retain(|watched| watched.number != self.0);
        }
    }

    impl fmt::Debug for Watch {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("Watch").field(&self.0).finish()
        }
    }

    /// The system calls it on a thread of its own. The answer says whether the event was handled; if not, it ends the
    /// program.
    extern "system" fn on_event(event: u32) -> BOOL {
        let signal = match event {
            CTRL_C_EVENT => EndSignal::Interrupt,
            CTRL_BREAK_EVENT | CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT => EndSignal::Terminate,
            _ => return 0,
        };
        let mut is_told = false;
        for watched in &mut all().watched {
            if watched.signals.contains(&signal) {
                (watched.told)();
                is_told = true;
            }
        }
        // After these two the process ends when this returns, or some seconds later: the program uses them to end.
        while is_told && matches!(event, CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT) {
            thread::park();
        }
        is_told.into()
    }

    #[cfg(test)]
    mod tests {
        use std::sync::mpsc;

        use super::{super::SignalWatch, *};

        #[test]
        fn only_who_watches_for_a_signal_is_told() {
            let (sender, receiver) = mpsc::channel();
            let watch =
                SignalWatch::start(&[EndSignal::Interrupt], move || sender.send(()).unwrap()).unwrap();
            assert_eq!((on_event(CTRL_C_EVENT), receiver.try_recv()), (1, Ok(())));
            assert_eq!(on_event(CTRL_BREAK_EVENT), 0);
            drop(watch);
            assert_eq!(on_event(CTRL_C_EVENT), 0);
            assert!(receiver.recv().is_err());
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn each_signal_is_told_until_the_watch_ends() {
        let (sender, receiver) = mpsc::channel();
        let watch = SignalWatch::start(&[EndSignal::Terminate], move || sender.send(()).unwrap()).unwrap();
        for _ in 0..2 {
            // SAFETY: the signal has a handler.
            assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
            receiver.recv().unwrap();
        }
        drop(watch);
        assert!(receiver.recv().is_err(), "its thread has ended");
    }
}
