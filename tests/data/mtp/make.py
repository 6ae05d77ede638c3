#!/usr/bin/env python3
"""Makes a random layer that predicts a further token for tiny models of `../families`, as folders and GGUF files have it,
and what PyTorch computes with it in float32, with the layer of transformers' own class.

    python3 make.py [NAME ...]

Needs torch, transformers, safetensors and gguf (versions: README.md). Writes NAME/ beside this script; without names, all.
"""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tiny_heads import CANDIDATES, FAMILIES, TEXT_TOKENS, short, streams

spec = importlib.util.spec_from_file_location("families", FAMILIES / "make.py")
families = importlib.util.module_from_spec(spec)
spec.loader.exec_module(families)

DEPTH = 6
SHOWN_PLACES = (0, 7, TEXT_TOKENS - 1)
CLASSES = {"qwen35": (dense.Qwen3_5DecoderLayer, dense.Qwen3_5RMSNorm),
           "qwen35moe": (moe.Qwen3_5MoeDecoderLayer, moe.Qwen3_5MoeRMSNorm)}


class Further(torch.nn.Module):
    """The projection of a token's row and a hidden row, and one layer that attends."""

    def __init__(self, family, config):
        super().__init__()
        layer, norm = CLASSES[family]
        self.config = copy.deepcopy(config)
        self.config.num_hidden_layers, self.config.layer_types = 1, ["full_attention"]
        d, eps = config.hidden_size, config.rms_norm_eps
        self.fc = torch.nn.Linear(2 * d, d, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (norm(d, eps=eps) for _ in range(3))
        self.layers = torch.nn.ModuleList([layer(self.config, 0)])

    def forward(self, model, tokens, given):
        """Logits and own rows, for tokens each with the row that is given with it."""
        embedded = self.pre_fc_norm_embedding(model.get_input_embeddings()(torch.tensor(tokens)))
        x = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(given)], -1))[None]
        n = x.shape[1]
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=mask,
                           position_ids=positions)
        own = self.norm(x[0] if isinstance(x, tuple) else x)[0]
        return model.lm_head(own), own


def draft_tree(model, further, ids, rows):
    """The two best children of the best node of each depth, with the candidates and the own row of every node."""
    nodes = [dict(token=ids[-1], parent=None, path=[])]
    last = 0
    for depth in range(DEPTH + 1):
        for node in nodes:
            if "candidates" in node:
                continue
            above = [nodes[i] for i in node["path"]]
            tokens = ids[1:] + [n["token"] for n in above[1:]] + ([node["token"]] if node["path"] else [])
            given = torch.cat([rows[:-1]] + [n["own"][None] for n in above])
            logits, own = further(model, tokens, given)
            best = logits[-1].topk(CANDIDATES)
            node.update(own=own[-1], candidates=best.indices.tolist(), logits=short(best.values.tolist()),
                        hidden=short(own[-1].tolist()))
        if depth == DEPTH:
            break
        parent = nodes[last]
        for token in parent["candidates"][:2]:
            nodes.append(dict(token=token, parent=last, path=parent["path"] + [last]))
        last = len(nodes) - 2
    return [{k: node[k] for k in ("token", "parent", "candidates", "logits", "hidden")} for node in nodes]


def write_gguf(path, family, c, weights, trunk):
    """The model with its further layer, as llama.cpp's converter writes both."""
    layers, of_family = c["num_hidden_layers"], families.FAMILIES[family]
    outer = {"mtp.fc": "eh_proj", "mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm",
             "mtp.norm": "shared_head_norm"}
    all_layers = dict(trunk)
    for name, values in weights.items():
        if name.startswith("mtp.layers.0."):
            all_layers[name.replace("mtp.layers.0.", f"model.layers.{layers}.")] = values
    for name in [n for n in all_layers if n.endswith("experts.gate_up_proj")]:
        before, both = name.removesuffix("gate_up_proj"), all_layers.pop(name)
        down = all_layers.pop(before + "down_proj")
        for i, (each, back) in enumerate(zip(both, down)):
            gate, up = each.chunk(2)
            for part, values in (("gate_proj", gate), ("up_proj", up), ("down_proj", back)):
                all_layers[f"{before}{i}.{part}.weight"] = values.contiguous()
    longer = {**c, "num_hidden_layers": layers + 1}
    tensors = families.gguf_tensors(longer, of_family, families.with_experts_together(all_layers))
    for name, new in outer.items():
        values = weights[f"{name}.weight"].float().numpy()
        # The converter adds one to all gains of the family.
        tensors[f"blk.{layers}.nextn.{new}.weight"] = values.astype("float16") if name == "mtp.fc" else values + 1
    writer = gguf.GGUFWriter(path, of_family["arch"])
    families.write_metadata(writer, longer, of_family)
    writer.add_uint32(f"{of_family['arch']}.nextn_predict_layers", 1)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(family, seed):
    folder, out = FAMILIES / family, HERE / family
    c = json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    further = Further(family, config).float().eval()
    families.fill(further, families.FAMILIES[family], seed)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, c["vocab_size"], (TEXT_TOKENS,), generator=generator).tolist()
    rows = streams(model, ids)[-1]
    with torch.no_grad():
        nodes = draft_tree(model, further, ids, model.model.norm(rows))
    margins = [a - b for node in nodes for a, b in zip(node["logits"], node["logits"][1:])]
    print(f"{family}: {sum(m > 0.01 for m in margins)} of {len(margins)} margins over 0.01")
    weights = {f"mtp.{k}": v.to(torch.bfloat16).contiguous() for k, v in further.state_dict().items()}
    out.mkdir(exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps({**c, "mtp_num_hidden_layers": 1}, indent=1) + "\n")
    write_gguf(out / "model.gguf", family, c, weights, load_file(folder / "model.safetensors"))
    expected = dict(verifier=family, layers=[c["num_hidden_layers"]], token_ids=ids, nodes=nodes,
                    rows=[dict(place=place, row=short(rows[place].tolist())) for place in SHOWN_PLACES])
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number, family in enumerate(CLASSES):
        if len(sys.argv) == 1 or family in sys.argv[1:]:
            make(family, 300 + number)
