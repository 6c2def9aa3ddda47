# bash completion for trigraph; made by: trigraph --completion bash
_trigraph() {
    local word=${COMP_WORDS[COMP_CWORD]} options=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "export generate chat tokenize detokenize template inspect eval bench --help --version --man --completion" -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]} in
    export) options="--output --force --dry-run --dump-ir --batch --max-length --context-buckets --speculation --weights --calibrate --activations --kv --config --help --version" ;;
    generate) options="--prompt --file --ids --system --raw --kwargs --template --safe-messages --predict --stop --ignore-eos --show-special --temp --top-k --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty --seed --threads --json --stats --help --version" ;;
    chat) options="--system --kwargs --template --safe-messages --predict --stop --temp --top-k --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty --seed --threads --stats --help --version" ;;
    tokenize) options="--prompt --file --lines --no-add-special --no-parse-special --no-special --threads --show --json --help --version" ;;
    detokenize) options="--prompt --file --ids --no-special --show --json --help --version" ;;
    template) options="--file --list --tools --documents --kwargs --template --safe-messages --no-generation-prompt --help --version" ;;
    inspect) options="--batch --max-length --weights --kv --verify --json --help --version" ;;
    eval) options="--prompt --file --ids --logits --chunk --threads --json --help --version" ;;
    bench) options="--n-prompt --n-gen --repetitions --depth --batch --verify --roofline --profile --threads --json --help --version" ;;
    esac
    case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}
complete -o filenames -F _trigraph trigraph
