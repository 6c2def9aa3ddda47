# emulate: other processors, by qemu-user, on tiny checkpoints: one without AVX2 runs the ref tier,
# one without AVX-512 the avx2 tier, neither meets an instruction it lacks, and both answer to the bit
# what this machine answers. Expected ids are those of transformers (tests/tiny/README.md).
EMULATOR=$(command -v qemu-x86_64)

# emulate CPU ARGUMENTS...: like tri, on that processor.
emulate() {
    model=$1
    shift
    "$EMULATOR" -cpu "$model" "$TRIGRAPH" "$@" >out 2>err
    rc=$?
}

if [ -z "$EMULATOR" ] || [ "$(uname -m)" != x86_64 ]; then
    skip "other processors: qemu-x86_64 is not here, or this is no x86-64"
else
    json "$TINY/expected.json" "' '.join(map(str, d['ids'][:d['prompt']]))" >prompt
    greedy=$(json "$TINY/expected.json" "' '.join(map(str, d['greedy']))")
    n=$(json "$TINY/expected.json" "len(d['greedy'])")
    tri export "$TINY" -o m.tg --weights f32
    for pair in Nehalem:ref Haswell:avx2; do
        cpu=${pair%:*} tier=${pair#*:}
        emulate "$cpu" generate m.tg --ids prompt -n "$n" --ignore-eos --temp 0 --json -t 2
        check "a $cpu runs the $tier tier" is_same "$(json out "d['stats']['cpu_tier']")" "$tier"
        check "a $cpu gives transformers' greedy ids" is_same \
            "$(json out "' '.join(map(str, d['tokens']))")" "$greedy"
    done
    for activations in int8 int16; do
        tri export "$TINY" -o q.tg --weights q8_0 --activations $activations --force
        json "$TINY/expected.json" "' '.join(map(str, d['ids']))" >ids
        tri eval q.tg --ids ids --logits here.npy -t 1
        for cpu in Nehalem Haswell; do
            emulate "$cpu" eval q.tg --ids ids --logits there.npy -t 2
            check "a $cpu gives the logits of this machine, $activations" cmp -s here.npy there.npy
        done
    done
    TG_CPU=avx2 emulate Nehalem generate m.tg --ids prompt -n 1
    check "a Nehalem refuses the avx2 tier with a sentence" grep -q \
        "cannot run the CPU tier 'avx2'" err
fi
