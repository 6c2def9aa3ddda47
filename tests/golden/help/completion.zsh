#compdef trigraph
# made by: trigraph --completion zsh
if (( CURRENT == 2 )); then
    compadd -- export generate chat tokenize detokenize template inspect eval bench
    return
fi
case $words[2] in
export)
    _arguments '2:model:_files' \
        '--output=[the folder that becomes the artifact]:value:_files' \
        '--force[replace DIR if it exists; readers of the old one are not disturbed]' \
        '--dry-run[write nothing, print the memory plan]' \
        '--dump-ir=[write nothing, print the graphs as they are after this pass]:value:_files' \
        '--batch=[rows that run together]:value:_files' \
        '--max-length=[tokens of a prompt and its answer]:value:_files' \
        '--context-buckets=[sizes of a prompt step, ascending, separated by commas]:value:_files' \
        '--speculation=[drafted tokens that one step verifies, which bench --verify measures]:value:_files' \
        '--weights=[how the weights of a float checkpoint are stored; auto keeps its types]:value:_files' \
        '--calibrate=[a text of 64 to 4096 tokens; --weights q4_0, q4_1 and q5_1 keep best what it uses]:value:_files' \
        '--activations=[what activations become before a product with quantized weights; int8 keeps the few groups that hold outliers in 16 bits]:value:_files' \
        '--kv=[how keys and values are kept]:value:_files' \
        '--config=[JSON with the same names; options given here win]:value:_files' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
generate)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--system=[the system message before the conversation]:value:_files' \
        '--raw[continue the text as it is, without the chat template]' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--predict=[at most this many tokens]:value:_files' \
        '--stop=[end before this text; may be given up to 16 times]:value:_files' \
        '--ignore-eos[do not end at the model'\''s stop tokens]' \
        '--show-special[print special tokens too]' \
        '--temp=[0 takes the likeliest token each time]:value:_files' \
        '--top-k=[only the N likeliest tokens; 0 for all]:value:_files' \
        '--top-p=[only the likeliest tokens that sum to X; 1 for all]:value:_files' \
        '--min-p=[only tokens at least X times as likely as the best]:value:_files' \
        '--repeat-penalty=[divides the odds of tokens that occurred; 1 for none]:value:_files' \
        '--presence-penalty=[taken from tokens the answer already has]:value:_files' \
        '--frequency-penalty=[taken from them once for each time they occurred]:value:_files' \
        '--seed=[the same seed draws the same tokens, on any machine]:value:_files' \
        '--threads=[worker threads; changes the speed and no result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--stats[print times and speeds on standard error]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
chat)
    _arguments '2:model:_files' \
        '--system=[the system message before the conversation]:value:_files' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--predict=[at most this many tokens]:value:_files' \
        '--stop=[end before this text; may be given up to 16 times]:value:_files' \
        '--temp=[0 takes the likeliest token each time]:value:_files' \
        '--top-k=[only the N likeliest tokens; 0 for all]:value:_files' \
        '--top-p=[only the likeliest tokens that sum to X; 1 for all]:value:_files' \
        '--min-p=[only tokens at least X times as likely as the best]:value:_files' \
        '--repeat-penalty=[divides the odds of tokens that occurred; 1 for none]:value:_files' \
        '--presence-penalty=[taken from tokens the answer already has]:value:_files' \
        '--frequency-penalty=[taken from them once for each time they occurred]:value:_files' \
        '--seed=[the same seed draws the same tokens, on any machine]:value:_files' \
        '--threads=[worker threads; changes the speed and no result]:value:_files' \
        '--stats[print times and speeds on standard error]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
tokenize)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--lines[every line is a text, without its newline; they are shared among threads]' \
        '--no-add-special[leave out what the tokenizer adds to a text]' \
        '--no-parse-special[special tokens spelled in the text are plain text]' \
        '--no-special[neither add, read nor print special tokens]' \
        '--threads=[worker threads; changes the speed and no result]:value:_files' \
        '--show[a line a token\: id, bytes of a text given, flags, what it prints]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
detokenize)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--no-special[neither add, read nor print special tokens]' \
        '--show[a line a token\: id, bytes of a text given, flags, what it prints]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
template)
    _arguments '2:model:_files' \
        '--file=[the messages or the request, JSON; - is standard input]:value:_files' \
        '--list[print the names of the model'\''s templates instead]' \
        '--tools=[the tools that the model may call, a JSON list]:value:_files' \
        '--documents=[documents to answer from, a JSON list]:value:_files' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--no-generation-prompt[end behind the last message; do not begin the answer]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
inspect)
    _arguments '2:model:_files' \
        '--batch=[rows that run together]:value:_files' \
        '--max-length=[tokens of a prompt and its answer]:value:_files' \
        '--weights=[how the weights of a float checkpoint are stored; auto keeps its types]:value:_files' \
        '--kv=[how keys and values are kept]:value:_files' \
        '--verify[compare every checksum of an artifact, the weights'\'' too]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
eval)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--logits=[write float32 logits [tokens, vocabulary]; row i is after ids 0 to i]:value:_files' \
        '--chunk=[tokens of a step, at most what the largest bucket and 64 MB of logits hold; changes the speed and no result]:value:_files' \
        '--threads=[worker threads; changes the speed and no result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
bench)
    _arguments '2:model:_files' \
        '--n-prompt=[tokens of the prompt]:value:_files' \
        '--n-gen=[tokens of the answer]:value:_files' \
        '--repetitions=[how often, after one run to warm up]:value:_files' \
        '--depth=[tokens that every row holds before its prompt]:value:_files' \
        '--batch=[rows that run together; speeds are of all of them]:value:_files' \
        '--verify[what a step of 2 to 8 tokens a row costs beside a plain one]' \
        '--roofline[the speeds beside what this machine can read and multiply]' \
        '--profile[one more run, and what each operation of its steps cost]' \
        '--threads=[worker threads; changes the speed and no result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
esac
