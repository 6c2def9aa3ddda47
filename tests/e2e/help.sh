# The texts about the program: on standard output, with exit 0, as the golden files have them.
golden=$ROOT/tests/golden/help
tri --help
check "--help prints the list of commands" cmp -s out "$golden/commands.txt"
check "--help ends with 0 and says nothing else" test "$rc" -eq 0 -a ! -s err
tri -h
check "-h does the same" cmp -s out "$golden/commands.txt"
for c in export generate chat tokenize detokenize template inspect eval bench; do
    tri $c --help
    check "$c --help is its golden text" cmp -s out "$golden/$c.txt"
done
tri help export
check "help COMMAND is COMMAND --help" cmp -s out "$golden/export.txt"
tri --version
check "--version prints the version" grep -qx 'trigraph [0-9]*\.[0-9]*\.[0-9]*' out
tri generate --version
check "a command's --version is the same" grep -qx 'trigraph [0-9]*\.[0-9]*\.[0-9]*' out
tri --man
sed 's/trigraph [0-9.]*" "User/trigraph 0.0.0" "User/' out >man
check "--man is the golden page" cmp -s man "$golden/trigraph.1"
if command -v man >/dev/null; then
    MANWIDTH=80 man --warnings -l ./man >/dev/null 2>warnings
    check "man formats the page without a warning" test ! -s warnings
fi
tri --completion bash
check "--completion bash is the golden script" cmp -s out "$golden/completion.bash"
cat >complete <<'END'
. ./out
COMP_WORDS=(trigraph generate --see) COMP_CWORD=2
_trigraph
echo "${COMPREPLY[@]}"
COMP_WORDS=(trigraph ben) COMP_CWORD=1
_trigraph
echo "${COMPREPLY[@]}"
END
if command -v bash >/dev/null; then
    bash ./complete >completed
    check "bash completes an option and a command" is_same "$(cat completed)" "--seed
bench"
fi
