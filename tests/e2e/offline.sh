# The tiny model of the checkout, and ./run where there is no network and no model from an earlier
# time. The expected completions are those of transformers in float32 (answers.json, tools/models/mkoffline).
OFFLINE=$ROOT/tests/tiny/offline
json "$OFFLINE/answers.json" "'\n'.join(d)" >questions
tri export "$OFFLINE" -o exact.tg --weights f32
while read -r question; do
    QUESTION=$question python3 -c 'import json, os, sys
print(json.load(open(sys.argv[1]))[os.environ["QUESTION"]])' "$OFFLINE/answers.json" >expected
    tri generate exact.tg --temp 0 -p "$question"
    check "the tiny model answers as transformers: $question" cmp out expected
done <questions
check "and there are several questions" test "$(wc -l <questions)" -ge 5

if unshare -rn true 2>/dev/null; then
    if [ "$BUILD" != "$ROOT/build" ]; then
        skip "./run without a network (it builds into build/)"
    else
        TG_MODELS=$PWD/none
        export TG_MODELS
        question="Tell me a story about a rabbit."
        unshare -rn "$ROOT/run" -p "$question" >out 2>err
        rc=$?
        json "$OFFLINE/answers.json" "d['$question']" >expected
        check "./run tells a tale without a network" cmp out expected
        check "and says which model it used" grep -q 'tests/tiny/offline' err
        unshare -rn "$ROOT/run" "$question" >out 2>err
        rc=$?
        check "a plain word is the question" cmp out expected
        unshare -rn "$ROOT/run" >out 2>err
        rc=$?
        check "./run needs no question" test "$rc" -eq 0 -a -s out
    fi
else
    skip "./run without a network (a network namespace may not be made here)"
fi
