# Wrong usage: exit 2, one sentence that names the value and the limit, before any model is touched.
refuses "no command" 2 "no command is given"
refuses "an unknown command" 2 "no command genrate" genrate
check "an unknown command names the nearest" grep -q "^hint: did you mean 'generate'" err
refuses "an unknown option" 2 "generate has no option --tmep" generate m --tmep 1
check "an unknown option names the nearest" grep -q "^hint: did you mean --temp" err
refuses "an option of another command" 2 "export has no option --temp" export m --temp 1
check "an option of another command says whose it is" grep -q "^hint: it is an option of generate" err
refuses "no model" 2 "generate needs a MODEL" generate -p hi
refuses "two models" 2 "takes one MODEL" generate a b -p hi
refuses "no place for the artifact" 2 "-o DIR" export "$TINY"
refuses "-n 0" 2 "--predict must be between 1 and .*got 0" generate "$TINY" -p hi -n 0
refuses "-n -1" 2 "--predict must be between 1 and .*got -1" generate "$TINY" -p hi -n -1
refuses "-t 0" 2 "--threads must be between 1 and .*got 0" generate "$TINY" -p hi -t 0
refuses "--top-p 7" 2 "--top-p must be between 0 and 1 .got 7" generate "$TINY" -p hi --top-p 7
refuses "--temp nan" 2 "--temp must be a finite number .got 'nan'" generate "$TINY" -p hi --temp nan
refuses "--temp -1" 2 "--temp must be between 0 and 100 .got -1." generate "$TINY" -p hi --temp -1
refuses "--min-p 1" 2 "--min-p must be at least 0 and less than 1 .got 1" generate "$TINY" -p hi --min-p 1
refuses "bench --depth -1" 2 "--depth must be between 0 and .*got -1" bench m -d -1
refuses "bench --batch 0" 2 "--batch must be between 1 and 256 .got 0" bench m --batch 0
refuses "bench --verify=yes" 2 "--verify takes no value" bench m --verify=yes
refuses "a word for a number" 2 "--seed must be a whole number .got 'x'" generate "$TINY" -p hi -s x
refuses "two inputs" 2 "cannot be used together" generate "$TINY" -p hi -f x
refuses "a value that is no choice" 2 "--weights must be one of auto.*got 'q3'" export "$TINY" -o d --weights q3
refuses "buckets that descend" 2 "must be in ascending order, and 16 follows 64" export "$TINY" -o d --context-buckets 64,16
refuses "an option without its value" 2 "--seed needs a value" generate "$TINY" --seed
refuses "an unknown shell" 2 "no script for the shell tcsh" --completion tcsh
check "nothing was exported" test -z "$(ls cache)"
