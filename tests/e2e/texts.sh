# tokenize, detokenize, generate and eval on tiny checkpoints, against what transformers computed
# (tests/tiny/README.md says how). Weights are float32, so greedy ids must be equal.
expect() { json "$TINY/expected.json" "$1"; }
words() { json "$TINY/expected.json" "' '.join(map(str, d['$1']))"; }

tri export "$TINY" -o m.tg --weights f32 --speculation 4
check "a Hugging Face folder is exported" test "$rc" -eq 0 -a -d m.tg
check "export prints nothing on standard output" test ! -s out

expect "d['text']" | head -c -1 >text
tri tokenize m.tg -f text
check "tokenize prints the ids of HF tokenizers" is_same "$(cat out)" "$(words text_ids)"
tri tokenize m.tg --json -f text
check "tokenize --json has the same ids" is_same "$(json out "' '.join(map(str, d['tokens']))")" "$(words text_ids)"
words text_ids >ids
tri detokenize m.tg --no-special -f ids
check "detokenize gives the text back" cmp -s out text
tri detokenize m.tg --no-special --json -f ids
check "detokenize --json does too" is_same "$(json out "d['text']")" "$(cat text)"
"$TRIGRAPH" tokenize m.tg <text >out 2>err
rc=$?
check "tokenize reads standard input" is_same "$(cat out)" "$(words text_ids)"

mkdir bare
cp "$TINY/tokenizer.json" bare
for source in "$TINY" bare bare/tokenizer.json; do
    tri tokenize "$source" -f text
    check "tokenize reads $(basename "$source") without weights" is_same "$(cat out)" "$(words text_ids)"
done
tri detokenize bare --no-special -f ids
check "and so does detokenize" cmp -s out text
check "nothing is exported for it" test -z "$(ls cache)"

n=$(expect "len(d['greedy'])")
json "$TINY/expected.json" "' '.join(map(str, d['ids'][:d['prompt']]))" >prompt
tri generate m.tg --ids prompt -n "$n" --ignore-eos --temp 0 --json
check "generate --ids gives transformers' greedy ids" is_same "$(json out "' '.join(map(str, d['tokens']))")" "$(words greedy)"
check "generate --json has the prompt's ids" is_same "$(json out "' '.join(map(str, d['prompt_tokens']))")" "$(cat prompt)"
check "generate --json says why it ended" is_same "$(json out "d['finish_reason']")" length
check "generate --json has every statistic" has_json out "[d['text'], d['seed']] + [d['stats'][k] for k in
 'load_ms ttft_ms prompt_tokens_per_s decode_tokens_per_s peak_rss_mb threads cpu_tier'.split()]"
check "generate --json is one line" is_same "$(wc -l <out)" 1
text=$(json out "d['text']")
tri generate m.tg --ids prompt -n "$n" --ignore-eos --temp 0
check "generate prints the same text" is_same "$(cat out)" "$text"
for t in 1 2 3; do
    tri generate m.tg --ids prompt -n "$n" --ignore-eos --temp 0 --json -t $t
    check "$t threads give the same ids" is_same "$(json out "' '.join(map(str, d['tokens']))")" "$(words greedy)"
done
tri generate m.tg --ids prompt -n 5 --temp 0 --ignore-eos --stats
check "--stats are on standard error" grep -q 'tokens/s' err

# 40 + 28 tokens; the original length is 48.
ACROSS=$ROOT/tests/parity/models/phi3-across
json "$ACROSS/expected.json" "' '.join(map(str, d['sequences'][0]['ids'][:40]))" >short
tri export "$ACROSS" -o across.tg --weights f32 --kv f32
tri generate across.tg --ids short -n 28 --ignore-eos --temp 0 --json --stats
check "generate crosses longrope's original length as transformers does" is_same "$(json out "d['tokens']")" "$(
    json "$ACROSS/expected.json" "d['sequences'][0]['greedy']")"
check "--stats says that it computed the tokens again" grep -q '; 48 tokens computed again with long rope factors' err
check "and so does --json" is_same "$(json out "d['stats']['recomputed_tokens']")" 48
tri generate across.tg --ids short -n 9 --ignore-eos --temp 0 --stats
check "a shorter completion says nothing of it" sh -c '! grep -q "computed again" err'
rm -rf across.tg

tri generate m.tg --ids prompt -n 20 --temp 1.5 -s 7 --json
first=$(json out "d['tokens']")
tri generate m.tg --ids prompt -n 20 --temp 1.5 -s 7 --json -t 1
check "a seed draws the same tokens again" is_same "$(json out "d['tokens']")" "$first"
check "the seed is reported" is_same "$(json out "d['seed']")" 7
tri generate m.tg --ids prompt -n 20 --temp 1.5 -s 8 --json
check "another seed draws others" test "$(json out "d['tokens']")" != "$first"

# Text is expected as far as the rule says of the text without stop strings: the first to be complete.
story() { tri generate "$ROOT/tests/tiny/offline" --raw -p "Once upon a time" -n 40 --temp 0 "$@"; }
story
whole=$(cat out)
story --stop "little cat named" --stop "cat"
check "the stop string that is complete first ends the text" is_same "$(cat out)" "${whole%%cat*}"
story --stop "at named" --stop "cat named" --stop "named"
check "of several complete at once it is the one that began first" is_same "$(cat out)" "${whole%%cat named*}"
check "and the text has them" test "$whole" != "${whole%%little cat named*}"
story --stop "a text that does not come"
check "a stop string that never comes changes nothing" is_same "$(cat out)" "$whole"

tri generate m.tg -p "$(cat text)" -n 4 --temp 0 --json
ids=$(json out "d['prompt_tokens']")
cat text | "$TRIGRAPH" generate m.tg -n 4 --temp 0 --json >out 2>err
check "a prompt through a pipe is the same prompt" is_same "$(json out "d['prompt_tokens']")" "$ids"
tri generate m.tg -f text -n 4 --temp 0 --json
check "and so is one from a file" is_same "$(json out "d['prompt_tokens']")" "$ids"
tri generate m.tg --raw -f text -n 4 --temp 0 --json
check "--raw is the text alone" is_same "$(json out "' '.join(map(str, d['prompt_tokens']))")" "$(words text_ids)"

words ids >all
tri eval m.tg --ids all --logits l.npy --json
check "eval --logits agrees with transformers within 2e-3" python3 "$ROOT/tests/e2e/compare_npy.py" l.npy "$TINY/expected.npy" 2e-3
check "eval --json counts the tokens" is_same "$(json out "d['tokens']")" "$(wc -w <all)"
check "eval's perplexity is that of transformers' logits" python3 "$ROOT/tests/e2e/compare_npy.py" --perplexity "$(json out "d['perplexity']")" all "$TINY/expected.npy"
cp l.npy whole.npy
tri eval m.tg --ids all --logits l.npy --chunk 7
check "a chunk of 7 gives the same bytes" cmp -s l.npy whole.npy
check "eval prints a line for people" grep -q '^perplexity [0-9.]* over ' out
tri eval m.tg -f text --json
check "eval reads a text" test "$rc" -eq 0

tri bench m.tg -p 16 -n 4 -r 3 --json
check "bench --json has median, min and max of each" has_json out "[d[k][m] + 0.0 for k in
 'prompt_tokens_per_s decode_tokens_per_s ttft_ms load_ms peak_rss_mb'.split() for m in ('median', 'min', 'max')]"
tri bench m.tg -p 16 -n 4 -r 1
check "bench prints a table" grep -q '^| prefill, tokens/s' out
check "bench without --profile prints no operations" is_same "$(grep -c 'GMAC/s' out)" 0
tri bench m.tg -p 16 -n 4 -r 1 --profile
check "bench --profile prints what a token step costs" grep -q '^| glu_matmul gate .* %' out
tri bench m.tg -p 16 -n 4 -r 1 --profile --json
# Of the prompt the last layer's gated unit sees the one row whose logits are wanted.
check "a profile has the products of the model's shape" has_json out "[1 / (got == want) for c in
 [json.load(open('$TINY/config.json'))] for kind, tokens, last in (('context', 16, 1), ('token', 3, 3)) for got, want in
 [(d['profile'][kind]['operations']['glu_matmul gate']['products'],
   (tokens * (c['num_hidden_layers'] - 1) + last) * 2 * c['hidden_size'] * c['intermediate_size'])]]"
check "a profile has the products of the positions seen" has_json out "[1 / (got == want) for c in
 [json.load(open('$TINY/config.json'))] for kind, seen in (('context', range(1, 17)), ('token', (17, 18, 19))) for got, want in
 [(d['profile'][kind]['operations']['attention']['products'],
   sum(seen) * c['num_hidden_layers'] * 2 * c['num_attention_heads'] * c['head_dim'])]]"
check "a profile counts the steps and sums their seconds" has_json out "[1 / (k['steps'] == n and
 abs(sum(o['seconds'] for o in k['operations'].values()) - k['seconds']) < 1e-7)
 for k, n in ((d['profile']['context'], 1), (d['profile']['token'], 3))]"

tri bench m.tg -p 16 -n 4 -r 2 --depth 70 --profile --json
check "bench --depth says how deep" is_same "$(json out "d['depth']")" 70
check "behind --depth the prompt sees the tokens before" has_json out "[1 / (got == want) for c in
 [json.load(open('$TINY/config.json'))] for kind, seen in (('context', range(71, 87)), ('token', (87, 88, 89))) for got, want in
 [(d['profile'][kind]['operations']['attention']['products'],
   sum(seen) * c['num_hidden_layers'] * 2 * c['num_attention_heads'] * c['head_dim'])]]"
tri bench m.tg -p 16 -n 4 -r 2 --verify --json
check "bench --verify holds steps of up to K + 1 tokens against a plain one" has_json out "[1 / (sorted(t) == list('12345')
 and t['1']['ratio'] == {'median': 1, 'min': 1, 'max': 1} and all(x['ms']['median'] > 0 for x in t.values())
 and d['verify']['depth'] == 16 and d['verify']['speculation'] == 4) for t in [d['verify']['tokens']]]"
tri bench m.tg -p 16 -n 4 -r 1 --verify
check "bench --verify says what the artifact's K allows" grep -q 'exported with --speculation 4: no step has more than 5 tokens' out
tri export "$TINY" -o rows.tg --batch 3 --speculation 7
tri bench rows.tg -p 16 -n 24 -r 2 --batch 3 --profile --verify --json
check "bench --batch measures rows together" has_json out "[1 / (d['batch'] == 3 and d['decode_tokens_per_s']['median'] > 0
 and 3 * 15 <= d['profile']['context']['tokens'] <= 3 * 16 and d['profile']['token']['tokens'] == 3 * 23
 and sorted(d['verify']['tokens']) == list('12345678') and d['profile']['speculate']['tokens'] == 5 * 3 * 8)]"
tri bench rows.tg -p 16 -n 24 -r 1 --batch 2 --depth 40
check "bench names rows and depth" grep -q '^llama: 2 sequences, depth 40, prefill 16, decode 24' out
tri export "$TINY" -o small.tg --batch 3 --context-buckets 8
refuses "a bench whose rows never decode together" 1 "no step decoded all of --batch 3: .* larger -n" bench small.tg -p 16 -n 2 -r 1 --batch 3
check "peak memory is the program's, not that of who starts it" python3 -c 'import json, subprocess, sys
large = b"." * (200 << 20)
run = subprocess.run(sys.argv[1:], capture_output=True, check=True)
sys.exit(json.loads(run.stdout)["peak_rss_mb"]["median"] > 100)' "$TRIGRAPH" bench m.tg -p 8 -n 2 -r 1 --json
tri bench rows.tg -p 1 -n 2 -r 1 --verify
check "bench --verify of 8 tokens needs no excuse" is_same "$(grep -c 'exported with' out)" 0

tri bench m.tg -p 16 -n 24 -r 2 -t 2 --roofline --json
check "bench --roofline needs the weights' bytes and the shape's products" has_json out "[1 / (abs(r['products'] / want - 1) < 1e-6
 and 0 < r['weight_bytes'] <= $(stat -c %s m.tg/weights.0.bin) and r['round_trip_ns'] > 0 and r['placement'] != 'one thread'
 and r['cyclic_bytes'] % 4096 == 0 and r['cyclic_bytes_per_s']['min'] > 0 and r['memory_bytes_per_s'] > 0)
 for r in [d['roofline']] for c in [json.load(open('$TINY/config.json'))] for h in [c['num_attention_heads'] * c['head_dim']]
 for want in [c['hidden_size'] * (c['num_hidden_layers'] * (2 * h + 2 * c['num_key_value_heads'] * c['head_dim']
  + 3 * c['intermediate_size']) + c['vocab_size']) + c['num_hidden_layers'] * 2 * h * sum(range(17, 40)) / 23]]"
check "a share is what was reached of the rate" has_json out "[1 / (0.3 < r['decode_bytes_share']['median'] /
 (r['decode_tokens_per_s']['median'] * (r['weight_bytes'] + r['cache_bytes']) / r['cyclic_bytes_per_s']['median']) < 3) for r in [d['roofline']]]"
tri bench rows.tg -p 16 -n 6 -r 1 -t 1 --batch 3 --roofline --json
check "of several rows a step needs the products of all" has_json out "[1 / (abs(d['roofline']['products'] / want - 1) < 1e-6)
 for c in [json.load(open('$TINY/config.json'))] for h in [c['num_attention_heads'] * c['head_dim']]
 for want in [3 * (c['hidden_size'] * (c['num_hidden_layers'] * (2 * h + 2 * c['num_key_value_heads'] * c['head_dim']
  + 3 * c['intermediate_size']) + c['vocab_size']) + c['num_hidden_layers'] * 2 * h * sum(range(17, 22)) / 5)]]"
tri bench m.tg -p 16 -n 4 -r 1 -t 1 --roofline
check "bench --roofline names the placement" grep -q '^roofline, one thread$' out

tri inspect m.tg
check "inspect says what is inside" grep -qi llama out
tri inspect m.tg --json
check "inspect --json is JSON" has_json out "d"
tri inspect m.tg --verify
check "inspect --verify passes a whole artifact" test "$rc" -eq 0
tri inspect "$TINY" --json
check "inspect reads a checkpoint" has_json out "d"

tri generate "$TINY" --ids prompt -n 2 --temp 0
check "a source is exported into the cache, with a line that says so" grep -q 'export' err
tri generate "$TINY" --ids prompt -n 2 --temp 0
check "the second time it is found" test ! -s err -a "$rc" -eq 0
