#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make_model.py OUT.gguf [--width 256] [--layers 1] [--forward 256] [--experts 0] [--half] [--seed 1]: writes a small model of the llama
architecture as a GGUF file (version 3, F32 or F16) that llama.cpp loads.

Each token's embedding is a random vector, and the output row of the token that follows it is the same vector; attention and feed-forward
layers add a third of its length. So the most likely token is far ahead of the others, and two devices that compute a little differently
still agree on it. All row lengths are multiples of 256, so that every quantised type fits. The same arguments give the same bytes.
Standard library only."""
import argparse
import array
import random
import struct

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5  # kinds of metadata values
TENSOR_F32, TENSOR_F16 = 0, 1
ALIGNMENT = 32  # bytes, of each tensor's data
FOLLOWING = 97  # token t is followed by t + 97, round the vocabulary


def text(value):
    return struct.pack("<Q", len(value)) + value


def entry(key, kind, payload):
    return text(key.encode()) + struct.pack("<I", kind) + payload


def list_of(kind, count, payload):
    return struct.pack("<IQ", kind, count) + payload


def vocabulary():
    """Control tokens, one token a byte, the mark of a word and printable characters: enough for any text."""
    tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % byte for byte in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    pieces = ["\u2581".encode()] + [bytes([c]) for c in range(0x21, 0x7F)]
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    return tokens + pieces, kinds + [1] * len(pieces), scores


def metadata(options, tokens, kinds, scores):
    heads = options.width // 64
    numbers = [("context_length", 2048), ("embedding_length", options.width), ("block_count", options.layers),
               ("feed_forward_length", options.forward), ("attention.head_count", heads), ("attention.head_count_kv", heads),
               ("rope.dimension_count", 64), ("vocab_size", len(tokens))]
    if options.experts:
        numbers += [("expert_count", options.experts), ("expert_used_count", 2)]
    rows = [entry("general.architecture", STRING, text(b"llama")), entry("general.name", STRING, text(b"generated")),
            entry("general.file_type", U32, struct.pack("<I", 1 if options.half else 0))]
    rows += [entry("llama." + key, U32, struct.pack("<I", value)) for key, value in numbers]
    rows += [entry("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
             entry("tokenizer.ggml.model", STRING, text(b"llama")),
             entry("tokenizer.ggml.tokens", ARRAY, list_of(STRING, len(tokens), b"".join(map(text, tokens)))),
             entry("tokenizer.ggml.scores", ARRAY, list_of(F32, len(tokens), struct.pack(f"<{len(tokens)}f", *scores))),
             entry("tokenizer.ggml.token_type", ARRAY, list_of(I32, len(tokens), struct.pack(f"<{len(tokens)}i", *kinds))),
             entry("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)),
             entry("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2))]
    return rows


class Tensors:
    """Names, shapes (fastest dimension first) and values, in the order of the file."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows = []

    def noise(self, count, deviation):
        return array.array("f", (self.random.gauss(0.0, deviation) for _ in range(count)))

    def add(self, name, shape, values):
        self.rows.append((name + ".weight", shape, values))

    def add_noise(self, name, shape, deviation):
        count = 1
        for size in shape:
            count *= size
        self.add(name, shape, self.noise(count, deviation))


def tensors_of(options, vocabulary_size):
    tensors = Tensors(options.seed)
    width, forward = options.width, options.forward
    embedding = tensors.noise(width * vocabulary_size, 1.0)
    tensors.add("token_embd", [width, vocabulary_size], embedding)
    output = array.array("f", bytes(4 * len(embedding)))
    for token in range(vocabulary_size):
        following = (token + FOLLOWING) % vocabulary_size
        row = embedding[token * width:(token + 1) * width]
        output[following * width:(following + 1) * width] = array.array("f", (value / 16 for value in row))
    ones = array.array("f", [1.0]) * width
    spread = width ** -0.5
    for layer in range(options.layers):
        block = f"blk.{layer}."
        tensors.add(block + "attn_norm", [width], ones)
        for name, deviation in (("attn_q", spread), ("attn_k", spread), ("attn_v", spread), ("attn_output", spread / 3)):
            tensors.add_noise(block + name, [width, width], deviation)
        tensors.add(block + "ffn_norm", [width], ones)
        experts = [options.experts] if options.experts else []
        suffix = "_exps" if experts else ""
        if experts:
            tensors.add_noise(block + "ffn_gate_inp", [width, options.experts], 1.0)
        tensors.add_noise(block + "ffn_gate" + suffix, [width, forward] + experts, spread)
        tensors.add_noise(block + "ffn_up" + suffix, [width, forward] + experts, spread)
        tensors.add_noise(block + "ffn_down" + suffix, [forward, width] + experts, forward ** -0.5)
    tensors.add("output_norm", [width], ones)
    tensors.add("output", [width, vocabulary_size], output)
    return tensors.rows


def padded(data):
    return data + b"\0" * (-len(data) % ALIGNMENT)


def write(path, options):
    tokens, kinds, scores = vocabulary()
    rows = metadata(options, tokens, kinds, scores)
    tensors = tensors_of(options, len(tokens))
    infos, data, offset = [], [], 0
    for name, shape, values in tensors:
        is_half = options.half and len(shape) > 1
        payload = padded(struct.pack(f"<{len(values)}e", *values) if is_half else values.tobytes())
        infos.append(text(name.encode()) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) +
                     struct.pack("<IQ", TENSOR_F16 if is_half else TENSOR_F32, offset))
        data.append(payload)
        offset += len(payload)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(rows)) + b"".join(rows) + b"".join(infos)
    with open(path, "wb") as file:
        file.write(padded(head) + b"".join(data))
    return sum(len(values) for _, _, values in tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--forward", type=int, default=256)
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.width % 256 or options.forward % 256:
        parser.error("--width and --forward are multiples of 256")
    print(f"{write(options.out, options)} parameters")


if __name__ == "__main__":
    main()
