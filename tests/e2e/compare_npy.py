"""Compares float32 matrices in .npy files with nothing but Python's own library.

usage: compare_npy.py GOT EXPECTED TOLERANCE
       compare_npy.py --perplexity VALUE IDS_FILE EXPECTED   (relative tolerance 1e-3)
"""
import array
import ast
import math
import struct
import sys


def load(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00", "not NumPy format 1.0"
    (n,) = struct.unpack("<H", data[8:10])
    head = ast.literal_eval(data[10 : 10 + n].decode())
    assert head["descr"] == "<f4" and not head["fortran_order"], head
    values = array.array("f", data[10 + n :])
    rows, cols = head["shape"]
    assert len(values) == rows * cols, (len(values), head["shape"])
    return rows, cols, values


def perplexity(rows, cols, logits, ids):
    nll = 0.0
    for i in range(rows - 1):
        row = logits[i * cols : (i + 1) * cols]
        most = max(row)
        nll += math.log(sum(math.exp(v - most) for v in row)) + most - row[ids[i + 1]]
    return math.exp(nll / (rows - 1))


if sys.argv[1] == "--perplexity":
    got = float(sys.argv[2])
    ids = [int(w) for w in open(sys.argv[3]).read().split()]
    want = perplexity(*load(sys.argv[4]), ids)
    if not abs(got - want) <= 1e-3 * want:
        sys.exit(f"perplexity {got}, expected {want}")
else:
    got, want = load(sys.argv[1]), load(sys.argv[2])
    if got[:2] != want[:2]:
        sys.exit(f"shape {got[:2]}, expected {want[:2]}")
    worst = max(abs(a - b) for a, b in zip(got[2], want[2]))
    if not worst <= float(sys.argv[3]):
        sys.exit(f"largest difference {worst}, allowed {sys.argv[3]}")
