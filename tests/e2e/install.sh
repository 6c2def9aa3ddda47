# make install, and the example compiled and run against what it installed.
check "make install fills a prefix" make -s -C "$ROOT" BUILD="$BUILD" PREFIX=/opt/tg DESTDIR="$PWD/tree" install >out 2>err
p=$PWD/tree/opt/tg
for f in bin/trigraph lib/libtrigraph.so lib/libtrigraph.so.0 lib/libtrigraph.a include/trigraph.h \
    include/trigraph_status.h lib/pkgconfig/trigraph.pc share/man/man1/trigraph.1 \
    share/bash-completion/completions/trigraph; do
    check "$f is there" test -s "$p/$f"
done
check "the library's own name is libtrigraph.so.0" sh -c "readelf -d '$p/lib/libtrigraph.so.0' | grep -q 'SONAME.*\[libtrigraph.so.0\]'"
nm -D --defined-only "$p/lib/libtrigraph.so.0" | awk '{ print $3 }' | sort >symbols
sed -n 's/^.*[ *]\(tg_[a-z_]*\)(.*/\1/p' "$p/include/trigraph.h" | sort -u >declared
check "the library exports what the header declares, and nothing else" diff declared symbols
flags=$(PKG_CONFIG_PATH=$p/lib/pkgconfig pkg-config --define-variable=prefix="$p" --cflags --libs trigraph)
# shellcheck disable=SC2086 # flags are words
check "examples/hello.c compiles against it" gcc -std=c11 -Wall -Wextra -Werror "$ROOT/examples/hello.c" $flags -o hello
LD_LIBRARY_PATH=$p/lib ./hello "$TINY" "The dog had" >out 2>err
rc=$?
check "and answers" test "$rc" -eq 0 -a -s out
cp out shared
LD_LIBRARY_PATH=$p/lib ./hello nothing/here hi >out 2>err
rc=$?
check "and names what is wrong" grep -q 'hello: .*nothing/here' err
libs=$(sed -n 's/^Libs.private: //p' "$p/lib/pkgconfig/trigraph.pc")
# shellcheck disable=SC2086
check "it links with the static library too" gcc -std=c11 -I"$p/include" "$ROOT/examples/hello.c" "$p/lib/libtrigraph.a" $libs -o static
./static "$TINY" "The dog had" >out 2>err
rc=$?
check "and says the same" cmp -s out shared
# shellcheck disable=SC2086
check "examples/tokens.c compiles against it" gcc -std=c11 -Wall -Wextra -Werror "$ROOT/examples/tokens.c" $flags -o tokens
LD_LIBRARY_PATH=$p/lib ./tokens "$TINY" "$(json "$TINY/expected.json" "json.dumps(d['chat'])")" >out 2>err
rc=$?
check "and prints the ids of transformers" is_same "$(cut -f 1 out | tr '\n' ' ')" "$(json "$TINY/expected.json" "' '.join(map(str, d['chat_ids']))") "
cat >plus.cc <<'END'
#include <trigraph.h>
int main() { tg_err e = {}; tg_model *m = nullptr; return tg_model_open(&m, "/nowhere", &e) == TG_OK; }
END
# shellcheck disable=SC2086
check "the header is C++ too" g++ -Wall -Wextra -Wpedantic -Werror plus.cc $flags -o plus
check "and a C++ program links and runs" env LD_LIBRARY_PATH="$p/lib" ./plus
check "the installed program runs from its prefix" "$p/bin/trigraph" --version

# Flags under which the compiler believes that NaN and infinity do not exist.
for flag in -Ofast -ffast-math -ffinite-math-only; do
    for f in "$ROOT"/src/kernel/*.c "$ROOT"/src/device/*.c; do
        gcc -std=c11 -I"$ROOT/src" -I"$ROOT/include" "$flag" -mavx512f -E "$f" >out 2>err && echo "$f"
        grep -q 'build without -ffast-math and -Ofast' err || echo "$f: another error"
    done >accepted
    check "$flag is refused in every file that computes" test ! -s accepted
done
