#!/usr/bin/env bash
# Everything that must hold and be measured on a GPU, on a machine that has the driver and nothing else: no cargo, no toolkit.
#
# usage: benches/gpu-check.sh YGGC TESTS MODEL OUT [PART...]
#   YGGC   the program, built with CUDA_HOME set, so that kernels are in it
#   TESTS  the integration tests' binary: target/*/deps/it-*, of the same build
#   MODEL  a model's file or folder
#   OUT    a folder for raw results; made if it is not there
#   PART   tests, overlap, lossless, widths, plan, schedules; without any, all of them in this order
#
# Prints a line for each check as it ends, and a table. A check may take 8 minutes. One that ended well is not run again in the same OUT, so
# that a window of a few minutes can go on where the last one stopped. Ends with 1 if one fails; the others are run all the same.
set -uo pipefail

all_parts=(tests overlap lossless widths plan schedules)
if (($# < 4)); then
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n '3,9p' >&2
    exit 2
fi
parts=("${@:5}")
if ((${#parts[@]} == 0)); then parts=("${all_parts[@]}"); fi
for part in "${parts[@]}"; do
    if [[ " ${all_parts[*]} " != *" $part "* ]]; then
        echo "no part is called $part: expected some of ${all_parts[*]}" >&2
        exit 2
    fi
done
yggc=$(realpath "$1") tests=$(realpath "$2") model=$(realpath "$3")
mkdir -p "$4"
out=$(realpath "$4")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prompts=$here/benches/prompts/spec_bench_3_per_category.jsonl
failed=0

{
    nvidia-smi || echo "no nvidia-smi"
    ldd --version | head -1
    ldconfig -p | grep -E 'libcuda|nvrtc'
    lscpu | grep -E '^(Model name|CPU\(s\))'
} >"$out/machine.txt" 2>&1

is_wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
limited() { timeout --kill-after=10 480 "$@"; }

check() {
    local name=$1 begun=$SECONDS
    shift
    if [[ -e $out/$name.done ]]; then
        printf '%-14s done before\n' "$name"
    elif "$@" >"$out/$name.out" 2>"$out/$name.err"; then
        touch "$out/$name.done"
        printf '%-14s ok      %4d s\n' "$name" $((SECONDS - begun))
    else
        printf '%-14s FAILED  %4d s   %s\n' "$name" $((SECONDS - begun)) "$out/$name.err"
        failed=1
    fi
}

# Tests that hold for every class of forwards, on this device.
on_device() {
    local said ended=0
    said=$(cd "$here" && YGG_TEST_DEVICE=cuda limited "$tests" --exact "$@") || ended=$?
    echo "$said"
    if [[ $said != *"test result: ok. $# passed"* ]]; then
        echo "expected $# tests to pass: one fails, or a name is of no test" >&2
        return 1
    fi
    return $ended
}

if is_wanted tests; then
    check conformance on_device \
        backends::every_tier_follows_the_reference_on_every_format \
        backends::ops_that_no_pass_fuses_follow_the_reference_too \
        candidates::candidates_are_those_of_stored_logits \
        candidates::candidates_of_a_trimmed_head_are_those_of_the_tokens_it_keeps \
        emulated_cuda::a_long_context_is_joined_from_partitions \
        one_launch::the_device_grows_the_trees_that_the_host_grows \
        device_walk::the_device_accepts_and_moves_what_the_host_does \
        device_walk::steps_that_the_device_verifies_are_the_hosts \
        one_launch::the_device_grows_the_trees_of_drafter_models_too \
        whole_step::steps_without_the_host_are_the_hosts \
        schedules::heads_of_drafter_models_change_no_tree
    check rows on_device \
        row_invariance::rows_do_not_depend_on_company_width_slots_scratch_or_threads \
        row_invariance::every_width_and_every_number_of_used_rows_gives_the_same_bits \
        row_invariance::a_prompt_in_one_prefill_in_steps_or_scored_gives_the_same_bits \
        kv_cache::any_history_of_a_session_leaves_the_committed_sequence_alone \
        eager::eager_answers_are_plain_ones_to_the_bit
fi
if is_wanted overlap; then
    # Kernels of a graph overlap, those of eager launches do not: their bits are the same, each time.
    for round in 1 2 3 4 5; do
        check "overlap-$round" on_device emulated_cuda::every_kernel_once emulated_cuda::a_long_context_is_joined_from_partitions \
            one_launch::the_device_grows_the_trees_that_the_host_grows whole_step::steps_without_the_host_are_the_hosts eager::eager_answers_are_plain_ones_to_the_bit
    done
fi
if is_wanted lossless; then
    check lossless on_device lossless::a_mixture_changes_no_token lossless::layer_skip_changes_no_token lossless::an_adversary_changes_no_token
fi
if is_wanted widths; then
    check widths limited "$yggc" bench -m "$model" --device cuda --kernels --widths 1,2,4,8,16,32,64 --json
fi
if is_wanted plan; then
    check profile limited "$yggc" profile -m "$model" --device cuda --budget 120 -o "$out/gpu.profile"
    check plan limited "$yggc" plan -m "$model" --profile "$out/gpu.profile" -o "$out/gpu.plan"
    check explain limited "$yggc" plan explain "$out/gpu.plan"
    # Answers of every arm are compared with plain decoding's, token by token; `eager` is launches one by one.
    check bench limited "$yggc" bench -m "$model" --device cuda --plan "$out/gpu.plan" --prompts "$prompts" --arms ar,eager,plan -n 64 --repetitions 5 --json
fi
if is_wanted schedules; then
    # The same shape drafted, and verified, by the host and by the device.
    # Heads ahead are of drafters in the verifier's cache, or of models that read tokens, which the default model's does not.
    for way in layer_skip-{plain,head_ahead,one_launch,device_walk,two_launches,whole_step} model-{plain,one_launch,device_walk,two_launches,whole_step}; do
        drafter=${way%%-*} schedule=${way##*-}
        check "plan-$way" limited "$yggc" plan -m "$model" --profile "$out/gpu.profile" -o "$out/$way.plan" \
            --fix "drafter=$drafter,Dd=4,Wd=4,Wv=16,rows=all,predictor=off,schedule=$schedule"
        check "draft-$way" limited "$yggc" bench -m "$model" --device cuda --plan "$out/$way.plan" --prompts "$prompts" --arms "ar,$drafter" -n 64 --repetitions 5 --json
    done
fi

echo
if [[ -s $out/explain.out ]]; then sed -n '1,12p' "$out/explain.out"; fi
exit $failed
