# Every kind of broken input: one sentence that names the culprit, exit 1, and no artifact.
GGUF=$ROOT/tests/tiny/llama-mha-old/model.gguf
copy() { rm -rf broken && cp -r "$TINY" broken && chmod -R u+w broken; }

: >empty.gguf
refuses "an empty file" 1 "empty\.gguf" export empty.gguf -o d
refuses "a file that is not there" 1 "nothing/here" export nothing/here -o d
refuses "a model that is not there" 1 "nothing/here" generate nothing/here -p hi
echo "this is a letter to a friend" >letter.gguf
refuses "a file that is no model" 1 "letter\.gguf" export letter.gguf -o d
mkdir bare
refuses "a folder without a model" 1 "bare" export bare -o d

size=$(wc -c <"$GGUF")
for i in 1 2 3 4 5 6 7 8 9 10; do
    n=$((size * i / 10 - i))
    head -c $n "$GGUF" >cut.gguf
    refuses "a GGUF file cut after $n of $size bytes" 1 "cut\.gguf" export cut.gguf -o d
done
size=$(wc -c <"$TINY/model.safetensors")
for i in 1 2 3 4 5 6 7 8 9 10; do
    n=$((size * i / 10 - i))
    copy
    head -c $n "$TINY/model.safetensors" >broken/model.safetensors
    refuses "a safetensors file cut after $n of $size bytes" 1 "model\.safetensors" export broken -o d
done
broken() { # KIND PATTERN
    copy
    python3 "$ROOT/tests/e2e/damage.py" broken "$1"
    refuses "a checkpoint with $1" 1 "$2" export broken -o d
}
broken long-header "model\.safetensors.*header"
broken overlap "model\.safetensors.*(overlap|gap|hole|byte)"
broken outside "model\.safetensors"
broken dtype "F33"
broken missing-tensor "q_(proj|porj)"
broken shape "q_proj"
broken unknown-architecture "perceiver|Perceiver"
broken not-json "config\.json.*line"
copy
rm broken/model.safetensors
refuses "a folder without weights" 1 "broken" export broken -o d
check "no artifact came of any of them" test ! -e d

copy
python3 "$ROOT/tests/e2e/damage.py" broken no-tokenizer
tri export broken -o silent.tg
if [ "$rc" -eq 0 ]; then
    refuses "a text for a model without a tokenizer" 1 "no tokenizer" generate silent.tg -p hi
    check "the message names --ids" grep -q -e '--ids' err
else
    check "a missing tokenizer is named at export" grep -q 'tokenizer' err
fi

echo '{"max_lenght": 64}' >typo.json
refuses "an unknown config key" 1 "max_lenght" export "$TINY" -o d --config typo.json
check "an unknown config key names the nearest" grep -q "max.length" err
echo '{"max_length": "long"}' >type.json
refuses "a config value of another type" 1 "max.length" export "$TINY" -o d --config type.json
refuses "a max-length beyond the model's" 1 "16777216|max.length" export "$TINY" -o d --max-length 16777216
refuses "a config file that is not there" 1 "no\.json" export "$TINY" -o d --config no.json

seq 1 400 >numbers.txt
: >nothing.txt
echo "a few words" >few.txt
few="--weights q4_1 --calibrate"
refuses "a calibration text that is not there" 1 "no/text" export "$TINY" -o d $few no/text
refuses "an empty calibration text" 1 "nothing\.txt: the calibration text is empty" export "$TINY" -o d $few nothing.txt
refuses "a calibration text that is too short" 1 "few\.txt: .* tokens; at least 64" export "$TINY" -o d $few few.txt
refuses "a calibration text that serves nothing" 1 "numbers\.txt: .*--weights q4_0" export "$TINY" -o d --weights q8_0 --calibrate numbers.txt
refuses "and that without --weights" 1 "numbers\.txt: .*--weights q4_0" export "$TINY" -o d --calibrate numbers.txt
# Float embeddings, but no matrix that a calibration would serve.
cp -r "$ROOT/tests/parity/models/prequantized-gptq32" gptq
echo '{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
 "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "1": 1}, "unk_token": "<unk>"}}' >gptq/tokenizer.json
refuses "a calibration text for codes that stay" 1 "numbers\.txt: .*quantized already" export gptq -o d $few numbers.txt
MODEL=$TG_MODELS/smollm2-135m-instruct.gguf
if [ -f "$MODEL" ]; then
    refuses "another type for blocks that stay" 1 "--weights q8_0 is for matrices of floats, and all .* are quantized already" export "$MODEL" -o d --weights q8_0
    refuses "a calibration text for blocks that stay" 1 "--weights q4_1 is for .*quantized already" export "$MODEL" -o d $few numbers.txt
else
    skip "a calibration text for blocks that stay: models are missing"
fi
copy
python3 "$ROOT/tests/e2e/damage.py" broken no-tokenizer
refuses "a calibration text for a model without a tokenizer" 1 "numbers\.txt: .*no tokenizer" export broken -o d $few numbers.txt
check "and of none of them an artifact came" test ! -e d

tri export "$TINY" -o m.tg --max-length 32
check "a short model is exported" test "$rc" -eq 0
refuses "an artifact that exists" 1 "m\.tg" export "$TINY" -o m.tg
check "the message names --force" grep -q -e '--force' err
refuses "an empty prompt" 1 "prompt is empty" generate m.tg -p ""
printf 'a\377b' >latin
refuses "a prompt that is not UTF-8" 1 "latin: byte 1 .0xff." generate m.tg -f latin
refuses "a prompt file that is not there" 1 "no/prompt" generate m.tg -f no/prompt
for i in 1 2 3 4 5 6 7 8; do printf '5 6 7 8 '; done >long
refuses "a prompt as long as max-length" 1 "32" generate m.tg --ids long
echo "1 2 x" >ids
refuses "a word that is no id" 1 "ids: word 3, 'x'" generate m.tg --ids ids
echo "1 2 99999999" >ids
refuses "an id beyond the embedding" 1 "99999999" generate m.tg --ids ids
refuses "an id beyond the embedding, evaluated" 1 "99999999" eval m.tg --ids ids
refuses "an id beyond the vocabulary, detokenized" 1 "99999999" detokenize m.tg -p "1 99999999"
refuses "an empty text to evaluate" 1 "empty" eval m.tg -p ""
refuses "logits into a folder that is not there" 1 "no/where" eval m.tg -p hi --logits no/where.npy
check "no temporary is left" test -z "$(ls | grep tmp)"
refuses "a bench longer than max-length" 1 "context length of 32" bench m.tg -p 64 -n 8 -r 1
refuses "a bench deeper than max-length" 1 "20 tokens before, a prompt of 8 and a completion of 8 exceed the model's context length of 32" bench m.tg -d 20 -p 8 -n 8 -r 1
(
    ulimit -v 2000000 # what is too long is refused before it is made: 32 GB of prompts
    refuses "a bench of sequences far beyond max-length" 1 "exceed the model's context length of 32" bench m.tg --batch 256 -d 16777216 -p 16777216
)
refuses "a bench of more sequences than the artifact's" 1 "--batch 2 is more than the batch of 1" bench m.tg --batch 2 -p 8 -n 8 -r 1
tri export "$TINY" -o plain.tg --max-length 32 --speculation 0
tri export "$TINY" -o draft.tg --max-length 32 --speculation 4
refuses "a bench of verification without speculation" 1 "export it with --speculation 7" bench plain.tg --verify -p 8 -n 8 -r 1
refuses "a bench whose verification passes max-length" 1 "a step of 5 tokens behind 29 others does not fit" bench draft.tg --verify -p 29 -n 2 -r 1
refuses "a chat without a template" 1 "chat template|tokenizer" chat silent.tg

for f in m.tg/*; do
    rm -rf cut.tg && cp -r m.tg cut.tg
    n=$(wc -c <"$f")
    head -c $((n / 2)) "$f" >"cut.tg/$(basename "$f")"
    refuses "an artifact with half of $(basename "$f")" 1 "cut\.tg" generate cut.tg --ids long -n 1
    rm -rf cut.tg && cp -r m.tg cut.tg
    rm "cut.tg/$(basename "$f")"
    refuses "an artifact without $(basename "$f")" 1 "cut\.tg|$(basename "$f")" inspect cut.tg --verify
done
rm -rf cut.tg && cp -r m.tg cut.tg
big=$(ls -S m.tg | head -n 1)
n=$(wc -c <"cut.tg/$big")
printf '\125' | dd of="cut.tg/$big" bs=1 seek=$((n - 100)) conv=notrunc 2>/dev/null
cmp -s "cut.tg/$big" "m.tg/$big" && printf '\252' | dd of="cut.tg/$big" bs=1 seek=$((n - 100)) conv=notrunc 2>/dev/null
refuses "--verify of a changed weight" 1 "$big" inspect cut.tg --verify

: >file
(
    TG_CACHE_DIR=$PWD/file/cache
    export TG_CACHE_DIR
    refuses "a cache below a regular file" 1 "file" generate "$TINY" -p hi
)
refuses "an artifact below a regular file" 1 "file" export "$TINY" -o file/d

# A device or pipe in place of a file is named and not waited for.
mkfifo fifo
refuses "a FIFO as the config" 1 "fifo: is a FIFO" export "$TINY" -o d --config fifo
refuses "a FIFO as the calibration text" 1 "fifo: is a FIFO" export "$TINY" -o d $few fifo
refuses "a FIFO as the model" 1 "fifo: is a FIFO" export fifo -o d
refuses "a device as the model" 1 "/dev/zero: is a device" export /dev/zero -o d
ln -s loop loop
refuses "a loop of links as the model" 1 "loop: .*levels of symbolic links" export loop -o d
copy
rm broken/config.json && mkfifo broken/config.json
refuses "a FIFO in the model's folder" 1 "config\.json: is a FIFO" export broken -o d
for f in program.bin weights.0.bin tokenizer.bin defaults.json; do
    rm -rf cut.tg && cp -r m.tg cut.tg
    rm "cut.tg/$f" && mkfifo "cut.tg/$f"
    refuses "a FIFO in the place of $f" 1 "cut\.tg: $f: is a FIFO" inspect cut.tg
done
tri tokenize m.tg -p hello
cp out expected
(echo hello | tr -d '\n' >fifo) &
tri tokenize m.tg -f fifo
check "a pipe is read where a text is asked for" cmp -s out expected

# A cache that others can write to, or that belongs to somebody else.
mkdir -p open own
chmod 777 open
(
    TG_CACHE_DIR=$PWD/open
    export TG_CACHE_DIR
    refuses "a cache that everybody can write to" 1 "open: can be written to by everybody" generate "$TINY" --raw -p hi -n 1
    TG_CACHE_DIR=$PWD/own
    tri generate "$TINY" --raw -p hi -n 1
    check "a cache of one's own is used" test "$rc" -eq 0
    if chown -R 12345 own/*.tg own/llama* 2>/dev/null || chown -R 12345 own/llama* 2>/dev/null; then
        refuses "an entry of another user" 1 "belongs to user 12345" generate "$TINY" --raw -p hi -n 1
    else
        skip "an entry of another user (only root can make one)"
    fi
    TG_CACHE_DIR=$PWD/made/here
    tri generate "$TINY" --raw -p hi -n 1
    check "a cache is made for its owner alone" is_same "$(stat -c %a made/here)" 700
)
