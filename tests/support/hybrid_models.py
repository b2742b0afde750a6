"""Small model files with random weights of hybrid architectures, as llama.cpp loads them: recurrent layers beside attention.

They say nothing that makes sense. What is evaluated, restored and equal to the bit is what it is in models of their kind.
"""

import functools
import math
import random
import struct
from array import array
from collections.abc import Iterator

U32, F32, TEXT, ARRAY, I32 = 4, 6, 8, 9, 5
WIDTH, HEADS, KV_HEADS, HEAD, FEED, INNER, STATE, GROUPS, KERNEL, LAYERS = 64, 4, 2, 16, 96, 128, 16, 1, 4, 4
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)
CONTROLS = ("<|im_start|>", "<|im_end|>")
Shape = tuple[int, ...]
Value = int | float | str | list[int] | list[str]

ATTENTION: dict[str, Shape] = {
    "attn_k.weight": (KV_HEADS * HEAD, WIDTH),
    "attn_v.weight": (KV_HEADS * HEAD, WIDTH),
    "attn_output.weight": (WIDTH, HEADS * HEAD),
}
NORMED: dict[str, Shape] = {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
QUERY: dict[str, Shape] = {"attn_q.weight": (HEADS * HEAD, WIDTH)}
FEED_FORWARD: dict[str, Shape] = {"ffn_up.weight": (FEED, WIDTH), "ffn_down.weight": (WIDTH, FEED)}
GATED: dict[str, Shape] = {**FEED_FORWARD, "ffn_gate.weight": (FEED, WIDTH)}
MAMBA: dict[str, Shape] = {
    "ssm_in.weight": (2 * INNER + 2 * GROUPS * STATE + HEADS, WIDTH),
    "ssm_conv1d.weight": (INNER + 2 * GROUPS * STATE, KERNEL),
    "ssm_conv1d.bias": (INNER + 2 * GROUPS * STATE,),
    "ssm_dt.bias": (HEADS,),
    "ssm_a": (HEADS, 1),
    "ssm_d": (HEADS, 1),
    "ssm_norm.weight": (GROUPS, INNER // GROUPS),
    "ssm_out.weight": (WIDTH, INNER),
}
SSM: dict[str, Value] = {
    "conv_kernel": KERNEL,
    "inner_size": INNER,
    "state_size": STATE,
    "time_step_rank": HEADS,
    "group_count": GROUPS,
}
ALTERNATING = [0, KV_HEADS, 0, KV_HEADS]

# Of each architecture: its own entries, its last norm, and the tensors of each layer.
KINDS: dict[str, tuple[dict[str, Value], str, list[dict[str, Shape]]]] = {
    "lfm2": (
        {"shortconv.l_cache": 3, "attention.head_count_kv": ALTERNATING},
        "token_embd_norm.weight",
        [
            {
                **GATED,
                "ffn_norm.weight": (WIDTH,),
                **(
                    {**QUERY, **ATTENTION, **NORMED}
                    if kv
                    else {
                        "shortconv.conv.weight": (WIDTH, 3),
                        "shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
                        "shortconv.out_proj.weight": (WIDTH, WIDTH),
                    }
                ),
            }
            for kv in ALTERNATING
        ],
    ),
    "qwen35": (
        {
            "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_count": HEAD,
            "rope.dimension_sections": [3, 3, 2, 0],
            "full_attention_interval": 2,
            **{f"ssm.{name}": value for name, value in SSM.items()},
            "ssm.inner_size": HEADS * STATE,
            "ssm.group_count": 2,
        },
        "output_norm.weight",
        [
            {
                **GATED,
                "post_attention_norm.weight": (WIDTH,),
                **(
                    {"attn_q.weight": (2 * HEADS * HEAD, WIDTH), **ATTENTION, **NORMED}
                    if kv
                    else {
                        "attn_qkv.weight": (2 * 2 * STATE + HEADS * STATE, WIDTH),
                        "attn_gate.weight": (HEADS * STATE, WIDTH),
                        "ssm_conv1d.weight": (2 * 2 * STATE + HEADS * STATE, KERNEL),
                        "ssm_dt.bias": (HEADS,),
                        "ssm_a": (HEADS,),
                        "ssm_beta.weight": (HEADS, WIDTH),
                        "ssm_alpha.weight": (HEADS, WIDTH),
                        "ssm_norm.weight": (STATE,),
                        "ssm_out.weight": (WIDTH, HEADS * STATE),
                    }
                ),
            }
            for kv in ALTERNATING
        ],
    ),
    "granitehybrid": (
        {"attention.head_count_kv": ALTERNATING, **{f"ssm.{name}": value for name, value in SSM.items()}},
        "output_norm.weight",
        [{**GATED, "ffn_norm.weight": (WIDTH,), **({**QUERY, **ATTENTION} if kv else MAMBA)} for kv in ALTERNATING],
    ),
    "nemotron_h": (
        {
            "attention.head_count_kv": [0, KV_HEADS, 0, 0],
            "feed_forward_length": [0, 0, FEED, 0],
            "attention.layer_norm_epsilon": 1e-5,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            **{f"ssm.{name}": value for name, value in SSM.items()},
        },
        "output_norm.weight",
        [MAMBA, {**QUERY, **ATTENTION}, FEED_FORWARD, MAMBA],
    ),
}


@functools.cache
def hybrid_model(kind: str) -> bytes:
    """A model file of one of `KINDS`, the same bytes each time."""
    own, last, layers = KINDS[kind]
    words = [*_byte_letters(), "Ġt", *CONTROLS]
    shapes: dict[str, Shape] = {"token_embd.weight": (len(words), WIDTH), last: (WIDTH,)}
    for i, layer in enumerate(layers):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {"attn_norm.weight": (WIDTH,), **layer}.items()}
    facts: dict[str, Value] = {
        "context_length": 4096,
        "block_count": LAYERS,
        "embedding_length": WIDTH,
        "feed_forward_length": FEED,
        "attention.head_count": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **own,
    }
    entries: dict[str, Value] = {
        "general.architecture": kind,
        **{f"{kind}.{name}": value for name, value in facts.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3 if word in CONTROLS else 1 for word in words],
        "tokenizer.ggml.merges": ["Ġ t"],
        "tokenizer.ggml.bos_token_id": len(words) - 2,
        "tokenizer.ggml.eos_token_id": len(words) - 1,
        "tokenizer.chat_template": TEMPLATE,
    }
    draw, infos, data = random.Random(kind), b"", b""
    for name, shape in shapes.items():
        infos += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += _weights(draw, name, shape)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries))
    head += b"".join(_text(name) + _value(value) for name, value in entries.items()) + infos
    return head + b"\0" * (-len(head) % 32) + data


def _weights(draw: random.Random, name: str, shape: Shape) -> bytes:
    count = math.prod(shape)
    if "norm" in name:
        return array("f", [1.0] * count).tobytes()
    low, high = (-2.0, -1.0) if name.endswith("ssm_a") else (-0.5, 0.5)
    return array("f", [draw.uniform(low, high) for _ in range(count)]).tobytes()


def _byte_letters() -> Iterator[str]:
    """The letters that stand for bytes in vocabularies of the GPT-2 kind."""
    plain, spare = {*range(33, 127), *range(161, 173), *range(174, 256)}, iter(range(256, 512))
    return (chr(byte if byte in plain else next(spare)) for byte in range(256))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _text(value)
    if isinstance(value, list):
        items = b"".join(_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value)
        return struct.pack("<IIQ", ARRAY, TEXT if isinstance(value[0], str) else I32, len(value)) + items
    return struct.pack("<If", F32, value) if isinstance(value, float) else struct.pack("<II", U32, value)
