# A conversation through a pipe: answers on standard output, everything else on standard error.
say() { printf '%s\n' "$@" | "$TRIGRAPH" chat "$TINY" --temp 0 -n 8 --stats >out 2>err; rc=$?; }
say "Is the sea wide?"
check "one message gets one answer" test "$rc" -eq 0 -a -s out
check "its prompt is the template's" grep -q 'prefill [0-9]* tokens' err
cp out one
say "Is the sea wide?" "And deep?"
check "the first answer does not change by a second message" cmp -s one - <<END
$(head -c "$(wc -c <one)" out)
END
check "the second turn reuses the first" grep -q 'prefill [0-9]* tokens ([0-9]* cached)' err
say "Is the sea wide?" /clear "Is the sea wide?"
check "/clear gives the same answer again" is_same "$(cat out)" "$(cat one one)"
say "Is the sea wide?" /regen
check "/regen answers the same message" is_same "$(cat out)" "$(cat one one)"
printf 'Is the sea wide?' >message
say "/read message"
check "/read sends a file" cmp -s out one
say '"""Is the sea' 'wide?"""'
check 'a message of several lines is one message' is_same "$(grep -c 'prefill [0-9]* tokens' err)" 1
say "/system Be brief." "Is the sea wide?"
check "/system starts over" grep -q "the system message is set" err
say "" "   " /quit "Is the sea wide?"
check "/quit leaves, and blank lines are no messages" test "$rc" -eq 0 -a ! -s out
tri chat "$TINY" --stop ""
check "an empty stop string is refused" test "$rc" -eq 2
