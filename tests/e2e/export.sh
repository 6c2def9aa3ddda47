# Exports that meet trouble: what is seen is the whole artifact or none.
MODEL=$TG_MODELS/smollm2-135m-instruct.gguf
[ -f "$MODEL" ] || MODEL=$TINY

tri export "$TINY" --dry-run
check "--dry-run prints a plan and writes nothing" test "$rc" -eq 0 -a -s out -a "$(ls)" = "cache
err
out"
for pass in build fuse output-rows group plan; do
    tri export "$TINY" --dump-ir $pass
    check "--dump-ir $pass prints graphs" test "$rc" -eq 0 -a -s out
done
tri export "$TINY" -o a.tg
tri export "$TINY" -o b.tg
check "exporting twice gives the same bytes" diff -r a.tg b.tg
tri export "$TINY" -o b.tg --batch 2 --force
check "--force replaces an artifact" test "$rc" -eq 0
tri inspect b.tg --verify
check "and the new one is whole" test "$rc" -eq 0
check "and nothing else is left" is_same "$(ls -A | sort | tr '\n' ' ')" "a.tg b.tg cache err out "

# The choice of the run at export is the same on any machine.
tri export "$MODEL" -o all.tg
env TG_CPU=ref TG_THREADS=1 "$TRIGRAPH" export "$MODEL" -o one.tg >out 2>err
check "another tier and other threads export the same bytes" diff -r all.tg one.tg
tri inspect all.tg
[ "$MODEL" = "$TINY" ] || check "and some groups are outlier groups" grep -qE '^[1-9][0-9]* of [0-9]+ input groups are outlier groups' out
tri export "$TINY" -o q8.tg --weights q8_0
check "a model without outliers worth their cost exports too" test "$rc" -eq 0
rm -rf all.tg one.tg q8.tg

# The choice made by a text is the same on any machine, and another for another text.
seq 1 900 >numbers.txt
seq 900 -1 1 >backwards.txt
tri export "$TINY" -o plain.tg --weights q4_1
tri export "$TINY" -o all.tg --weights q4_1 --calibrate numbers.txt
check "a text calibrates" test "$rc" -eq 0
tri inspect all.tg --verify
check "and what comes of it is whole" test "$rc" -eq 0
env TG_CPU=ref TG_THREADS=1 "$TRIGRAPH" export "$TINY" -o one.tg --weights q4_1 --calibrate numbers.txt >out 2>err
check "with the same bytes from another tier and other threads" diff -r all.tg one.tg
tri export "$TINY" -o back.tg --weights q4_1 --calibrate backwards.txt
check "and others from another text" sh -c '! cmp -s all.tg/weights.0.bin back.tg/weights.0.bin && ! cmp -s all.tg/weights.0.bin plain.tg/weights.0.bin'
check "the artifact names the text" test "$(json all.tg/artifact.json 'd["calibration"]["xxh3_128"]')" != "$(json back.tg/artifact.json 'd["calibration"]["xxh3_128"]')"
tri export "$ROOT/tests/tiny/llama-rope-longrope" -o long.tg --weights q4_1 --calibrate numbers.txt
check "so does one beyond longrope's original length" test "$rc" -eq 0
rm -rf all.tg one.tg back.tg plain.tg long.tg numbers.txt backwards.txt

DYNAMIC=$ROOT/tests/tiny/llama-rope-dynamic
tri export "$DYNAMIC" -o dynamic.tg --max-length 257
check "dynamic rope scaling beyond the original length warns" grep -q 'texts of more than 256 tokens use the frequencies of a text of 257' err
tri export "$DYNAMIC" -o dynamic.tg --max-length 256 --force
check "and up to it does not" sh -c '! grep -q dynamic.rope err'
rm -rf dynamic.tg

# Two exports of one source at once, through the cache and into one folder.
rm -rf cache && mkdir cache
"$TRIGRAPH" generate "$MODEL" --raw -p hi -n 1 --temp 0 >out1 2>err1 & first=$!
"$TRIGRAPH" generate "$MODEL" --raw -p hi -n 1 --temp 0 >out2 2>err2 & second=$!
wait $first; rc1=$?
wait $second; rc2=$?
check "two at once through the cache both succeed" test $rc1 -eq 0 -a $rc2 -eq 0
check "and answer the same" cmp -s out1 out2
check "and one artifact came of them" is_same "$(find cache -name '*.json' -path '*.tg*' -o -mindepth 1 -maxdepth 1 -type d | xargs -n 1 dirname | sort -u | grep -c cache)" 1

# stop_after SIGNAL MS: an export that gets a signal on its way; returns when it is gone, which
# timeout(1) would not wait for.
stop_after() {
    "$TRIGRAPH" export "$MODEL" -o kill/m.tg >/dev/null 2>err & pid=$!
    sleep "$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))"
    kill -s "$1" $pid 2>/dev/null
    wait $pid 2>/dev/null
    rc=$?
}

# SIGKILL at ten points of an export; the next one succeeds and clears the remains.
rm -rf kill && mkdir kill
start=$(date +%s%N)
tri export "$MODEL" -o kill/m.tg
ms=$((($(date +%s%N) - start) / 1000000))
listing kill >whole
rm -rf kill/m.tg
bad=0
for i in 1 2 3 4 5 6 7 8 9 10; do
    t=$((ms * i / 11 + 1))
    stop_after KILL $t
    [ ! -e kill/m.tg ] || { "$TRIGRAPH" inspect kill/m.tg --verify >/dev/null 2>&1 || bad=$((bad + 1)); rm -rf kill/m.tg; }
done
check "after SIGKILL at ten points of $ms ms no half artifact was visible" is_same $bad 0
tri export "$MODEL" -o kill/m.tg
check "the next export succeeds" test "$rc" -eq 0
listing kill >after
check "and clears the remains" diff whole after

# SIGINT and SIGTERM end an export cleanly.
for s in INT TERM; do
    rm -rf kill/m.tg
    stop_after $s $((ms / 2))
    if [ -e kill/m.tg ] || [ -z "$(ls -A kill)" ]; then
        pass "SIG$s leaves the whole artifact or nothing"
    else
        fail "SIG$s leaves the whole artifact or nothing" "$(listing kill)"
    fi
done

# A limit on the size of files: a write that fails, not a death.
mkdir -p limited
(
    ulimit -f 64
    refuses "a file beyond the limit of its size" 1 "cannot write: File too large" export "$MODEL" -o limited/m.tg
)
check "leaves nothing behind" test -z "$(ls -A limited)"

# A full disk.
mkdir -p small
if mount -t tmpfs -o size=64k none small 2>/dev/null; then
    refuses "a full disk during an export" 1 "small|space|disk" export "$MODEL" -o small/m.tg
    check "leaves nothing on it" test -z "$(ls -A small)"
    TG_CACHE_DIR=$PWD/small
    export TG_CACHE_DIR
    refuses "a full disk under the cache" 1 "small|space|disk" generate "$MODEL" --raw -p hi -n 1
    check "leaves no artifact there" test -z "$(find small -name '*.json' -size +0)"
    umount small
    # An export needs its files' size and a megabyte, or as much again if less: 2 MB hold 0.5.
    mount -t tmpfs -o size=2m none small
    tri export "$TINY" -o small/m.tg
    check "a small model needs little room" test "$rc" -eq 0 -a -s small/m.tg/artifact.json
    umount small
else
    skip "a full disk during an export (a tmpfs may not be mounted here)"
fi
