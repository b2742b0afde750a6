"""Changes to llama.cpp's attention on the CPU, made in its unpacked sources before they are compiled.

    python image-build/llama_patch.py FOLDER

FOLDER is an unpacked llama-cpp-python. Each change names a text that has to stand there exactly once, so that another version of
llama.cpp ends the build instead of being changed by half. What they are for, and what was measured: docs/engine.md, "Flash
attention". Standard library only, any Python from 3.9 on.

1. AVX512-FP16 (x86): a step of 32 numbers in place of 128, or heads of 64 numbers are computed one number at a time.
2. One token is computed as several are, never with its keys divided among threads: by how many, and where, its numbers differed.
3. Keys and values of many tokens go into blocks without those that nobody of the block sees: numbers differed by where in the
   window a conversation's tokens lie.
4. A name for all this among the features of the CPU, which is part of the identity of saved states.
"""

import sys
from pathlib import Path

CPU = Path("vendor/llama.cpp/ggml/src/ggml-cpu")
MARK = "OWLBOX_ATTENTION"
CHANGES = (
    ("simd-mappings.h", "#define GGML_F16_STEP 128\n", "#define GGML_F16_STEP 32\n"),
    ("ops.cpp", "const bool use_split_kv_path = !use_ref &&", "const bool use_split_kv_path = false && !use_ref &&"),
    # Blocks of keys and values: `seen` holds the cells that a row of this tile sees, in their order.
    (
        "ops.cpp",
        """\
        for (int64_t ic = 0; ic < nek1; ic += KV_TILE_SZ) {
            const int kv_tile = (int)std::min((int64_t)KV_TILE_SZ, nek1 - ic);
""",
        """\
        seen.clear();
        for (int64_t cell = 0; cell < nek1; ++cell) {
            bool is_seen = mask == nullptr;
            for (int tq = tile_rows - 1; tq >= 0 && !is_seen; --tq) {  // the last row sees most
                const char * mask_row = (const char *) mask->data + (iq1 + tq)*mask->nb[1] + (iq2%mask->ne[2])*mask->nb[2]
                                      + (iq3%mask->ne[3])*mask->nb[3];
                is_seen = ((const ggml_fp16_t *) mask_row)[cell] != MINUS_INFINITY_F16;
            }
            if (is_seen) {
                seen.push_back((int32_t) cell);
            }
        }
        const int64_t n_seen = (int64_t) seen.size();

        for (int64_t ic = 0; ic < n_seen; ic += KV_TILE_SZ) {
            const int kv_tile = (int)std::min((int64_t)KV_TILE_SZ, n_seen - ic);
""",
    ),
    ("ops.cpp", "slope * GGML_CPU_FP16_TO_FP32(mp_row[ic + tk]);", "slope * GGML_CPU_FP16_TO_FP32(mp_row[seen[ic + tk]]);"),
    (
        "ops.cpp",
        "k_data = (const char *)k->data + (ic + tk)*nbk1 +",
        "k_data = (const char *)k->data + (int64_t) seen[ic + tk]*nbk1 +",
    ),
    (
        "ops.cpp",
        "v_data = (const char *)v->data + (ic + tk)*nbv1 +",
        "v_data = (const char *)v->data + (int64_t) seen[ic + tk]*nbv1 +",
    ),
    (
        "ops.cpp",
        "    static constexpr int KV_TILE_SZ = ggml_fa_tile_config::KV;\n\n    int ir = ir0;\n",
        """\
    static constexpr int KV_TILE_SZ = ggml_fa_tile_config::KV;
    static constexpr ggml_fp16_t MINUS_INFINITY_F16 = 0xFC00;
    std::vector<int32_t> seen;
    seen.reserve(nek1);

    int ir = ir0;
""",
    ),
    (
        "ggml-cpu.cpp",
        "        features.push_back({ nullptr, nullptr });\n",
        f'        features.push_back({{ "{MARK}", "1" }});\n\n        features.push_back({{ nullptr, nullptr }});\n',
    ),
)


def main() -> int:
    """Change every file, or none."""
    folder = Path(sys.argv[1]) / CPU
    texts = {name: (folder / name).read_text(encoding="utf-8") for name, _, _ in CHANGES}
    for name, old, new in CHANGES:
        if (count := texts[name].count(old)) != 1:
            print(f"llama_patch: {folder / name} has {old.strip()!r} {count} times, not once", file=sys.stderr)
            return 1
        texts[name] = texts[name].replace(old, new)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
