//! What would make a machine or a model faster, from what was found and measured.

use yggc::backend::{Tier, has_own_memory};

use super::report::{MachineReport, ModelReport};

/// Bits of a weight above which a file of fewer bits reads clearly less; Q4_K_M has about five.
const WIDE_BITS: f64 = 6.5;
/// Bits of a weight in files called Q4_K_M.
const NARROW_BITS: f64 = 4.9;
/// From this part of a forward on, reading weights is what takes the time.
const MOSTLY: f64 = 0.7;

/// Sentences for people, the most useful first.
pub(super) fn advice(machine: &MachineReport, model: Option<&ModelReport>, is_debug: bool) -> Vec<String> {
    let mut advice = Vec::new();
    let on_cpu = !has_own_memory(machine.tier);
    if is_debug {
        advice.push(
            "this is a debug build: figures of `cargo build --release` are several times better".to_owned(),
        );
    }
    let of_model = model.and_then(|model| model.forecast.threads_worth_using());
    let worth = of_model.or_else(|| machine.probe.threads_worth_using());
    if let Some(worth) = worth.filter(|worth| *worth < machine.threads) {
        advice.push(format!("--threads {worth} is as fast as {} threads", machine.threads));
    }
    if let Some(quota) = machine.system.quota.filter(|quota| on_cpu && *quota < machine.threads as f64) {
        advice.push(format!(
            "this container may use {quota:.1} processors for {} threads, which are stopped when they have used that \
             up: raise the limit, or give --threads",
            machine.threads
        ));
    }
    if on_cpu && machine.system.huge_pages.as_deref() == Some("never") {
        advice.push(
            "huge pages are off, so that reading weights misses the translation cache: echo madvise > \
             /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        );
    }
    if let Some(governor) = machine.system.governor.as_deref()
        && on_cpu
        && governor != "performance"
    {
        advice
            .push(format!("the processor's clock is chosen by `{governor}`: try the governor `performance`"));
    }
    if let (Ok(gpu), true) = (&machine.gpu, on_cpu)
        && !gpu.is_emulated
    {
        advice.push(format!("there is a GPU, {}: --device cuda", gpu.name));
    }
    if on_cpu && machine.tier == Tier::Portable {
        advice.push(
            "the portable kernels are slow: leave out --isa if this processor has another one".to_owned(),
        );
    }
    let Some(model) = model else { return advice };
    if model.fits == Some(false) {
        advice.push(
            "the model does not fit in the memory that is free: with --memory SIZE it is read from disk for every \
             token, and --resident says how much stays; or take a smaller one"
                .to_owned(),
        );
    }
    let one_row = &model.forecast.forwards[0];
    let bound = model.forecast.bound_by_memory(one_row);
    if bound >= MOSTLY && model.bits_per_weight > WIDE_BITS {
        advice.push(format!(
            "reading weights takes most of the time: in Q4_K_M this model has about {:.0} % of its {:.1} bits a weight",
            100.0 * NARROW_BITS / model.bits_per_weight,
            model.bits_per_weight
        ));
    }
    if model.planned.is_none() {
        advice
            .push("speculation is not counted here: the first `yggc run` measures what it gains".to_owned());
    }
    advice
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use yggc::{
        backend::Gpu,
        measure::{Forecast, ForwardForecast, Spread},
    };

    use super::*;
    use crate::cli::doctor::machine::System;

    fn spread(median_us: f64) -> Spread {
        Spread { median_us, low_us: median_us, high_us: median_us }
    }

    /// Reads 1 GB/s; forwards of 1000 bytes take twice as long as reading them.
    fn forecast(threads: &[(usize, f64)]) -> Forecast {
        let forward =
            ForwardForecast { rows: 1, context: 0, bytes: 1000, flops: 0, time: spread(2.0), measured: 1.0 };
        Forecast { read_bytes: 1000, read: spread(1.0), forwards: vec![forward], threads: threads.to_vec() }
    }

    fn machine() -> MachineReport {
        MachineReport {
            tier: Tier::Avx2,
            threads: 4,
            system: System::at(Path::new("/no such folder")),
            available_bytes: None,
            probe: forecast(&[(1, 9.0), (2, 5.0), (4, 3.0)]),
            gpu: Err("none".to_owned()),
            disk_free_bytes: None,
            disk_bytes_per_s: None,
        }
    }

    fn model() -> ModelReport {
        ModelReport {
            name: "m".to_owned(),
            family: "llama",
            layers: 1,
            file_bytes: 1000,
            bits_per_weight: 8.5,
            downloaded: None,
            weight_bytes: 1000,
            session_bytes: 10,
            context: 4096,
            fits: Some(true),
            forecast: forecast(&[(4, 3.0)]),
            planned: None,
        }
    }

    fn has(machine: &MachineReport, model: Option<&ModelReport>, part: &str) -> bool {
        advice(machine, model, false).iter().any(|sentence| sentence.contains(part))
    }

    #[test]
    fn a_machine_at_its_best_gets_no_advice() {
        assert_eq!(advice(&machine(), None, false), [""; 0]);
        assert!(advice(&machine(), None, true)[0].contains("--release"));
    }

    #[test]
    fn every_finding_has_its_sentence() {
        let with = |change: fn(&mut MachineReport)| {
            let mut machine = machine();
            change(&mut machine);
            machine
        };
        let gpu = |is_emulated| Ok(Gpu { name: "G".to_owned(), driver: "12".to_owned(), is_emulated });
        for (machine, part) in [
            (with(|m| m.probe.threads = vec![(2, 3.0), (4, 3.1)]), "--threads 2"),
            (with(|m| m.system.quota = Some(1.5)), "1.5 processors for 4 threads"),
            (with(|m| m.system.huge_pages = Some("never".to_owned())), "transparent_hugepage"),
            (with(|m| m.system.governor = Some("powersave".to_owned())), "`powersave`"),
            (with(|m| m.tier = Tier::Portable), "portable kernels"),
            (MachineReport { gpu: gpu(false), ..machine() }, "--device cuda"),
        ] {
            assert!(has(&machine, None, part), "{part}");
            assert!(!has(&self::machine(), None, part), "{part}");
        }
        for machine in [
            with(|m| m.system.quota = Some(4.0)),
            with(|m| m.system.huge_pages = Some("madvise".to_owned())),
            with(|m| m.system.governor = Some("performance".to_owned())),
            MachineReport { gpu: gpu(true), ..machine() },
        ] {
            assert_eq!(advice(&machine, None, false), [""; 0]);
        }
    }

    #[test]
    fn a_model_is_advised_by_what_bounds_it() {
        let bound = |reading_us: f64| {
            let mut model = model();
            model.forecast.read = spread(reading_us);
            model
        };
        assert!(has(&machine(), Some(&bound(1.8)), "58 % of its 8.5 bits"));
        assert!(!has(&machine(), Some(&bound(1.0)), "Q4_K_M"), "instructions take the time");
        let narrow = ModelReport { bits_per_weight: 4.9, ..bound(1.8) };
        assert!(!has(&machine(), Some(&narrow), "Q4_K_M"));
        assert!(has(&machine(), Some(&ModelReport { fits: Some(false), ..model() }), "--memory SIZE"));
        assert!(!has(&machine(), Some(&model()), "--memory SIZE"));
        assert!(has(&machine(), Some(&model()), "speculation is not counted"));
        // The model's own forwards say how many threads are worth using for it.
        let few = ModelReport { forecast: forecast(&[(1, 3.0), (4, 3.0)]), ..model() };
        assert!(has(&machine(), Some(&few), "--threads 1 is as fast as 4"));
    }
}
