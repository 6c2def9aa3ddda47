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
    for i in 1 2 3 4 5 6 7 8 9 10; do # until the program catches signals, and then well into its work
        caught=$(sed -n 's/^SigCgt:[[:blank:]]*//p' /proc/$pid/status 2>/dev/null)
        sleep 0.5
        [ $((0x${caught:-0} & 0x4000)) -eq 0 ] || break
    done
    start=$(date +%s%N)
    kill -s "${s%:*}" $pid
    wait $pid
    rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    check "SIG${s%:*} ends a long tokenization at once" test $rc -eq "${s#*:}" -a $ms -lt 2000
    check "and says so" grep -qx 'trigraph: interrupted' err
done
rm -f large.txt
