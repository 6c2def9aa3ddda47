# lib.sh - what the scripts of this folder share; read by tests/e2e/run, in the script's own folder.
#
# tri runs the program and keeps its exit code in $rc, its outputs in the files out and err.
# shellcheck shell=sh disable=SC2154 # ROOT and TRIGRAPH come from run

TINY=$ROOT/tests/tiny/llama-mqa

pass() { echo "ok  $1"; }
fail() {
    echo "not ok  $1"
    shift
    for words; do printf '    %s\n' "$words"; done
}
skip() { echo "skip  $1"; }

tri() {
    "$TRIGRAPH" "$@" >out 2>err
    rc=$?
}

# check NAME CONDITION...: the condition is a command.
check() {
    what=$1
    shift
    if "$@"; then pass "$what"; else fail "$what" "$*" "exit $rc" "$(head -c 300 out)" "$(tail -n 5 err)"; fi
}

# refuses NAME CODE PATTERN ARGUMENTS...: the program must end with the code, say one error whose
# line matches the pattern, and print nothing on standard output.
refuses() {
    what=$1 code=$2 pattern=$3
    shift 3
    tri "$@"
    if [ "$rc" -ne "$code" ]; then
        fail "$what" "exit $rc, expected $code" "$(tail -n 3 err)"
    elif [ "$(grep -c '^trigraph: error: ' err)" -ne 1 ] ||
        ! grep '^trigraph: error: ' err | grep -qE -e "$pattern"; then
        fail "$what" "expected one error like: $pattern" "$(cat err)"
    elif [ -s out ]; then
        fail "$what" "standard output is not empty: $(head -c 200 out)"
    else
        pass "$what"
    fi
}

is_same() { [ "$1" = "$2" ]; }

# json FILE EXPRESSION: prints the value of a Python expression over the document d.
json() { python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"; }

# has_json FILE EXPRESSION: the file is JSON and the expression has a value.
has_json() { json "$1" "$2" >/dev/null; }

# The files of a folder, without what is inside them: to see that nothing was left behind.
listing() { (cd "$1" 2>/dev/null && find . | sort); }
