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
refuses "-n 0" 2 "--predict is 0, and must be from 1" generate "$TINY" -p hi -n 0
refuses "-n -1" 2 "--predict is -1, and must be from 1" generate "$TINY" -p hi -n -1
refuses "-t 0" 2 "--threads is 0, and must be from 1" generate "$TINY" -p hi -t 0
refuses "--top-p 7" 2 "--top-p is 7, and must be from 0 to 1" generate "$TINY" -p hi --top-p 7
refuses "--temp nan" 2 "--temp takes a finite number, and 'nan'" generate "$TINY" -p hi --temp nan
refuses "--temp -1" 2 "--temp is -1, and must be from 0" generate "$TINY" -p hi --temp -1
refuses "--min-p 1" 2 "--min-p is 1, and must be from 0 to less than 1" generate "$TINY" -p hi --min-p 1
refuses "bench --depth -1" 2 "--depth is -1, and must be from 0" bench m -d -1
refuses "bench --batch 0" 2 "--batch is 0, and must be from 1 to 256" bench m --batch 0
refuses "bench --verify=yes" 2 "--verify takes no value" bench m --verify=yes
refuses "a word for a number" 2 "--seed takes a whole number, and 'x'" generate "$TINY" -p hi -s x
refuses "two inputs" 2 "exclude each other" generate "$TINY" -p hi -f x
refuses "a value that is no choice" 2 "--weights is 'q3', and must be one of auto" export "$TINY" -o d --weights q3
refuses "buckets that descend" 2 "must ascend: 16 follows 64" export "$TINY" -o d --context-buckets 64,16
refuses "an option without its value" 2 "--seed needs a value" generate "$TINY" --seed
refuses "an unknown shell" 2 "no script for the shell tcsh" --completion tcsh
check "nothing was exported" test -z "$(ls cache)"
