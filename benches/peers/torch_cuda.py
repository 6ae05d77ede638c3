#!/usr/bin/env python3
"""Plain decoding in PyTorch with a static cache and a captured CUDA graph, and the speculation that Hugging Face offers, on a GPU.

usage: benches/peers/torch_cuda.py OUT.jsonl --model FOLDER --prompts FILE.jsonl [options]

FOLDER is a Hugging Face checkpoint of the model that yggc is measured with. Arms: `eager` (model.generate), `graph` (one decoding step,
captured once, replayed for every token, greedy), `lookup` (prompt_lookup_num_tokens) and, with --assistant, `assisted`. Arms take turns on
every prompt. Lines of OUT are runs behind a header; medians are printed. Needs torch and transformers; batch 1, bf16.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out")
    add("--model", required=True, help="folder of the checkpoint")
    add("--assistant", help="folder of a smaller checkpoint with the same vocabulary")
    add("--prompts", required=True, help="JSON lines that `yggc bench` understands")
    add("--tokens", type=int, default=64)
    add("--repetitions", type=int, default=5)
    add("--context", type=int, default=1024, help="slots of the static cache")
    given = parser.parse_args()
    if given.tokens < 2 or given.repetitions < 1:
        parser.error("--tokens and --repetitions: expected at least 2 and 1")
    return given


def prompt_of(line):
    entry = json.loads(line)
    return entry["turns"][0] if "turns" in entry else entry.get("prompt", entry.get("text"))


class Graph:
    """One token's forward over a static cache, captured once."""

    def __init__(self, torch, transformers, model, context):
        self.torch, self.model, self.context = torch, model, context
        self.cache = transformers.StaticCache(
            config=model.config, max_batch_size=1, max_cache_len=context, device="cuda", dtype=model.dtype
        )
        self.token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
        self.position = torch.zeros((1,), dtype=torch.long, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.forward()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.next = self.forward()

    def forward(self):
        shown = self.model(
            self.token, past_key_values=self.cache, cache_position=self.position, position_ids=self.position[None], use_cache=True
        )
        return shown.logits[:, -1].argmax(-1, keepdim=True)

    def answer(self, ids, tokens):
        """Token ids, and the seconds that the tokens behind the first took."""
        torch = self.torch
        self.cache.reset()
        positions = torch.arange(ids.shape[1], device="cuda")
        shown = self.model(ids, past_key_values=self.cache, cache_position=positions, use_cache=True)
        self.token.copy_(shown.logits[:, -1].argmax(-1, keepdim=True))
        answer = [self.token.item()]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for place in range(ids.shape[1], ids.shape[1] + tokens - 1):
            self.position.fill_(place)
            self.graph.replay()
            self.token.copy_(self.next)
            answer.append(self.token.item())
        return answer, time.perf_counter() - begun


def generated(torch, model, ids, tokens, **more):
    """The same through model.generate: time of the whole answer less that of its first token, both measured."""
    seconds = []
    for count in (1, tokens):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        answer = model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, **more)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return answer[0, ids.shape[1]:].tolist(), seconds[1] - seconds[0]


def main():
    given = options()
    import torch
    import transformers

    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU: expected one; see nvidia-smi")
    load = lambda folder: transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16).cuda().eval()
    model, tokenizer = load(given.model), transformers.AutoTokenizer.from_pretrained(given.model)
    assistant = load(given.assistant) if given.assistant else None
    prompts = [prompt_of(line) for line in pathlib.Path(given.prompts).read_text().splitlines() if line.strip()]
    with torch.inference_mode(), open(given.out, "x") as out:
        graph = Graph(torch, transformers, model, given.context)
        arms = {
            "graph": graph.answer,
            "eager": lambda ids, n: generated(torch, model, ids, n),
            "lookup": lambda ids, n: generated(torch, model, ids, n, prompt_lookup_num_tokens=5),
        }
        if assistant is not None:
            arms["assisted"] = lambda ids, n: generated(torch, model, ids, n, assistant_model=assistant)
        header = {"measure": "header", "script": "torch_cuda", "torch": torch.__version__, "transformers": transformers.__version__}
        header |= {"device": torch.cuda.get_device_name(), "options": vars(given)}
        print(json.dumps(header), file=out, flush=True)
        times = {arm: [] for arm in arms}
        for repetition in range(-1, given.repetitions):
            for number, prompt in enumerate(prompts):
                chat = tokenizer.apply_chat_template(
                    [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
                )
                ids = chat["input_ids"][:, -(given.context - given.tokens):].cuda()
                for arm, answer in arms.items():
                    token_ids, seconds = answer(ids, given.tokens)
                    # The first round is for whatever happens once.
                    if repetition < 0:
                        continue
                    tpot = 1000 * seconds / (given.tokens - 1)
                    times[arm].append(tpot)
                    run = {"repetition": repetition, "prompt": number, "arm": arm, "tpot_ms": tpot, "token_ids": token_ids}
                    print(json.dumps(run), file=out, flush=True)
    for arm, all_times in times.items():
        print(f"{arm:10} {statistics.median(all_times):8.3f} ms/token")


if __name__ == "__main__":
    main()
