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
