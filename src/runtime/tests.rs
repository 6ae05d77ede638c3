//! Tests of sets and sessions over the counting model; what depends on a cache is tested with whole models.

use self::counting::{CONTEXT, VOCABULARY, session, set};
use super::{Choice, ExecutableSet, RuntimeError, SessionOptions, SkipSet, role::Role};
use crate::backend::Pinning;

pub(crate) mod counting;
pub(crate) mod faulty;

fn best(logits: &[f32]) -> usize {
    assert_eq!(logits.len(), VOCABULARY);
    logits.iter().position(|x| *x == 1.0).expect("one token is certain")
}

#[test]
fn widths_are_ascending_unique_and_start_with_one() {
    let set = set(&[8, 3, 8]);
    assert_eq!(set.widths(), [1, 3, 8]);
    let widths: Vec<_> = (0..=9).map(|rows| set.width_for(rows)).collect();
    let [one, three, eight] = [Some(1), Some(3), Some(8)];
    assert_eq!(widths, [one, one, three, three, eight, eight, eight, eight, eight, None]);
}

#[test]
fn a_prefill_takes_the_smallest_chunk_that_holds_the_rest() {
    let set = set(&[]);
    let program =
        |remaining| &set.executables().programs()[set.program(Role::Prefill(set.prefill_for(remaining)))];
    let width_of = |remaining| program(remaining).binding.width;
    assert_eq!([1, 16, 17, 64, 65, 1000].map(width_of), [16, 16, 64, 64, 64, 64]);
    assert_eq!(program(20).binding.outputs, 1);
}

#[test]
fn a_session_counts_however_it_is_fed() {
    let mut session = session(&set(&[4]), CONTEXT, 4);
    let text: Vec<u32> = (0..90).map(|i| i * 7 % VOCABULARY as u32).collect();
    let next = |token: u32| (token as usize + 1) % VOCABULARY;
    assert_eq!(best(session.prefill(&text[..70]).unwrap()), next(text[69]));
    let mut scored = Vec::new();
    session.score(&text[70..], |i, logits| scored.push((i, best(logits)))).unwrap();
    let expected: Vec<_> = text[70..].iter().map(|t| next(*t)).enumerate().collect();
    assert_eq!((scored, session.committed()), (expected, 90));
    assert_eq!(best(session.restart(&[5, 9]).unwrap()), 10);
    assert_eq!(session.committed(), 2);

    let mut forward = session.forward(3).unwrap();
    for (offset, token) in [11, 3].into_iter().enumerate() {
        let offset = offset as u32;
        forward.push(token, 0, offset, |tail| {
            tail[0] = offset;
            1
        });
    }
    let logits = forward.run(None);
    assert_eq!([best(logits.row(0)), best(logits.row(1))], [12, 4]);
    session.commit(&[1]);
    assert_eq!(session.committed(), 3);
}

#[test]
fn a_forward_chooses_what_its_logits_say() {
    let set = set(&[4]);
    for k in [1, 5, VOCABULARY, ExecutableSet::MOST_CANDIDATES] {
        let mut session = session(&set, CONTEXT, 4);
        let mut forward = session.forward(3).unwrap();
        for (offset, token) in [11, 3, 31].into_iter().enumerate() {
            let offset = offset as u32;
            forward.push(token, 0, offset, |tail| {
                tail[0] = offset;
                1
            });
        }
        let choices = forward.choose(Choice { k, temperature: None }, None);
        for (row, best) in [12, 4, 0].into_iter().enumerate() {
            let rest = (0..VOCABULARY as u32).filter(|token| *token != best).map(|token| (token, 0.0));
            let expected: Vec<_> = [(best, 1.0)].into_iter().chain(rest).take(k).collect();
            assert_eq!(choices.row(row).iter().collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
#[should_panic(expected = "65 candidates of at most 64")]
fn more_candidates_than_there_is_room_for_cannot_be_chosen() {
    let mut session = session(&set(&[]), CONTEXT, 1);
    session.forward(1).unwrap().choose(Choice { k: 65, temperature: None }, None);
}

#[test]
fn memory_grows_with_what_is_asked_for() {
    let set = set(&[4]);
    let memory = |context, tree_nodes, threads| {
        set.memory(&SessionOptions { context, tree_nodes, threads, pinning: Pinning::Floating })
    };
    let small = memory(10, 4, 1);
    assert_eq!(small.weight_bytes, 2 * VOCABULARY * VOCABULARY * size_of::<f32>());
    assert!(memory(10, 4, 2).session_bytes > small.session_bytes);
    // The model has no cache, and nothing else has a place for every slot.
    assert_eq!(memory(5000, 4, 1).session_bytes, small.session_bytes);
}

#[test]
fn a_skip_set_has_only_groups_of_the_model() {
    let set = SkipSet::new(4, &[3, 1, 3]).unwrap();
    assert_eq!(set.as_mask(), [false, true, false, true]);
    assert!(matches!(SkipSet::new(4, &[0, 4, 9]), Err(RuntimeError::SkipSet { found: 4, groups: 4 })));
    assert_eq!(SkipSet::none(2), SkipSet::new(2, &[]).unwrap());
}

#[test]
#[should_panic(expected = "only committed tokens can be kept")]
fn more_than_is_committed_cannot_be_kept() {
    session(&set(&[]), CONTEXT, 1).truncate(1);
}

#[test]
fn hidden_rows_of_what_is_committed_stay_where_they_are_kept() {
    let plain = set(&[4]);
    assert!(matches!(session(&plain, CONTEXT, 4).keep_hidden(), Err(RuntimeError::NoHiddenRows)));
    let keeping = std::sync::Arc::new(plain.with_kept_hidden(&counting::weights()).unwrap());
    let mut session = session(&keeping, CONTEXT, 4);
    session.keep_hidden().unwrap();
    // The counting model's hidden row is the embedding of the row's token.
    let token_of = |row: &[f32]| row.iter().position(|x| *x == 1.0).expect("one is certain") as u32;
    let mut text: Vec<u32> = (0..70).map(|i| i * 7 % VOCABULARY as u32).collect();
    assert_eq!(best(session.prefill(&text).unwrap()) as u32, text[69] + 1);
    assert_eq!(token_of(session.hidden(0).unwrap()), text[69], "of the last token, as ever");
    let mut forward = session.forward(3).unwrap();
    for (offset, token) in [(0, 11), (1, 3), (3, 30)] {
        forward.push(token, 0, offset, |tail| {
            tail[0] = offset;
            1
        });
    }
    forward.choose(Choice::ARGMAX, None);
    session.commit(&[0, 3]);
    text.extend([11, 30]);
    session.score(&[5, 6], |_, _| ()).unwrap();
    text.extend([5, 6]);
    let found = |session: &super::Session| -> Vec<u32> {
        (0..).map_while(|place| session.committed_hidden(place)).map(token_of).collect()
    };
    assert_eq!(found(&session), text);
    session.truncate(50);
    session.prefill(&[9]).unwrap();
    assert_eq!(found(&session), [&text[..50], &[9]].concat());
    // Committed after another forward than its own: nothing is known from there on.
    let mut forward = session.forward(1).unwrap();
    forward.push(4, 0, 2, |tail| {
        tail[0] = 2;
        1
    });
    forward.run(None);
    session.commit(&[0]);
    session.score(&[8], |_, _| ()).unwrap();
    assert_eq!((found(&session).len(), session.committed()), (51, 53));
    session.restart(&[1, 2]).unwrap();
    assert_eq!(found(&session), [1, 2]);
}

#[test]
fn hidden_rows_are_those_of_the_last_forward() {
    let one_hot = |token: u32| -> Vec<f32> {
        (0..VOCABULARY).map(|i| f32::from(u8::from(i == token as usize))).collect()
    };
    let mut session = session(&set(&[4]), CONTEXT, 4);
    assert_eq!((session.hidden(0), session.set().model_width()), (None, VOCABULARY));
    // The counting model's hidden row is the embedding of the row's token. Two chunks: the last row of the last counts.
    let text: Vec<u32> = (0..70).map(|i| i * 7 % VOCABULARY as u32).collect();
    session.prefill(&text).unwrap();
    assert_eq!(session.hidden(0).unwrap(), one_hot(text[69]));
    for is_chosen in [false, true] {
        let mut forward = session.forward(3).unwrap();
        for (offset, token) in [11, 3, 30].into_iter().enumerate() {
            let offset = offset as u32;
            forward.push(token, 0, offset, |tail| {
                tail[0] = offset;
                1
            });
        }
        if is_chosen {
            forward.choose(Choice::ARGMAX, None);
        } else {
            forward.run(None);
        }
        for (row, token) in [11, 3, 30].into_iter().enumerate() {
            assert_eq!(session.hidden(row).unwrap(), one_hot(token), "row {row}");
        }
    }
    session.commit(&[0, 2]);
    assert_eq!(session.hidden(2).unwrap(), one_hot(30), "committing leaves them");
    let mut row = vec![0.0; VOCABULARY];
    session.embedding(9, &mut row);
    assert_eq!(row, one_hot(9));
}
