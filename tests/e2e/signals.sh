# Signals, pipes that close, disks that are full on the way out.
tri export "$TINY" -o m.tg --weights f32
echo "5 6 7" >ids
"$TRIGRAPH" generate m.tg --ids ids -n 60 --ignore-eos --temp 0 2>err | head -c 1 >/dev/null
check "a closed pipe is quiet" test ! -s err
if [ -w /dev/full ]; then
    "$TRIGRAPH" generate m.tg --ids ids -n 4 --ignore-eos --temp 0 >/dev/full 2>err
    rc=$?
    check "a full disk behind standard output is an error" test "$rc" -eq 1
    check "that names standard output" grep -q '^trigraph: error: standard output: cannot write: No space' err
    "$TRIGRAPH" --help >/dev/full 2>err
    rc=$?
    check "for help too" test "$rc" -eq 1 -a -s err
fi
python3 "$ROOT/tests/e2e/terminal.py" "$TRIGRAPH" "$ROOT"

# One text of 60 MB without an end in between: no work is too long to be left.
python3 -c "
import random
random.seed(1)
words = [''.join(random.choice('abcdefghij') for _ in range(7)) for _ in range(50000)]
print(' '.join(random.choice(words) for _ in range(7500000)))" >large.txt
for s in TERM:143 HUP:129; do
    "$TRIGRAPH" tokenize m.tg -f large.txt >/dev/null 2>err & pid=$!
    sleep 1
    start=$(date +%s%N)
    kill -s "${s%:*}" $pid
    wait $pid
    rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    check "SIG${s%:*} ends a long tokenization within a second" test $rc -eq "${s#*:}" -a $ms -lt 1000
    check "and says so" grep -qx 'trigraph: interrupted' err
done
rm -f large.txt
