# tokenize, every token shown, many texts at once. Ids and offsets are those of tokenizers 0.23 for the
# tiny checkpoint, offsets counted in bytes.
ids='3 41 87 88 17 71 73 279 11 132 107 88 132 107 35'
text="<|user|>Est-ce l'été?"

tri tokenize "$TINY" -p "$text"
check "special tokens in a text are read" is_same "$(cat out)" "$ids"
tri tokenize "$TINY" -p "$text" --show
check "--show has the ids in order" is_same "$(awk '{print $1}' out | tr '\n' ' ')" "$ids "
check "--show has the bytes of the text" is_same "$(awk '$2 !~ /^(17|18|20|21)-/ {print $2}' out | tr '\n' ' ')" \
    "0-8 8-9 9-10 10-11 11-12 12-13 13-14 14-16 16-17 19-20 22-23 "
check "--show says what a token is and prints" grep -qxE ' +3  0-8 +special,added +"<\|user\|>"' out
check "--show quotes blanks" grep -qxE ' +279  14-16 +- +" l"' out
check "--show escapes a part of a character" grep -qxE ' +132  .* - +"\\xc3"' out
printf '\033[1m"\\\n' >odd
tri tokenize "$TINY" -f odd --show
check "--show escapes what a terminal would obey" is_same "$(awk '{printf "%s", $4}' out)" '"\x1b""[""1""m""\"""\\""\n"'
tri tokenize "$TINY" -p "$text" --show --json
check "--show --json has the same ids" is_same "$(json out "' '.join(str(t['id']) for t in d['tokens'])")" "$ids"
check "its pieces are texts, or bytes of a character" has_json out "[1 / (d['tokens'][i]['piece'] == p) for i, p in
 ((0, '<|user|>'), (7, ' l'), (9, [0xc3]), (10, [0xa9]))]"
check "its flags are true or false" has_json out "[1 / (d['tokens'][i]['special'] is s and d['tokens'][i]['added'] is s)
 for i, s in ((0, True), (7, False))]"
check "it counts them" is_same "$(json out "d['count']")" 15

tri tokenize "$TINY" -p "$text" --no-parse-special
check "--no-parse-special reads foreign text" is_same "$(wc -w <out)" 21
tri tokenize "$TINY" -p "$text" --no-special
check "and --no-special does too" is_same "$(wc -w <out)" 21

# A BOS that the tokenizer adds: of a file that says so.
mkdir bos
cp "$TINY/tokenizer.json" bos
echo '{"bos_token": "<|bos|>", "add_bos_token": true}' >bos/tokenizer_config.json
tri tokenize bos -p "$text"
check "what the tokenizer adds is added" is_same "$(cat out)" "0 $ids"
tri tokenize bos/tokenizer.json -p "$text" --show
check "it stands for no byte of the text" grep -qxE ' +0  0-0 +special,added +"<\|bos\|>"' out
tri tokenize bos -p "$text" --no-add-special
check "--no-add-special leaves it out" is_same "$(cat out)" "$ids"
tri tokenize bos -p "<|bos|>$text" --show
check "one that is spelled is not doubled" is_same "$(awk '{print $1 " " $2}' out | head -n 2 | tr '\n' ' ')" "0 0-7 3 7-15 "

# Only the post-processor knows the token that begins every text.
mkdir template
python3 - "$TINY" <<'EOF'
import json, sys
t = json.load(open(sys.argv[1] + "/tokenizer.json"))
bos = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
text = {"Sequence": {"id": "A", "type_id": 0}}
t["post_processor"] = {"type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text],
                       "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}}}
json.dump(t, open("template/tokenizer.json", "w"))
EOF
tri tokenize template -p "$text"
check "a post-processor begins every text" is_same "$(cat out)" "0 $ids"
tri tokenize template -p "<|bos|>$text"
check "its token is not doubled where no file names it" is_same "$(cat out)" "0 $ids"

# The text of ids, each one shown.
tri detokenize "$TINY" -p "3 279" --show
check "detokenize --show says what each id prints" is_same "$(awk '{print $1 " " $2}' out | tr '\n' ' ')" \
    "3 special,added 279 - "

# Many texts: each line as if it were alone.
printf "one two\n\n$text\r\nThe dog had 12 boats." >lines
: >wanted
while IFS= read -r line || [ -n "$line" ]; do
    "$TRIGRAPH" tokenize bos -p "$line" >>wanted
done <lines
for t in 1 2 7; do
    tri tokenize bos -f lines --lines -t $t
    check "--lines gives the ids of each line, $t threads" cmp -s out wanted
done
"$TRIGRAPH" tokenize bos --lines <lines >out 2>err
check "lines come through a pipe" cmp -s out wanted
tri tokenize bos -f lines --lines --json
check "--lines --json is an object on each line" is_same "$(python3 -c 'import json, sys
for line in open("out"): print(*json.loads(line)["tokens"])')" "$(cat wanted)"
tri tokenize bos -f lines --lines --show
check "--lines --show parts texts by an empty line" is_same "$(awk '{print $1}' RS= ORS=' ' out)" "0 0 0 0 "
: >nothing
tri tokenize bos -f nothing --lines
check "no lines are no texts" test "$rc" -eq 0 -a ! -s out
tri tokenize "$TINY" -f nothing
check "an empty text has no ids" is_same "$(cat out)" ""
seq 1 30000 >many
tri tokenize "$TINY" -f many --lines
check "30,000 lines give as many" is_same "$(wc -l <out)" 30000
tri tokenize "$TINY" -p 30000
cp out last
tri tokenize "$TINY" -f many --lines
check "the last of them too" is_same "$(tail -n 1 out)" "$(cat last)"

# The hub's cache, and vocabularies in other files; ids of sentencepiece and tiktoken, from their goldens.
hub=hub/models--org--name
mkdir -p $hub/blobs $hub/refs $hub/snapshots/0123abcd
cp "$TINY/tokenizer.json" $hub/blobs/t
ln -s ../../blobs/t $hub/snapshots/0123abcd/tokenizer.json
printf 0123abcd >$hub/refs/main
tri tokenize $hub -p "$text"
check "a folder of the hub's cache is read in place" is_same "$(cat out)" "$ids"
rm $hub/blobs/t
refuses "a download that did not finish" 1 "tokenizer\.json: is a link to a file that is not there" tokenize $hub -p hi
golden=$ROOT/tests/golden/tokenizer
cat >goldens.py <<'END'
# goldens.py PROGRAM MODEL GOLDEN NAME: every text of one line that the golden has under that name.
import json, subprocess, sys
program, model, golden, name = sys.argv[1:]
lists = json.load(open(golden))
entry = next(m for k in lists for m in lists[k] if m["name"] == name)
cases = [c for c in entry["cases"] if "\n" not in c["text"]]
text = "".join(c["text"] + "\n" for c in cases)
out = subprocess.run([program, "tokenize", model, "--lines", "--no-special"], input=text.encode(), stdout=-1)
lines = out.stdout.decode().split("\n")[:-1]
bad = [c["text"] for c, l in zip(cases, lines) if [int(i) for i in l.split()] != c["ids_literal"]]
print(len(cases), "texts,", len(lines), "lines,", len(bad), "differ", bad[:2])
sys.exit(bool(bad) or len(cases) < 100 or len(lines) != len(cases))
END
mkdir pieces ranks
cp "$golden/sp-bytes.model" pieces/tokenizer.model
cp "$golden/small.tiktoken" ranks/small.tiktoken
echo '{"tokenizer_class": "QWenTokenizer"}' >ranks/tokenizer_config.json
for model in pieces pieces/tokenizer.model; do
    check "$model gives the ids of sentencepiece" python3 goldens.py "$TRIGRAPH" $model "$golden/sp.json" bytes
done
for model in ranks ranks/small.tiktoken; do
    check "$model gives the ids of tiktoken" python3 goldens.py "$TRIGRAPH" $model "$golden/tiktoken.json" QWenTokenizer
done

refuses "--threads 0" 2 "--threads must be between 1 and 1024 .got 0." tokenize "$TINY" -p hi -t 0
refuses "more threads than a batch takes" 1 "300 threads.* 256" tokenize "$TINY" -f lines --lines -t 300
refuses "a folder without texts" 1 "bare: has neither a tokenizer nor a chat template" tokenize "$(mkdir -p bare && echo bare)" -p hi
refuses "a template has no ids" 1 "only\.jinja has no tokenizer" tokenize "$(mkdir -p t && echo '{{ 1 }}' >t/only.jinja && echo t/only.jinja)" -p hi
echo '{' >broken.json
refuses "a tokenizer that is no JSON" 1 "broken\.json.*line 2" tokenize broken.json -p hi
refuses "a tokenizer that is not there" 1 "nothing/tokenizer\.json" tokenize nothing/tokenizer.json -p hi
refuses "an id beyond the vocabulary" 1 "id 288 at place 1 .*0 to 287" detokenize "$TINY" -p "287 288"
refuses "a negative id" 1 "word 2, '-1', is not a token id" detokenize "$TINY" -p "1 -1"
refuses "an id beyond 32 bits" 1 "word 1, '2147483648', is not a token id" detokenize "$TINY" -p 2147483648
refuses "an id that is no whole number" 1 "word 1, '1.5', is not a token id" detokenize "$TINY" -p 1.5
tri detokenize "$TINY" -p 287
check "the last id is one" test "$rc" -eq 0
