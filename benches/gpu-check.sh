#!/usr/bin/env bash
# Everything that must hold and be measured on a GPU, on a machine that has the driver and little else: no cargo, no toolkit.
#
# usage: benches/gpu-check.sh [--dry-run] [--draft-model PATH] YGGC TESTS MODEL OUT [PART...]
#   --dry-run      the same checks in miniature, on the tests' emulated GPU (its folder in LD_LIBRARY_PATH) and a model of some kilobytes
#   --draft-model  a drafter model of MODEL that reads tokens; without one its schedules are left out
#   YGGC   the program, built with CUDA_HOME set, so that kernels are in it
#   TESTS  the integration tests' binary: target/*/deps/it-*, of the same build
#   MODEL  a model's file; a GGUF file for the parts `large` and `streamed`
#   OUT    a folder for raw results; made if it is not there
#   PART   tests, overlap, lossless, widths, large, streamed, plan, schedules, breakdown; without any, all of them in this order
#
# Prints a line for each check as it ends, and a table. A check may take 8 minutes. One that ended well is not run again in the same OUT, so
# that a window of a few minutes can go on where the last one stopped. Ends with 1 if one fails; the others are run all the same. OUT.tar.gz
# has all results, also those of earlier windows. `breakdown` needs python3.
set -uo pipefail

all_parts=(tests overlap lossless widths large streamed plan schedules breakdown)
usage() {
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n '3,10p' >&2
    exit 2
}
is_dry=no draft_model=
while [[ ${1-} == --* ]]; do
    case $1 in
        --dry-run) is_dry=yes ;;
        --draft-model) draft_model=${2-} && shift ;;
        *) usage ;;
    esac
    shift
done
if (($# < 4)); then usage; fi
parts=("${@:5}")
if ((${#parts[@]} == 0)); then parts=("${all_parts[@]}"); fi
for part in "${parts[@]}"; do
    if [[ " ${all_parts[*]} " != *" $part "* ]]; then
        echo "no part is called $part: expected some of ${all_parts[*]}" >&2
        exit 2
    fi
done
yggc=$(realpath "$1") tests=$(realpath "$2") model=$(realpath "$3")
drafter=()
if [[ $draft_model ]]; then drafter=(--draft-model "$(realpath "$draft_model")"); fi
mkdir -p "$4"
out=$(realpath "$4")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What is large and can be made again: beside the results, not among them.
large=$out.large
most_packed=$((100 << 20))
failed=0

# Sizes of what is measured.
if [[ $is_dry == yes ]]; then
    limit=480 rounds=1 widths=1,4 shape=layers=5,width=96,mlp=160 tokens=8 answers=1 forwards=1
    prompts=$out/prompts.jsonl
    printf '{"category": "sums", "turns": ["one and one and one"]}\n' >"$prompts"
    # As many as a depth predictor is trained on.
    printf '{"category": "words", "turns": ["%s"]}\n' "say the words" "count to ten" "one and one" hello >"$out/recorded.jsonl"
    profiled=(--budget 400 --prompts "$out/recorded.jsonl" --rehearsal --contexts 64 --drafter layer_skip --drafter lookup)
    if [[ $draft_model ]]; then profiled+=(--drafter model); fi
    tree=Dd=2,Wd=2,Wv=4
    ablation=(--prompts "$prompts" --count 1 --tokens "$tokens" --repetitions 1 --context 128 --temperatures 0 --drafters layer_skip)
else
    limit=480 rounds=5 widths=1,2,4,8,16,32,64 shape=7b tokens=64 answers=5 forwards=30
    prompts=$here/benches/prompts/spec_bench_3_per_category.jsonl
    profiled=(--budget 120)
    tree=Dd=4,Wd=4,Wv=16
    ablation=(--tokens 48 --temperatures 0,0.6 --drafters layer_skip)
fi

{
    nvidia-smi || echo "no nvidia-smi"
    ldd --version | head -1
    ldconfig -p | grep -E 'libcuda|nvrtc'
    lscpu | grep -E '^(Model name|CPU\(s\))'
} >"$out/machine.txt" 2>&1

is_wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
limited() { timeout --kill-after=10 "$limit" "$@"; }

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

# Forwards by width of a model.
by_width() { limited "$yggc" bench -m "$1" --device cuda --kernels --widths "$widths" --repetitions "$forwards" --json "${@:2}"; }

# Answers of arms to the prompts. Those of every arm are compared with plain decoding's, token by token.
answer() { limited "$yggc" bench --device cuda --prompts "$prompts" -n "$tokens" --repetitions "$answers" --json "$@"; }

# The model at the cost of a large one.
inflated() {
    mkdir -p "$large"
    if [[ ! -e $large/model.gguf ]]; then rm -f "$out/inflate.done"; fi
    check inflate limited "$yggc" inspect -m "$model" --inflate "$shape" -o "$large/model.gguf" --stage config
}

# The least bytes of weights that a model needs on the device.
least_resident() {
    limited "$yggc" run -m "$1" --device cuda --resident 1 --no-spec -n 1 -p x 2>&1 | sed -n 's/.*at least \([0-9]*\).*/\1/p'
}

# Forwards by width of a model of which as much is streamed as can be. `forward` is T(W), `fetched` what the copies take without forwards.
by_width_streamed() {
    local least
    least=$(least_resident "$1")
    if [[ ! $least ]]; then
        echo "expected the least budget from the program, found none" >&2
        return 1
    fi
    by_width "$1" --resident "$least" >"$out/streamed.json" || return
    cat "$out/streamed.json"
    if ! grep -q '"streamed_bytes":[1-9]' "$out/streamed.json"; then
        echo "expected streamed weights within $least bytes, found none" >&2
        return 1
    fi
}

if is_wanted tests; then
    check conformance on_device \
        backends::every_tier_follows_the_reference_on_every_format \
        backends::ops_that_no_pass_fuses_follow_the_reference_too \
        candidates::candidates_are_those_of_stored_logits \
        candidates::candidates_of_a_trimmed_head_are_those_of_the_tokens_it_keeps \
        candidates::candidates_under_noise_are_those_of_noisy_logits \
        emulated_cuda::a_long_context_is_joined_from_partitions \
        inflate::every_format_answers_what_it_did \
        families::every_family_is_what_transformers_computes \
        experts::an_upcycled_model_is_the_dense_one \
        states::a_text_that_is_cut_goes_on_to_the_bit \
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
        families::rows_of_every_family_do_not_depend_on_each_other \
        kv_cache::any_history_of_a_session_leaves_the_committed_sequence_alone \
        eager::eager_answers_are_plain_ones_to_the_bit
fi
if is_wanted overlap; then
    # Kernels of a graph overlap, those of eager launches do not: their bits are the same, each time.
    overlapping=(
        emulated_cuda::every_kernel_once
    )
    # A rehearsal has run these above, and nothing overlaps in it.
    if [[ $is_dry == no ]]; then
        overlapping+=(
            emulated_cuda::a_long_context_is_joined_from_partitions
            one_launch::the_device_grows_the_trees_that_the_host_grows
            whole_step::steps_without_the_host_are_the_hosts
            eager::eager_answers_are_plain_ones_to_the_bit
        )
    fi
    for ((round = 1; round <= rounds; round++)); do
        check "overlap-$round" on_device "${overlapping[@]}"
    done
fi
if is_wanted lossless; then
    check lossless on_device lossless::a_mixture_changes_no_token lossless::layer_skip_changes_no_token lossless::an_adversary_changes_no_token
fi
if is_wanted widths; then
    check widths by_width "$model"
    check widths-apart by_width "$model" --no-overlap
fi
if is_wanted large; then
    # T(W) with and without overlap, and graphs against launches one by one, on real text.
    inflated
    check large-widths by_width "$large/model.gguf"
    if [[ $is_dry == no ]]; then check large-apart by_width "$large/model.gguf" --no-overlap; fi
    check large-eager answer -m "$large/model.gguf" --arms ar,eager
fi
if is_wanted streamed; then
    # The same bits as in the device's memory, and T(W) beside the bandwidth of the copies.
    check streamed-bits on_device \
        streaming::the_bits_are_those_of_a_model_in_memory \
        streaming::sessions_over_one_model_take_turns \
        streaming::steps_without_the_host_are_those_of_a_model_in_memory
    inflated
    check streamed-widths by_width_streamed "$large/model.gguf"
fi
if is_wanted plan; then
    check profile limited "$yggc" profile -m "$model" --device cuda "${profiled[@]}" "${drafter[@]}" -o "$out/gpu.profile"
    check plan limited "$yggc" plan -m "$model" --profile "$out/gpu.profile" -o "$out/gpu.plan"
    check explain limited "$yggc" plan explain "$out/gpu.plan"
    check bench answer -m "$model" --plan "$out/gpu.plan" --arms ar,eager,plan
fi
if is_wanted schedules; then
    # The same shape drafted, and verified, by the host and by the device.
    ways=(layer_skip-{plain,head_ahead,one_launch,device_walk,two_launches,whole_step})
    if [[ $draft_model ]]; then
        ways+=(model-{plain,one_launch,device_walk,two_launches,whole_step})
    else
        echo "schedules of drafter models are left out: no --draft-model"
    fi
    for way in "${ways[@]}"; do
        check "plan-$way" limited "$yggc" plan -m "$model" --profile "$out/gpu.profile" -o "$out/$way.plan" \
            --fix "drafter=${way%%-*},$tree,rows=all,predictor=off,schedule=${way##*-}"
        check "draft-$way" answer -m "$model" --plan "$out/$way.plan" --arms "ar,${way%%-*}"
    done
fi
if is_wanted breakdown; then
    # What each part of a plan gives: chain, static trees, equal growth, pruning, predicted depth; all arms in one process.
    check breakdown limited python3 "$here/benches/ablation.py" "$out/ablation.jsonl" --profile "$out/gpu.profile" \
        --yggc "$yggc" --model "$model" --device cuda "${ablation[@]}"
fi

echo
if [[ -s $out/streamed.json ]]; then
    median() { grep -o "\"$1\":{\"median_us\":[0-9.]*" "$out/streamed.json" | head -1 | sed 's/.*://'; }
    bytes=$(grep -o '"streamed_bytes":[0-9]*' "$out/streamed.json" | head -1 | sed 's/.*://')
    awk -v bytes="$bytes" -v forward="$(median forward)" -v copies="$(median fetched)" 'BEGIN {
        printf "streamed: %d bytes a forward, copied in %.1f us alone (%.1f GB/s); T(1) %.1f us, %.2f of that\n",
            bytes, copies, bytes / copies / 1000, forward, forward / copies
    }'
fi
if [[ -s $out/explain.out ]]; then sed -n '1,12p' "$out/explain.out"; fi
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
packed=$(stat -c %s "$out.tar.gz")
echo "$out.tar.gz: $packed bytes"
if ((packed > most_packed)); then
    echo "expected at most $most_packed bytes: remove what is large from $out" >&2
    failed=1
fi
exit $failed
