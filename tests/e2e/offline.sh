# ./run where there is no network and no model from an earlier time: the tiny model of the checkout.
if unshare -rn true 2>/dev/null; then
    if [ "$BUILD" != "$ROOT/build" ]; then
        skip "./run without a network (it builds into build/)"
    else
        TG_MODELS=$PWD/none
        export TG_MODELS
        unshare -rn "$ROOT/run" -p "What is the capital of France?" >out 2>err
        rc=$?
        check "./run answers without a network" grep -q Paris out
        check "and says which model it used" grep -q 'tests/tiny/offline' err
        unshare -rn "$ROOT/run" >out 2>err
        rc=$?
        check "./run needs no question" test "$rc" -eq 0 -a -s out
    fi
else
    skip "./run without a network (a network namespace may not be made here)"
fi
