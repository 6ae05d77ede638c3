//! Draws of tokens on a device: its noise has the bits of the processor's, and an answer that it draws by itself is the
//! one that the processor gives by plain decoding.

use std::sync::Arc;

use ygg_kernels::{KvFormat, Tier, WeightFormat};
use yggc::{
    plan::Schedule,
    runtime::{ExecutableSet, SkipSet},
    sample::Sampling,
    speculate::{BandSteps, Decoder, Limits, SelfDrafter, StepShape},
};

use crate::tiny_model::{Class, everything, is_cuda, models, session};

const CONTEXT: usize = 64;
const TOKENS: usize = 24;

/// What a decoder answers, and in how many steps, of which so many the device walked.
fn answer(decoder: &mut Decoder, sampling: Sampling) -> (Vec<u32>, u64, u64) {
    let prompt = [3, 1, 4, 1, 5];
    decoder.start(&prompt, sampling).expect("the prompt fits");
    while decoder.history().len() < prompt.len() + TOKENS {
        let tokens = prompt.len() + TOKENS - decoder.history().len();
        decoder.step(Limits { tokens, ends: &[] }, None).expect("the step runs");
    }
    let stats = decoder.stats();
    (decoder.history()[prompt.len()..].to_vec(), stats.steps, stats.walked_by_device)
}

/// A model whose forwards round so little that both devices find the same tokens.
fn set(tier: Tier) -> Arc<ExecutableSet> {
    let model = models().iter().find(|model| model.format == WeightFormat::F32).expect("one of each");
    model.build(Class::native(tier), KvFormat::F16, vec![1, 2, 4, 8])
}

#[test]
fn drawn_answers_are_those_of_the_processor() {
    if !is_cuda() {
        return;
    }
    let (on_host, on_device) = (set(Tier::detect_best()), set(Tier::Cuda));
    let mut plain =
        Decoder::new(session(&on_host, CONTEXT, 1, 1), vec![BandSteps::plain()]).expect("width 1");
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 7, top_k: 3, draft_temperature: 0.7 };
    for schedule in [
        Schedule::Plain,
        Schedule::OneLaunch,
        Schedule::DeviceWalk,
        Schedule::TwoLaunches,
        Schedule::WholeStep,
    ] {
        let opened = session(&on_device, CONTEXT, shape.tree_nodes(), 1);
        let skip = SkipSet::new(on_device.groups(), &[on_device.groups() - 1]).expect("a group of the model");
        let drafter = SelfDrafter::layer_skip(&opened, skip, &shape).expect("it fits");
        let mut steps = BandSteps::unplanned(Some(Box::new(drafter)), &shape);
        steps.sub_plan.schedule = schedule;
        let mut decoder = Decoder::new(opened, vec![steps]).expect("a device that does it all");
        let (mut all_steps, mut answers) = (0, 0);
        // On an emulated device each answer takes seconds.
        let seeds: &[u64] = if everything() { &[1, 2, u64::MAX] } else { &[u64::MAX] };
        for temperature in [0.6, 1.0] {
            for &seed in seeds {
                let sampling = Sampling { temperature, seed, ..Sampling::GREEDY };
                let (found, steps, walked) = answer(&mut decoder, sampling);
                assert_eq!(found, answer(&mut plain, sampling).0, "{schedule}, {sampling:?}");
                assert_eq!(walked, if schedule.walks_on_device() { steps } else { 0 }, "{schedule}");
                all_steps += steps;
                answers += 1;
            }
        }
        assert!(
            6 * all_steps < 5 * answers * TOKENS as u64,
            "{schedule}: drafts are accepted in {all_steps} steps"
        );
    }
}

/// The noise of kernels, in the emulation.
#[cfg(feature = "cuda")]
mod emulated {
    use std::{
        io::Write,
        path::Path,
        process::{Command, Stdio},
    };

    use ygg_kernels::noise::NoiseKey;

    use crate::{
        emulated_cuda::{DRAWS, NOISY, SHIFT, emulation, kernels, lines_with, tests_in},
        tiny_model::{Dice, everything},
    };

    #[test]
    fn noise_of_kernels_has_the_bits_of_the_processors() {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("noise.{}", std::process::id()));
        let emu = kernels().join("emu");
        let mut command = Command::new("g++");
        command.args(["-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing"]);
        command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]).arg(emu.join("noise.cpp"));
        command.args(["-x", "assembler-with-cpp"]).arg(emu.join("switch.S")).arg("-o").arg(&program);
        let told = command.output().expect("g++ is needed to test CUDA without a GPU");
        assert!(told.status.success(), "g++ refuses it:\n{}", String::from_utf8_lossy(&told.stderr));

        let mut dice = Dice::new(12);
        let mut asked: Vec<(u64, u64, u32)> = vec![(0, 0, 0), (u64::MAX, u64::from(u32::MAX) + 3, u32::MAX)];
        for _ in 0..20_000 {
            let [place, token] = [40, 40].map(|_| dice.bits() >> (32 + dice.below(31)));
            asked.push((dice.bits() >> dice.below(64), place, token as u32));
        }
        let lines: String =
            asked.iter().map(|(seed, place, token)| format!("{seed} {place} {token}\n")).collect();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut input = child.stdin.take().expect("it was asked for");
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let told = child.wait_with_output().expect("the program ends");
        writer.join().expect("no panic").expect("it reads all");
        std::fs::remove_file(&program).expect("it was made");
        let said = String::from_utf8(told.stdout).expect("numbers");
        assert_eq!(said.lines().count(), asked.len());
        let mut rarest = 0.0_f64;
        for ((seed, place, token), line) in asked.iter().zip(said.lines()) {
            let key = NoiseKey::at(*seed, *place);
            let NoiseKey([a, b, c, d]) = key;
            let (bits, noise) = (key.bits(*token), key.gumbel(*token));
            let expected = format!("{a:x} {b:x} {c:x} {d:x} {bits:x} {:x}", noise.to_bits());
            assert_eq!(line, expected, "seed {seed}, place {place}, token {token}");
            rarest = rarest.max(noise);
        }
        assert!(rarest > 8.0, "both ends of the logarithm are met: {rarest}");
    }

    /// Noise of another place, and noise of one place for two rows: a drafter ranks otherwise, and another token is
    /// drawn.
    #[test]
    fn noise_of_the_wrong_place_and_noise_used_twice_are_found() {
        let lines = |word: &str, file: &str| -> Vec<String> {
            lines_with(word).into_iter().filter(|place| place.starts_with(file)).collect()
        };
        let of_all = lines("index(noise.first)", "noise.cuh");
        let [ranked] = &lines("p.positions[index(row)]", "noise.cuh")[..] else { panic!("one line ranks") };
        let [leaders, winners] = &lines("p.positions[index(row)]", "race.cuh")[..] else {
            panic!("two draw")
        };
        let faults = [
            (NOISY, format!("{ranked}+1")),
            (DRAWS, format!("{winners}+1")),
            (NOISY, format!("{}+1", of_all[0])),
            (DRAWS, format!("{}+1", of_all[0])),
            (DRAWS, format!("{leaders}+1")),
        ];
        // One of ranking and one of drawing: each takes as long as the tests that it fails.
        for (test, place) in &faults[..if everything() { faults.len() } else { 2 }] {
            let told = tests_in(emulation(), &[test], &[(SHIFT, place)]);
            assert!(!told.status.success(), "{test} does not notice {place}");
        }
    }
}
