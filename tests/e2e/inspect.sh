# inspect: what a checkpoint needs and whether it will run, said before anything is exported.
tri inspect "$TINY"
check "a checkpoint that runs is said to" grep -qx 'will run      yes' out
check "its sizes are read" grep -q '^model         2 layers of width 32, 4 heads and 1 KV head of 16, ffn 64, vocabulary size 288, context length 256$' out
check "its tokenizer and template too" is_same "$(grep -cxE 'tokenizer     288 tokens|chat template default' out)" 2
tri inspect "$TINY" --json
check "--json says the same" has_json out "[1 / (d['runs'] is True and d['obstacles'] == [] and d['architecture'] == 'llama'
 and d['model']['n_layers'] == 2 and d['tokenizer'] == {'n_vocab': 288, 'templates': ['default']})]"
# Keys and values of 2 layers, 1 key head of 16: 2 * 16 * 2 numbers a position, whole pages of 64.
kv() { # BYTES ARGUMENTS...
    bytes=$1
    shift
    tri inspect "$TINY" --json "$@"
    check "keys and values with $* take $bytes bytes" is_same "$(json out "d['memory']['kv_bytes']")" "$bytes"
}
# q16 has a float for each half of a layer's head.
kv $((256 * (64 * 2 + 2 * 2 * 4))) --batch 1
kv $((3 * 128 * (64 * 2 + 2 * 2 * 4))) --batch 3 --max-length 100
kv $((3 * 128 * 64 * 4)) --batch 3 --context 100 --kv f32
kv $((256 * (64 * 2 + 2 * 2 * 4))) --weights q8_0
kv $((256 * 64 * 2)) --kv f16
for w in f32 q8_0 q4_1; do
    tri inspect "$TINY" --json --weights $w --batch 2
    cp out said
    tri export "$TINY" -o $w.tg --weights $w --batch 2
    check "the weights in $w will be as large as said" is_same "$(json said "d['memory']['weights_bytes']")" "$(($(wc -c <$w.tg/weights.0.bin)))"
    tri inspect $w.tg --json
    check "an artifact says the same memory" is_same "$(json out "d['memory']")" "$(json said "d['memory']")"
done
tri inspect f32.tg
check "for people too" grep -q '^memory        batch 2, 256 tokens each: weights .* (mapped), KV cache in f32 128.0 KiB, a step ' out
refuses "another shape of an artifact" 1 "f32\.tg: is an artifact, whose shape" inspect f32.tg --batch 4
tri inspect "$ROOT/tests/tiny/gemma3" --json --max-length 200
check "a window's pages are fewer" has_json out "[1 / (d['runs'] and d['memory']['kv_bytes'] > 0)]"

copy() { rm -rf broken && cp -r "$TINY" broken && chmod -R u+w broken; }
stands() { # NAME PATTERN ARGUMENTS...
    what=$1 pattern=$2
    shift 2
    tri inspect broken "$@"
    check "$what is in the way" grep -qE "^in the way    .*$pattern" out
    check "and inspect fails with 1, quietly" test "$rc" -eq 1 -a ! -s err
    tri inspect broken --json "$@"
    check "and in JSON the model does not run" is_same "$(json out "d['runs']")" False
}
broken() { # KIND PATTERN
    copy
    python3 "$ROOT/tests/e2e/damage.py" broken "$1"
    stands "$1" "$2"
}
broken missing-tensor "q_(proj|porj)"
broken shape "q_proj"
broken unknown-architecture "model_type '[a-z]*erceiver.*llama"
copy
sed -i 's/"vocab_size"/"use_qk_norm": true, "rope_interleaved": true, "vocab_size"/' broken/config.json
stands "more than one key" "config\.json: keys 'rope_interleaved' .*, 'use_qk_norm' "
copy
sed -i 's/"BPE"/"BPX"/' broken/tokenizer.json
stands "a tokenizer that is not built" "tokenizer\.json: .*'BPX'"
sed -i 's/"llama"/"perceiver"/' broken/config.json
tri inspect broken
check "two things in the way are both said" is_same "$(grep -c '^in the way' out)" 2
copy
stands "a length beyond the model's" "max_length is 4096; it must be 1 to 256" --max-length 4096
copy
mv broken/model.safetensors broken/pytorch_model.bin
stands "a pickle" "has weights only as pytorch_model\.bin"
tri inspect broken
check "its tokenizer is looked at all the same" grep -qx 'tokenizer     288 tokens' out
copy
rm broken/model.safetensors
refuses "a folder without weights" 1 "broken" inspect broken
check "no artifact and no cache came of it" test -z "$(ls cache)"
# Prequantized weights: reported by the method's name.
PREQUANTIZED=$ROOT/tests/parity/models/prequantized-awq64
tri inspect "$PREQUANTIZED"
check "a quantized folder is named by its method" is_same "$(grep -cxE 'quantized     awq|will run      yes' out)" 2
tri inspect "$PREQUANTIZED" --json
check "in JSON too" is_same "$(json out "d['quantized']")" awq
cp -r "$PREQUANTIZED" damaged
sed -i 's/"awq"/"hqq"/' damaged/config.json
tri inspect damaged
check "a method that is not built stands in the way" grep -q "^in the way.*quant_method is 'hqq'; built are gptq" out
